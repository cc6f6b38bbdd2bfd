//! Device memory of repeated steps. Runs in a process of its own, because other tests allocate too.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_kernels::cuda::Cuda;
use repartee_kernels::{Activation, DType, Ops, RawTensor, ReadBack, SpecLayout, StepKey, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

/// A step allocates device memory at its first launch only.
#[test]
fn repeated_steps_take_no_more_memory() {
    let ops = Cuda::open(0).expect("`make test-cuda` says where the simulated driver is").with_own_buffers();
    let shape = &[33, 20][..];
    let part = [RawTensor { name: "w", bytes: &[0; 33 * 20 * 2], dtype: DType::Bf16, shape }];
    let w = ops.stored_weight(WeightLayout::Linear, &part).unwrap();
    let mut layout = SpecLayout::default();
    let floats = layout.list(100);
    let spec = layout.spec();
    let mut free = vec![ops.info().unwrap().free];
    for _ in 0..4 {
        let key = StepKey { stage: "test", rows: 5, variant: 0 };
        let ticket = ops.launch(key, &spec, &mut |ops, spec, outputs| {
            let x = ops.floats(spec, floats, 20);
            outputs.rows.push(ops.linear(&ops.activation(x, Activation::Silu), &w, None));
        });
        ops.collect(ticket, &mut ReadBack::default());
        free.push(ops.info().unwrap().free);
    }
    assert!(free[1] < free[0] && free[2..].iter().all(|&now| now == free[1]), "{free:?}");
}
