//! Integer matrices of a checkpoint, against their dequantised numbers.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use proptest::prelude::*;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::random::uniform;
use repartee_kernels::{
    DType, KernelError, Ops, PackedTensor, Packing, RawTensor, WeightFormat, WeightLayout, WeightPart,
};
use repartee_kernels_testkit::host::HostOps;

/// Bytes of a matrix of random integers and scales.
struct Stored {
    shape: [usize; 2],
    packing: Packing,
    integers: Vec<u8>,
    scales: Vec<u8>,
    group: usize,
}

impl Stored {
    fn new(packing: Packing, [out, inputs]: [usize; 2], group: usize, seed: u64) -> Self {
        let row = packing.row_bytes(inputs);
        let mut integers = vec![0; out * row];
        for (number, bytes) in integers.chunks_mut(row).enumerate() {
            for input in 0..inputs {
                let half = f32::from(1u8 << (packing.bits() - 1));
                let even = uniform(seed, (number * inputs + input) as u64, 0, 0);
                packing.put(bytes, input, ((2.0 * even - 1.0) * half).floor() as i8);
            }
        }
        let count = out * inputs.div_ceil(group);
        let scale = |i: usize| half::bf16::from_f32(0.001 + 0.1 * uniform(seed, i as u64, 1, 0)).to_le_bytes();
        Self { shape: [out, inputs], packing, integers, scales: (0..count).flat_map(scale).collect(), group }
    }

    fn tensor(&self) -> PackedTensor<'_> {
        let Self { shape, packing, integers, scales, group } = self;
        PackedTensor { name: "w", shape, packing: *packing, integers, scales, group: *group }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A product equals that of the dequantised numbers but for the quantisation of the rows: half a step each.
    #[test]
    fn products_are_those_of_the_numbers(
        packing in prop_oneof![Just(Packing::Four), Just(Packing::Eight), Just(Packing::Bytes)],
        group in prop_oneof![Just(Some(32)), Just(Some(64)), Just(Some(128)), Just(None)],
        (out, second, inputs) in (1usize..40, 1usize..20, 1usize..5),
        ragged in 0usize..32,
        rows in 1usize..6,
        seed: u64,
    ) {
        // Whole groups, or rows of any length with one scale.
        let inputs = group.map_or(inputs * 32 + ragged, |group| group * inputs);
        let group = group.unwrap_or(inputs);
        let stored = [Stored::new(packing, [out, inputs], group, seed), Stored::new(packing, [second, inputs], group, !seed)];
        let x: Vec<f32> = (0..rows * inputs).map(|i| uniform(seed, i as u64, 2, 0) - 0.5).collect();
        let numbers: Vec<f32> = stored.iter().flat_map(|stored| stored.tensor().numbers()).collect();
        let mut all = Vec::new();
        for level in SimdLevel::available() {
            let ops = Cpu::with_level(level);
            let parts = stored.each_ref().map(|stored| WeightPart::Packed(stored.tensor()));
            let weight = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &parts).unwrap();
            all.push(ops.read(&ops.linear(&ops.tensor(x.clone(), inputs), &weight, None)));
        }
        prop_assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "levels differ");
        for (y, x) in all[0].chunks(out + second).zip(x.chunks(inputs)) {
            for (y, numbers) in y.iter().zip(numbers.chunks(inputs)) {
                let exact: f64 = x.iter().zip(numbers).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                let step = |x: &[f32]| f64::from(x.iter().fold(0.0f32, |most, x| most.max(x.abs()))) / 127.0;
                let lost: f64 = x
                    .chunks(32)
                    .zip(numbers.chunks(32))
                    .map(|(x, w)| 0.501 * step(x) * w.iter().map(|&w| f64::from(w.abs())).sum::<f64>())
                    .sum();
                let size: f64 = x.iter().zip(numbers).map(|(&x, &w)| f64::from((x * w).abs())).sum();
                prop_assert!((f64::from(*y) - exact).abs() <= lost + 1e-5 * size + 1e-6, "{} and {}", y, exact);
            }
        }
    }
}

#[test]
fn what_cannot_be_packed_is_refused_by_name() {
    let ops = Cpu::default();
    let four = Stored::new(Packing::Four, [4, 64], 32, 1);
    let eight = Stored::new(Packing::Eight, [4, 64], 32, 1);
    let (four, eight) = (WeightPart::Packed(four.tensor()), WeightPart::Packed(eight.tensor()));
    let bytes = vec![0; 4 * 64 * 4];
    let float = WeightPart::Stored(RawTensor { name: "f", bytes: &bytes, dtype: DType::F32, shape: &[4, 64] });
    let refused =
        |layout, parts: &[WeightPart<'_>]| ops.weight_from_parts(layout, WeightFormat::Float, parts).unwrap_err();
    for error in [
        refused(WeightLayout::Table, &[four]),
        refused(WeightLayout::Linear, &[four, eight]),
        refused(WeightLayout::Linear, &[float, four]),
        refused(WeightLayout::Experts { per_expert: 1 }, &[four, float]),
    ] {
        assert!(matches!(error, KernelError::Packed { ref name, .. } if name == "w"), "{error}");
    }
    assert!(
        ops.weight_from_parts(WeightLayout::Experts { per_expert: 2 }, WeightFormat::Int4, &[eight, eight]).is_ok()
    );
    let odd = Stored::new(Packing::Four, [4, 96], 48, 1);
    let error = refused(WeightLayout::Linear, &[WeightPart::Packed(odd.tensor())]);
    assert_eq!(error, KernelError::Group { name: "w".to_owned(), group: 48 });
    let WeightPart::Packed(mut short) = four else { unreachable!() };
    short.scales = &short.scales[2..];
    let error = refused(WeightLayout::Linear, &[WeightPart::Packed(short)]);
    assert_eq!(error, KernelError::Bytes { name: "w".to_owned(), expected: 16, found: 14 });
}
