//! Weights in each format in a device's operations.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_kernels::cpu::{Cpu, Weight};
use repartee_kernels::random::uniform;
use repartee_kernels::{DType, KernelError, NO_ID, Ops, RawTensor, RouterShape, WeightFormat, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

const INTEGERS: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Int4];

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count).map(|i| uniform(seed, i as u64, 0, 0) - 0.5).collect()
}

/// Encodes numbers in one of a checkpoint's formats.
fn bytes(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::Bf16 => values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect(),
    }
}

fn part<'a>(name: &'a str, dtype: DType, bytes: &'a [u8], shape: &'a [usize]) -> RawTensor<'a> {
    RawTensor { name, bytes, dtype, shape }
}

/// Parts of several widths and formats equal their joined matrix.
#[test]
fn parts_of_any_format_join() {
    let ops = Cpu::default();
    let k = 45;
    // All formats hold these numbers exactly.
    let values: Vec<f32> = numbers(30 * k, 1).iter().map(|value| (value * 100.0).round() / 64.0).collect();
    let (first, second) = values.split_at(11 * k);
    let whole = bytes(DType::F32, &values);
    let x = ops.tensor(numbers(3 * k, 2), k);
    for format in INTEGERS {
        let alone =
            ops.weight_in_format(WeightLayout::Linear, format, &[part("w", DType::F32, &whole, &[30, k])]).unwrap();
        let expected = ops.read(&ops.linear(&x, &alone, None));
        for (a, b) in [(DType::Bf16, DType::F16), (DType::F32, DType::Bf16)] {
            let (first, second) = (bytes(a, first), bytes(b, second));
            let shapes = [[11, k], [19, k]];
            let parts = [part("a", a, &first, &shapes[0]), part("b", b, &second, &shapes[1])];
            let joined = ops.weight_in_format(WeightLayout::Linear, format, &parts).unwrap();
            assert_eq!(ops.read(&ops.linear(&x, &joined, None)), expected, "{format:?} {a:?} {b:?}");
        }
    }
}

/// Quantised entries differ from their numbers by at most half of their own scale, and are multiples of it.
#[test]
fn quantised_tables_stand_for_their_numbers() {
    const WIDTH: usize = 45;
    let ops = Cpu::default();
    let mut values = numbers(7 * WIDTH, 1);
    // Entries of very different sizes, one of zeros.
    values.iter_mut().enumerate().for_each(|(i, value)| *value *= [1.0, 1e-6, 1e6, 0.0, 1.0, 3.0, 1e-25][i / WIDTH]);
    let (first, second) = values.split_at(3 * WIDTH);
    let (first, second) = (bytes(DType::F32, first), bytes(DType::F32, second));
    let (shapes, parts) = ([[3, WIDTH], [4, WIDTH]], [&first, &second]);
    let parts = [0, 1].map(|i| part("t", DType::F32, parts[i], &shapes[i]));
    let table = ops.weight_in_format(WeightLayout::Table, WeightFormat::Int8, &parts).unwrap();
    let found = ops.read(&ops.embed_at(&table, &ops.list(&[6, 5, 4, 3, 2, 1, 0, NO_ID])));
    assert_eq!(found[7 * WIDTH..], [0.0; WIDTH]);
    for (entry, found) in values.chunks(WIDTH).rev().zip(found.chunks(WIDTH)) {
        let greatest = entry.iter().fold(0.0, |greatest: f32, value| value.abs().max(greatest));
        let scale = greatest / 127.0;
        for (value, found) in entry.iter().zip(found) {
            assert!((value - found).abs() <= scale * 0.500_01, "{value} {found}");
            // A whole number of scales, and nothing between.
            let steps = if scale > 0.0 { found / scale } else { 0.0 };
            assert!((steps - steps.round()).abs() < 1e-4 && steps.abs() < 127.1, "{steps}");
        }
    }
    let bad = bytes(DType::F32, &[1.0, f32::INFINITY]);
    let bad = ops.weight_in_format(WeightLayout::Table, WeightFormat::Int8, &[part("bad", DType::F32, &bad, &[2, 1])]);
    assert_eq!(bad.err(), Some(KernelError::NotFinite { name: "bad".to_owned() }));
}

