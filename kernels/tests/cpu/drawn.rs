//! Weights of random numbers in a device's operations.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::sync::Arc;

use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::{Cpu, ProductWork};
use repartee_kernels::random::uniform;
use repartee_kernels::{
    KernelError, Ops, RandomDraw, RandomTensor, RouterShape, WeightFormat, WeightLayout, WeightPart,
};
use repartee_kernels_testkit::host::HostOps;

const FORMATS: [WeightFormat; 3] = [WeightFormat::Float, WeightFormat::Int8, WeightFormat::Int4];

fn part<'a>(seed: u64, shape: &'a [usize]) -> WeightPart<'a> {
    let spread = (3.0 / shape[1..].iter().product::<usize>() as f32).sqrt();
    WeightPart::Drawn(RandomTensor { name: "w", shape, draw: RandomDraw { seed, mean: 0.0, spread } })
}

fn rows(count: usize, width: usize) -> Vec<f32> {
    (0..count * width).map(|i| 2.0 * uniform(3, i as u64, 0, 0) - 1.0).collect()
}

/// Products with drawn matrices are about as large as their rows, in every format.
#[test]
fn products_keep_the_size_of_rows() {
    let ops = Cpu::default();
    let x = ops.tensor(rows(4, 256), 256);
    let size = |numbers: &[f32]| (numbers.iter().map(|n| n * n).sum::<f32>() / numbers.len() as f32).sqrt();
    for format in FORMATS {
        let weight =
            ops.weight_from_parts(WeightLayout::Linear, format, &[part(1, &[300, 256]), part(2, &[20, 256])]).unwrap();
        let y = ops.read(&ops.linear(&x, &weight, None));
        assert_eq!(y.len(), 4 * 320);
        let ratio = size(&y) / size(&ops.read(&x));
        assert!((0.8..1.3).contains(&ratio), "{format:?}: {ratio}");
    }
}

#[test]
fn drawn_experts_are_equal_on_any_threads() {
    let mixture = |ops: &Cpu, format| {
        let router = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &[part(5, &[6, 64])]).unwrap();
        let weight = |per_expert, shape: &[usize]| {
            let parts: Vec<_> = (0..6 * per_expert as u64).map(|seed| part(seed, shape)).collect();
            ops.weight_from_parts(WeightLayout::Experts { per_expert }, format, &parts).unwrap()
        };
        let (gate_up, down) = (weight(2, &[96, 64]), weight(1, &[64, 96]));
        let x = ops.tensor(rows(5, 64), 64);
        ops.read(&ops.experts(&x, &router, &gate_up, &down, RouterShape { top_k: 2, normalise: true }))
    };
    for format in FORMATS {
        let alone = mixture(&Cpu::default(), format);
        for threads in [2, 3] {
            let pool = Arc::new(Pool::new(threads).unwrap());
            assert_eq!(mixture(&Cpu::default().on(Some(pool)), format), alone, "{format:?}");
        }
        assert!(alone.iter().all(|n| n.is_finite()) && alone.iter().any(|n| n.abs() > 0.01), "{format:?}");
    }
}

#[test]
fn every_layout_can_be_drawn() {
    let ops = Cpu::default();
    let layouts: [(WeightLayout, &[usize]); 6] = [
        (WeightLayout::Vector, &[7]),
        (WeightLayout::Table, &[7, 5]),
        (WeightLayout::Conv1d { dilation: 2 }, &[4, 3, 7]),
        (WeightLayout::Depthwise, &[4, 1, 7]),
        (WeightLayout::ConvTranspose1d { stride: 2, cut: true }, &[4, 3, 4]),
        (WeightLayout::Conv2d { stride: 2 }, &[4, 3, 3, 3]),
    ];
    for (layout, shape) in layouts {
        assert!(ops.weight_from_parts(layout, WeightFormat::Float, &[part(1, shape)]).is_ok(), "{layout:?}");
        let error = ops.weight_from_parts(layout, WeightFormat::Int4, &[part(1, shape)]).unwrap_err();
        assert!(matches!(error, KernelError::Format { .. }), "{error}");
    }
}

/// Counts bytes of weights and multiply-adds, over all clones of a device.
#[test]
fn products_are_counted() {
    let ops = Cpu::default().counting();
    let float = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &[part(1, &[32, 64])]).unwrap();
    let integer = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Int4, &[part(1, &[32, 64])]).unwrap();
    let x = ops.tensor(rows(3, 64), 64);
    assert_eq!(ops.work(), ProductWork::default());
    ops.with_own_buffers().linear(&x, &float, None);
    let first = ops.work();
    assert_eq!(first, ProductWork { bytes: 2 * 32 * 64, float_multiplies: 3 * 32 * 64, integer_multiplies: 0 });
    ops.linear(&x, &integer, None);
    let second = ops.work().since(first);
    // Half a byte each, and two bytes for each 32.
    assert_eq!(
        second,
        ProductWork { bytes: 32 * 64 / 2 + 32 * 64 / 16, float_multiplies: 0, integer_multiplies: 3 * 32 * 64 }
    );
}
