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
    // Hardware hands memory out in pieces of two megabytes: a step of fewer bytes may take none.
    let (rows, columns, doubled) = (8, 64, 11);
    let shape = &[33, columns][..];
    let part = [RawTensor { name: "w", bytes: &vec![0; 33 * columns * 2], dtype: DType::Bf16, shape }];
    let w = ops.stored_weight(WeightLayout::Linear, &part).unwrap();
    let mut layout = SpecLayout::default();
    let floats = layout.list(rows * columns);
    let spec = layout.spec();
    let mut free = vec![ops.info().unwrap().free];
    for _ in 0..4 {
        let key = StepKey { stage: "test", rows, variant: 0 };
        let ticket = ops.launch(key, &spec, &mut |ops, spec, outputs| {
            let x = ops.floats(spec, floats, columns);
            (0..doubled).fold(ops.copy(&x), |large, _| ops.concat(&[&large, &large]));
            outputs.rows.push(ops.linear(&ops.activation(x, Activation::Silu), &w, None));
        });
        ops.collect(ticket, &mut ReadBack::default());
        free.push(ops.info().unwrap().free);
    }
    assert!(free[1] < free[0] && free[2..].iter().all(|&now| now == free[1]), "{free:?}");
}