#[test]
fn rows_of_a_matrix_are_entries() {
    const WIDTH: usize = 45;
    let ops = Cpu::default();
    let values = numbers(20 * WIDTH, 1);
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let (bytes, shape) = (bytes(dtype, &values), [20, WIDTH]);
        let [table, matrix] = [WeightLayout::Table, WeightLayout::Linear].map(|layout| {
            let weight =
                ops.weight_in_format(layout, WeightFormat::Float, &[part("t", dtype, &bytes, &shape)]).unwrap();
            ops.read(&ops.embed_at(&weight, &ops.list(&[19, 0, NO_ID, 16, 3])))
        });
        assert_eq!(table, matrix, "{dtype:?}");
    }
}

fn experts(ops: &Cpu, format: WeightFormat, shape: &[usize], per_expert: usize, count: usize, seed: u64) -> Weight {
    let parts: Vec<_> = (0..count * per_expert)
        .map(|part| bytes(DType::Bf16, &numbers(shape.iter().product(), seed + part as u64)))
        .collect();
    let parts: Vec<_> = parts.iter().map(|bytes| part("w", DType::Bf16, bytes, shape)).collect();
    ops.weight_in_format(WeightLayout::Experts { per_expert }, format, &parts).unwrap()
}

/// A mixture with quantised experts is close to one with bfloat16: int8 closer than int4.
#[test]
fn mixtures_are_near_those_of_floats() {
    const HIDDEN: usize = 96;
    let ops = Cpu::default();
    let router = bytes(DType::F32, &numbers(6 * HIDDEN, 9));
    let router = ops.stored_weight(WeightLayout::Linear, &[part("r", DType::F32, &router, &[6, HIDDEN])]).unwrap();
    let mixture = |format| {
        let gate_up = experts(&ops, format, &[40, HIDDEN], 2, 6, 100);
        let down = experts(&ops, format, &[HIDDEN, 40], 1, 6, 200);
        let x = ops.tensor(numbers(5 * HIDDEN, 3), HIDDEN);
        ops.read(&ops.experts(&x, &router, &gate_up, &down, RouterShape { top_k: 3, normalise: true }))
    };
    let exact = mixture(WeightFormat::Float);
    let size = exact.iter().map(|value| value * value).sum::<f32>();
    let [eight, four] = INTEGERS.map(|format| {
        let off: f32 = mixture(format).iter().zip(&exact).map(|(a, b)| (a - b) * (a - b)).sum();
        (off / size).sqrt()
    });
    assert!(eight > 0.0 && eight < 0.02 && four > 4.0 * eight && four < 0.25, "{eight} {four}");
}

#[test]
fn bad_weights_are_refused_by_name() {
    let ops = Cpu::default();
    let (good, mut bad) = (vec![1.0; 64], vec![1.0; 64]);
    bad[40] = f32::NAN;
    let [good, bad] = [good, bad].map(|values| bytes(DType::F32, &values));
    let shape = &[2, 32][..];
    let parts = [part("good", DType::F32, &good, shape), part("bad", DType::F32, &bad, shape)];
    let short = [part("good", DType::F32, &good, shape), part("short", DType::F32, &good[4..], shape)];
    for format in INTEGERS {
        for layout in
            [WeightLayout::Linear, WeightLayout::Experts { per_expert: 2 }, WeightLayout::Experts { per_expert: 1 }]
        {
            let error = ops.weight_in_format(layout, format, &parts).unwrap_err();
            assert_eq!(error, KernelError::NotFinite { name: "bad".to_owned() });
            let error = ops.weight_in_format(layout, format, &short).unwrap_err();
            assert_eq!(error, KernelError::Bytes { name: "short".to_owned(), expected: 256, found: 252 });
        }
        let error = ops.weight_in_format(WeightLayout::Experts { per_expert: 3 }, format, &parts).unwrap_err();
        assert!(matches!(error, KernelError::Shape { .. }), "{error}");
    }
    let error = ops.weight_in_format(WeightLayout::Table, WeightFormat::Int4, &parts[..1]).unwrap_err();
    assert_eq!(
        error,
        KernelError::Format { name: "good".to_owned(), layout: WeightLayout::Table, format: WeightFormat::Int4 }
    );
    // Floating-point weights accept any number.
    assert!(ops.stored_weight(WeightLayout::Linear, &parts).is_ok());
}
