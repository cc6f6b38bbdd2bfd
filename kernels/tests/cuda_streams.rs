//! Streams of the CUDA device: a step is waited for by itself. The simulated device carries out no more than is waited for, so that a step which
//! would break it shows who waits for it. `make test-cuda` runs this.
#![cfg(feature = "cuda")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use repartee_kernels::cuda::{Cuda, LaunchedStep};
use repartee_kernels::{Ops, StepOutputs, ReadBack, SpecLayout, StepKey, StepOps};

const ROWS: usize = 4;

/// Gives out these rows of four, which are their own numbers.
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

/// One test: what it does in the end breaks the device for the whole process.
#[test]
fn a_step_is_waited_for_alone() {
    let ops = Cuda::open(0).expect("`make test-cuda` says where the simulated driver is").with_graphs();
    let stages = [ops.with_own_buffers(), ops.with_own_buffers()];
    for stage in &stages {
        // Put together, and from now on replayed.
        assert_eq!(collect(stage, launch(stage, &[3, 2, 1, 0])), [3.0, 2.0, 1.0, 0.0]);
    }
    // Rows far outside of the device's memory.
    let wrong = [1 << 28; ROWS];
    // On another stage's stream, launched before; then behind it on its own, where no graph is free.
    let other = launch(&stages[1], &wrong);
    let first = launch(&stages[0], &[1, 1, 2, 2]);
    let second = launch(&stages[0], &wrong);
    assert_eq!(collect(&stages[0], first), [1.0, 1.0, 2.0, 2.0]);
    let said = catch_unwind(AssertUnwindSafe(|| collect(&stages[1], other))).expect_err("it reads what is not there");
    let said = said.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains("ILLEGAL_ADDRESS"), "{said}");
    // Nothing works any more, and a ticket waits when it goes.
    std::mem::forget((second, ops, stages));
}
