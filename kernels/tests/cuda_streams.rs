//! Streams of the CUDA device: each step is waited for alone. The simulated device runs only work that something waits for, so a step that
//! would break it shows who waits. `make test-cuda` runs this test.
#![cfg(feature = "cuda")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use repartee_kernels::cuda::{Cuda, LaunchedStep};
use repartee_kernels::{Ops, ReadBack, SpecLayout, StepKey, StepOutputs};

const ROWS: usize = 4;

/// Launches a step that outputs these rows of four; each row contains its own index.
fn launch(ops: &Cuda, rows: &[u32; ROWS]) -> LaunchedStep {
    let mut layout = SpecLayout::default();
    let (numbers, at) = (layout.list(ROWS), layout.list(ROWS));
    let mut spec = layout.spec();
    spec.set_floats(numbers, &[0.0, 1.0, 2.0, 3.0]);
    spec.set(at, rows);
    ops.launch(
        StepKey { stage: "test", rows: ROWS, variant: 0 },
        &spec,
        &mut |ops, spec, outputs: &mut StepOutputs<Cuda>| {
            let numbers = ops.floats(spec, numbers, 1);
            outputs.rows.push(ops.gather_at(&numbers, &ops.index(spec, at)));
        },
    )
}

fn collect(ops: &Cuda, ticket: LaunchedStep) -> Vec<f32> {
    let mut back = ReadBack::default();
    ops.collect(ticket, &mut back);
    back.numbers
}

/// A single test, because its end breaks the device for the whole process.
#[test]
fn a_step_is_waited_for_alone() {
    let ops = Cuda::open(0).expect("`make test-cuda` says where the simulated driver is").with_graphs();
    let stages = [ops.with_own_buffers(), ops.with_own_buffers()];
    for stage in &stages {
        // Launched eagerly here, replayed from now on.
        assert_eq!(collect(stage, launch(stage, &[3, 2, 1, 0])), [3.0, 2.0, 1.0, 0.0]);
    }
    // Rows far outside of the device's memory.
    let wrong = [1 << 28; ROWS];
    // On another stage's stream, launched before; then behind it on its own, with its graph in use.
    let other = launch(&stages[1], &wrong);
    let first = launch(&stages[0], &[1, 1, 2, 2]);
    let second = launch(&stages[0], &wrong);
    assert_eq!(collect(&stages[0], first), [1.0, 1.0, 2.0, 2.0]);
    let said = catch_unwind(AssertUnwindSafe(|| collect(&stages[1], other))).expect_err("it reads what is not there");
    let said = said.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains("ILLEGAL_ADDRESS"), "{said}");
    // The device is broken, and dropping a ticket would wait.
    std::mem::forget((second, ops, stages));
}
