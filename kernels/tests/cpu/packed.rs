//! Stored integers, against their dequantised numbers.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use proptest::prelude::*;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, Table};
use repartee_kernels::random::uniform;
use repartee_kernels::{
    DType, KernelError, NO_ID, Ops, PackedTensor, Packing, RawTensor, RouterShape, WeightFormat, WeightLayout,
    WeightPart,
};
use repartee_kernels_testkit::host::HostOps;
use repartee_kernels_testkit::stored::{KINDS, StoredKind, StoredMatrix};

/// Four bits with scales of bfloat16.
const FOUR: StoredKind = KINDS[0];

fn parts<const N: usize>(matrices: &[StoredMatrix; N]) -> [WeightPart<'_>; N] {
    matrices.each_ref().map(|matrix| WeightPart::Packed(matrix.tensor()))
}

fn floats<'a>(bytes: &'a [Vec<u8>], shape: &'a [usize]) -> Vec<WeightPart<'a>> {
    let part = |bytes: &'a Vec<u8>| WeightPart::Stored(RawTensor { name: "w", bytes, dtype: DType::F32, shape });
    bytes.iter().map(part).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A product equals that of the dequantised numbers but for the quantisation of the rows: half a step each. The parts may be of
    /// different kinds.
    #[test]
    fn products_are_those_of_the_numbers(
        first in prop::sample::select(KINDS.to_vec()),
        second in prop::sample::select(KINDS.to_vec()),
        (out, more, inputs) in (1usize..40, 1usize..20, 1usize..200),
        rows in 1usize..6,
        seed: u64,
    ) {
        let stored = [StoredMatrix::drawn(first, [out, inputs], seed), StoredMatrix::drawn(second, [more, inputs], !seed)];
        let x: Vec<f32> = (0..rows * inputs).map(|i| uniform(seed, i as u64, 2, 0) - 0.5).collect();
        let numbers: Vec<f32> = stored.iter().flat_map(|stored| stored.tensor().numbers()).collect();
        let mut all = Vec::new();
        for level in SimdLevel::available() {
            let ops = Cpu::with_level(level);
            let weight = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &parts(&stored)).unwrap();
            all.push(ops.read(&ops.linear(&ops.tensor(x.clone(), inputs), &weight, None)));
        }
        prop_assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "levels differ");
        for (y, x) in all[0].chunks(out + more).zip(x.chunks(inputs)) {
            for (y, numbers) in y.iter().zip(numbers.chunks(inputs)) {
                let exact: f64 = x.iter().zip(numbers).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                let step = |x: &[f32]| f64::from(x.iter().fold(0.0f32, |most, x| most.max(x.abs()))) / 127.0;
                let lost: f64 = x
                    .chunks(32)
                    .zip(numbers.chunks(32))
                    .map(|(x, w)| 0.501 * step(x) * w.iter().map(|&w| f64::from(w.abs())).sum::<f64>())
                    .sum();
                let size: f64 = x.iter().zip(numbers).map(|(&x, &w)| f64::from((x * w).abs())).sum();
                prop_assert!((f64::from(*y) - exact).abs() <= lost + 1e-5 * size + 1e-5, "{} and {}", y, exact);
            }
        }
    }
}

#[test]
fn tables_give_the_numbers_of_their_entries() {
    let ops = Cpu::default();
    for (first, second) in KINDS.into_iter().zip(KINDS.into_iter().cycle().skip(3)) {
        const WIDTH: usize = 160;
        let stored = [StoredMatrix::drawn(first, [5, WIDTH], 1), StoredMatrix::drawn(second, [3, WIDTH], 2)];
        let numbers: Vec<f32> = stored.iter().flat_map(|stored| stored.tensor().numbers()).collect();
        // The rows of a matrix are entries, too.
        for layout in [WeightLayout::Table, WeightLayout::Linear] {
            let table = ops.weight_from_parts(layout, WeightFormat::Float, &parts(&stored)).unwrap();
            let ids = [7, 0, 4, NO_ID, 5];
            let found = ops.read(&ops.embed_at(&table, &ops.list(&ids)));
            for (id, found) in ids.into_iter().zip(found.chunks(WIDTH)) {
                if id == NO_ID {
                    assert_eq!(found, [0.0; WIDTH]);
                } else {
                    assert_eq!(found, &numbers[id as usize * WIDTH..][..WIDTH], "{layout:?} {first:?} {second:?}");
                }
            }
        }
        let packed = Table::packed(WIDTH, &stored.each_ref().map(StoredMatrix::tensor));
        assert_eq!(packed.bytes(), stored.iter().map(StoredMatrix::bytes).sum::<usize>());
    }
}

#[test]
fn experts_may_differ_in_kind() {
    const HIDDEN: usize = 96;
    let ops = Cpu::default();
    let bytes = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_le_bytes()).collect() };
    let router: Vec<f32> = (0..3 * HIDDEN).map(|i| uniform(9, i as u64, 0, 0) - 0.5).collect();
    let router = bytes(&router);
    let shape = [3, HIDDEN];
    let router = [RawTensor { name: "r", bytes: &router, dtype: DType::F32, shape: &shape }];
    let router = ops.stored_weight(WeightLayout::Linear, &router).unwrap();
    // Gate and up projections of three experts, then down projections, each of another kind.
    let gate_up: [_; 6] = std::array::from_fn(|i| StoredMatrix::drawn(KINDS[2 * i], [40, HIDDEN], i as u64));
    let down: [_; 3] = std::array::from_fn(|i| StoredMatrix::drawn(KINDS[5 + 3 * i], [HIDDEN, 40], 10 + i as u64));
    let x: Vec<f32> = (0..5 * HIDDEN).map(|i| uniform(3, i as u64, 0, 0) - 0.5).collect();
    let mixture = |gate_up: &[WeightPart<'_>], down: &[WeightPart<'_>]| {
        let experts = |per_expert, parts| {
            ops.weight_from_parts(WeightLayout::Experts { per_expert }, WeightFormat::Float, parts).unwrap()
        };
        let (gate_up, down) = (experts(2, gate_up), experts(1, down));
        let spec = RouterShape { top_k: 2, normalise: true };
        ops.read(&ops.experts(&ops.tensor(x.clone(), HIDDEN), &router, &gate_up, &down, spec))
    };
    let found = mixture(&parts(&gate_up), &parts(&down));
    let dequantised = |matrices: &[StoredMatrix]| -> Vec<Vec<u8>> {
        matrices.iter().map(|matrix| bytes(&matrix.tensor().numbers())).collect()
    };
    let (wide, narrow) = (dequantised(&gate_up), dequantised(&down));
    let exact = mixture(&floats(&wide, &[40, HIDDEN]), &floats(&narrow, &[HIDDEN, 40]));
    let size: f32 = exact.iter().map(|value| value * value).sum();
    let off: f32 = found.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b)).sum();
    assert!(size > 0.0 && off > 0.0 && (off / size).sqrt() < 0.02, "{off} {size}");
}

#[test]
fn what_cannot_be_packed_is_refused_by_name() {
    let ops = Cpu::default();
    let four = StoredMatrix::drawn(FOUR, [4, 64], 1);
    let four = WeightPart::Packed(four.tensor());
    let bytes = vec![0; 4 * 64 * 4];
    let float = WeightPart::Stored(RawTensor { name: "f", bytes: &bytes, dtype: DType::F32, shape: &[4, 64] });
    let refused =
        |layout, parts: &[WeightPart<'_>]| ops.weight_from_parts(layout, WeightFormat::Float, parts).unwrap_err();
    for error in [
        refused(WeightLayout::Table, &[four, float]),
        refused(WeightLayout::Linear, &[float, four]),
        refused(WeightLayout::Experts { per_expert: 1 }, &[four, float]),
    ] {
        assert!(matches!(error, KernelError::Packed { ref name, .. } if name == "w"), "{error}");
    }
    let WeightPart::Packed(whole) = four else { unreachable!() };
    let short = PackedTensor { scales: &whole.scales[2..], ..whole };
    let error = refused(WeightLayout::Linear, &[WeightPart::Packed(short)]);
    assert_eq!(error, KernelError::Bytes { name: "w".to_owned(), expected: 16, found: 14 });
}

/// Refusals of a single tensor, of 4 by 96 numbers.
#[test]
fn tensors_of_unknown_kinds_are_refused() {
    let refused = |kind: StoredKind| {
        let StoredMatrix { integers, scales, minimums, super_scales, .. } = StoredMatrix::drawn(kind, [4, 96], 1);
        let group = kind.group.unwrap_or(96);
        let symmetric = PackedTensor::symmetric("w", &[4, 96], kind.packing, &integers, &scales, group);
        let minimums = minimums.as_deref().filter(|_| kind.minimums);
        let super_scales = super_scales.as_deref();
        PackedTensor { scale_format: kind.scales, minimums, super_scales, ..symmetric }.check()
    };
    for kind in KINDS {
        assert_eq!(refused(kind), Ok(()), "{kind:?}");
    }
    let [bytes, four] = [Packing::Bytes, Packing::Four].map(|packing| StoredKind {
        packing,
        scales: DType::F16,
        minimums: false,
        super_blocks: false,
        group: Some(32),
    });
    for (kind, group) in [
        (StoredKind { group: Some(48), ..bytes }, 48),
        (StoredKind { group: Some(16), ..four }, 16),
        (StoredKind { group: Some(16), minimums: true, ..bytes }, 16),
        (StoredKind { group: Some(16), scales: DType::Bf16, ..bytes }, 16),
        (StoredKind { group: Some(8), ..bytes }, 8),
    ] {
        assert_eq!(refused(kind), Err(KernelError::Group { name: "w".to_owned(), group }), "{kind:?}");
    }
    for kind in [
        StoredKind { scales: DType::F32, ..bytes },
        StoredKind { scales: DType::Bf16, minimums: true, ..four },
        StoredKind { packing: Packing::Eight, minimums: true, ..bytes },
        StoredKind { super_blocks: true, ..four },
        StoredKind { super_blocks: true, minimums: true, group: Some(64), ..four },
        StoredKind { super_blocks: true, minimums: true, scales: DType::Bf16, ..four },
    ] {
        let error = refused(kind).unwrap_err();
        assert!(matches!(&error, KernelError::Scales { name, .. } if name == "w"), "{kind:?}: {error}");
    }
}

#[test]
fn scales_that_are_not_finite_are_refused() {
    let refused = |matrix: &StoredMatrix| matrix.tensor().check().unwrap_err();
    let bad = KernelError::NotFinite { name: "w".to_owned() };
    for kind in KINDS {
        // Infinity and NaN of either format.
        let bits = if kind.scales == DType::Bf16 { [0x7f80u16, 0xff81] } else { [0xfc00, 0x7c01] };
        for bits in bits {
            let good = StoredMatrix::drawn(kind, [4, 96], 1);
            let mut matrix = good.clone();
            let scales = matrix.super_scales.as_mut().unwrap_or(&mut matrix.scales);
            let last = scales.len() - 2;
            scales[last..].copy_from_slice(&bits.to_le_bytes());
            assert_eq!(refused(&matrix), bad, "{kind:?}");
            let mut matrix = good;
            if let Some(minimums) = &mut matrix.minimums {
                // With super-blocks more than six bits; else infinity or NaN.
                minimums[..2].copy_from_slice(&bits.to_le_bytes());
                assert_eq!(refused(&matrix), bad, "{kind:?}");
            }
        }
    }
}

#[test]
fn short_minimums_are_refused() {
    let matrix = StoredMatrix::drawn(KINDS[7], [4, 96], 1);
    let tensor = PackedTensor { minimums: matrix.minimums.as_deref().map(|all| &all[2..]), ..matrix.tensor() };
    assert_eq!(tensor.check(), Err(KernelError::Bytes { name: "w".to_owned(), expected: 24, found: 22 }));
    let matrix = StoredMatrix::drawn(KINDS[14], [4, 96], 1);
    let tensor = PackedTensor { super_scales: matrix.super_scales.as_deref().map(|all| &all[2..]), ..matrix.tensor() };
    assert_eq!(tensor.check(), Err(KernelError::Bytes { name: "w".to_owned(), expected: 16, found: 14 }));
}

/// A whole panel takes the bits of its format: no scale is stored twice.
#[test]
fn weights_are_no_larger_than_their_files() {
    use repartee_kernels::cpu::quantised::QuantisedWeight;
    for kind in KINDS {
        let matrix = StoredMatrix::drawn(kind, [32, 1024], 1);
        // A group of 96 has scales for each 32.
        let repeated = if kind.group == Some(96) { 32 * (1024 / 32 - 1024usize.div_ceil(96)) * 2 } else { 0 };
        let weight = QuantisedWeight::packed(None, 1024, &[matrix.tensor()]);
        assert_eq!(weight.bytes(), matrix.bytes() + repeated, "{kind:?}");
    }
}
