//! Products with integer weights.

use proptest::prelude::*;
use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply};
use repartee_kernels::cpu::groups::{GROUP, quantise};
use repartee_kernels::cpu::quantised::{IntegerFormat, NotFinite, QuantisedWeight};
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::{DType, PackedTensor, Packing};
use repartee_kernels_testkit::stored::{KINDS, StoredKind, StoredMatrix};

use crate::{check, numbers};

const ALL: [IntegerFormat; 2] = [IntegerFormat::Eight, IntegerFormat::Four];

fn weight(bits: IntegerFormat, w: &[f32], k: usize) -> QuantisedWeight {
    let mut rows = w.chunks_exact(k);
    QuantisedWeight::new(bits, w.len() / k, k, |row| row.copy_from_slice(rows.next().unwrap())).unwrap()
}

/// Repacks stored integers.
fn stored(kind: StoredKind, columns: usize, k: usize, seed: u64) -> QuantisedWeight {
    QuantisedWeight::packed(None, k, &[StoredMatrix::drawn(kind, [columns, k], seed).tensor()])
}

/// A weight of each kind: quantised here, and stored.
fn weights(w: &[f32], k: usize, seed: u64) -> Vec<QuantisedWeight> {
    let quantised = ALL.map(|bits| weight(bits, w, k)).into_iter();
    quantised.chain(KINDS.map(|kind| stored(kind, w.len() / k, k, seed))).collect()
}

fn product(level: SimdLevel, x: &[f32], k: usize, weight: &QuantisedWeight, bias: Option<&[f32]>) -> Vec<f32> {
    product_of_joined(level, x, k, std::slice::from_ref(weight), bias)
}

fn product_of_joined(
    level: SimdLevel,
    x: &[f32],
    k: usize,
    weights: &[QuantisedWeight],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let weight = PackedWeight::joined(weights.to_vec(), k);
    let columns: usize = weights.iter().map(QuantisedWeight::columns).sum();
    let mut out = vec![f32::NAN; x.len() / k * columns];
    multiply(level, StridedRows::dense(x, k), &weight, bias, &mut out);
    out
}

/// Rows, inputs and columns, most with a partial last group and last panel.
fn shapes() -> impl Strategy<Value = (usize, usize, usize, u64)> {
    (1usize..14, 1usize..150, 1usize..100, 0u64..1000)
}

/// Weights or activations with some small groups, some zero groups and some outliers.
fn uneven(count: usize, seed: u64) -> Vec<f32> {
    let sizes = [1.0, 0.0, 1e-4, 30.0, 1.0];
    let mut made = numbers(count, 1.0, seed);
    made.iter_mut()
        .enumerate()
        .for_each(|(i, number)| *number *= sizes[i / 20 % 5] * if i % 37 == 0 { 9.0 } else { 1.0 });
    made
}

/// The product equals that of the dequantised numbers but for rounding, and that of the original numbers but for half a scale each.
pub fn integers_stand_for_their_numbers(level: SimdLevel) {
    check(96, &shapes(), |(rows, k, columns, seed)| {
        let (x, w) = (uneven(rows * k, seed), uneven(columns * k, seed + 1));
        let mut groups = Vec::new();
        quantise(level, StridedRows::dense(&x, k), &mut groups);
        for bits in ALL {
            let weight = weight(bits, &w, k);
            for (at, found) in product(level, &x, k, &weight, None).into_iter().enumerate() {
                let (r, c) = (at / columns, at % columns);
                let (mut dequantised, mut size, mut exact, mut off) = (0.0, 0.0, 0.0, 0.0);
                for i in 0..k {
                    let group = &groups[r * k.div_ceil(GROUP) + i / GROUP];
                    let (a, b) = (f64::from(x[r * k + i]), f64::from(w[c * k + i]));
                    let (sa, sb) = (f64::from(group.scale) * 0.5001, f64::from(weight.scale(c, i)) * 0.5001);
                    let qa = f64::from(group.scale) * f64::from(group.numbers[i % GROUP]);
                    let qb = f64::from(weight.number(c, i));
                    prop_assert!((qb - b).abs() <= sb, "{qb} for {b}, scale {sb}");
                    dequantised += qa * qb;
                    size += (qa * qb).abs();
                    exact += a * b;
                    off += a.abs() * sb + b.abs() * sa + sa * sb;
                }
                // Three roundings of each group's product, and one of each sum.
                let rounding = (k.div_ceil(GROUP) + 3) as f64 * f64::from(f32::EPSILON) * size + 1e-30;
                prop_assert!((f64::from(found) - dequantised).abs() <= rounding, "{found} {dequantised}");
                prop_assert!((f64::from(found) - exact).abs() <= off + rounding, "{found} {exact}");
            }
        }
        Ok(())
    });
}

/// The product with stored integers equals that of their numbers but for rounding.
pub fn stored_integers_stand_for_their_numbers(level: SimdLevel) {
    check(48, &shapes(), |(rows, k, columns, seed)| {
        let x = uneven(rows * k, seed);
        let mut groups = Vec::new();
        quantise(level, StridedRows::dense(&x, k), &mut groups);
        for kind in KINDS {
            let matrix = StoredMatrix::drawn(kind, [columns, k], seed);
            prop_assert_eq!(matrix.tensor().check(), Ok(()));
            let weight = QuantisedWeight::packed(None, k, &[matrix.tensor()]);
            let numbers = matrix.tensor().numbers();
            for (at, found) in product(level, &x, k, &weight, None).into_iter().enumerate() {
                let (r, c) = (at / columns, at % columns);
                let (mut sum, mut size) = (0.0, 0.0);
                for i in 0..k {
                    let group = &groups[r * k.div_ceil(GROUP) + i / GROUP];
                    let x = f64::from(group.scale) * f64::from(group.numbers[i % GROUP]);
                    let number = numbers[c * k + i];
                    prop_assert_eq!(weight.number(c, i).to_bits(), number.to_bits());
                    let minimum = weight.minimum(c, i);
                    sum += x * f64::from(number);
                    // A minimum and its integer's part may cancel.
                    size += x.abs() * f64::from((number - minimum).abs() + minimum.abs());
                }
                let rounding = (k.div_ceil(GROUP) + 6) as f64 * f64::from(f32::EPSILON) * size + 1e-30;
                prop_assert!((f64::from(found) - sum).abs() <= rounding, "{:?}: {} {}", kind, found, sum);
            }
        }
        Ok(())
    });
}

/// Weights of different kinds side by side give the bits of each alone.
pub fn joined_kinds_have_the_bits_of_each(level: SimdLevel) {
    check(48, &shapes(), |(rows, k, columns, seed)| {
        let x = uneven(rows * k, seed);
        let part = |i: u64| stored(KINDS[(seed + 5 * i) as usize % KINDS.len()], columns + i as usize, k, seed + i);
        let weights = [0, 1, 2].map(part);
        let all: usize = weights.iter().map(QuantisedWeight::columns).sum();
        let bias = numbers(all, 1.0, seed + 3);
        let joined = product_of_joined(level, &x, k, &weights, Some(&bias));
        let mut first = 0;
        for weight in &weights {
            let end = first + weight.columns();
            let alone = product(level, &x, k, weight, Some(&bias[first..end]));
            for (alone, joined) in alone.chunks(weight.columns()).zip(joined.chunks(all)) {
                prop_assert_eq!(alone, &joined[first..end]);
            }
            first = end;
        }
        Ok(())
    });
}

/// Every finite number of half precision is widened exactly, as a scale and as a minimum.
pub fn half_precision_is_widened_exactly(level: SimdLevel) {
    let halves: Vec<u16> = (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00).collect();
    let scales: Vec<u8> = halves.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let (zeros, shape) = (vec![0; scales.len()], [halves.len(), GROUP]);
    // A row whose numbers are their own integers: 127, then zeros. Each weight is 1, or 0 beside minimums.
    let mut x = [0.0; GROUP];
    x[0] = 127.0;
    let (ones, nothing) = (vec![1; halves.len() * GROUP], vec![0; halves.len() * GROUP]);
    for (integers, scales, minimums) in
        [(&ones, &scales, None), (&ones, &scales, Some(&zeros[..])), (&nothing, &zeros, Some(&scales[..]))]
    {
        let tensor = PackedTensor {
            scale_format: DType::F16,
            minimums,
            ..PackedTensor::symmetric("w", &shape, Packing::Bytes, integers, scales, GROUP)
        };
        let found = product(level, &x, GROUP, &QuantisedWeight::packed(None, GROUP, &[tensor]), None);
        for (&bits, found) in halves.iter().zip(found) {
            assert_eq!(found, 127.0 * half::f16::from_bits(bits).to_f32(), "{bits:#x}");
        }
    }
}

pub fn integer_products_have_the_plain_bits(level: SimdLevel) {
    check(96, &shapes(), |(rows, k, columns, seed)| {
        let (mut x, w) = (uneven(rows * k, seed), uneven(columns * k, seed + 1));
        let bias = (seed % 2 == 0).then(|| numbers(columns, 1.0, seed + 2));
        x[seed as usize % (rows * k)] *= 1e30;
        for weight in weights(&w, k, seed) {
            let [plain, found] =
                [SimdLevel::BASELINE, level].map(|level| product(level, &x, k, &weight, bias.as_deref()));
            let bits = |out: &[f32]| out.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&plain), bits(&found));
        }
        Ok(())
    });
}

pub fn integer_rows_are_independent(level: SimdLevel) {
    check(48, &(2usize..=70, 1usize..90, 1usize..70, 0u64..1000), |(rows, k, columns, seed)| {
        let (x, w) = (uneven(rows * k, seed), uneven(columns * k, seed + 1));
        for weight in weights(&w, k, seed) {
            let whole = product(level, &x, k, &weight, None);
            let (mut from, mut cut) = (0, seed as usize);
            while from < rows {
                cut = (cut * 31 + 7) % 9;
                let n = (cut + 1).min(rows - from);
                let part = product(level, &x[from * k..(from + n) * k], k, &weight, None);
                prop_assert_eq!(&part[..], &whole[from * columns..(from + n) * columns]);
                from += n;
            }
        }
        Ok(())
    });
}

/// Extreme integers, the first to overflow or saturate sixteen bits.
pub fn greatest_integers_do_not_overflow(level: SimdLevel) {
    let (k, columns) = (4 * GROUP, 19);
    for bits in ALL {
        for signs in [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]] {
            let weight = weight(bits, &vec![signs[0]; columns * k], k);
            let out = product(level, &vec![signs[1]; 5 * k], k, &weight, None);
            let expected = weight.number(0, 0) * signs[1] * k as f32;
            assert!((weight.number(0, 0) - signs[0]).abs() < 0.07);
            assert!(out.iter().all(|found| (found - expected).abs() < 1e-4), "{bits:?} {signs:?}: {expected} {out:?}");
        }
    }
}

/// The greatest integers of stored kinds, in whole groups and in halves.
pub fn greatest_stored_integers_do_not_overflow(level: SimdLevel) {
    let (k, columns) = (4 * GROUP, 19);
    for kind in KINDS {
        let mut matrix = StoredMatrix::drawn(kind, [columns, k], 1);
        // Half precision and bfloat16 have these bits for 1 and for 0.5.
        let one: u16 = if kind.scales == DType::Bf16 { 0x3f80 } else { 0x3c00 };
        // With super-blocks the greatest scale and minimum of six bits, by 1.
        let ones = if let Some(pairs) = &mut matrix.super_scales {
            matrix.scales.fill(63);
            pairs
        } else {
            &mut matrix.scales
        };
        ones.as_chunks_mut().0.iter_mut().for_each(|scale| *scale = one.to_le_bytes());
        if let Some(minimums) = &mut matrix.minimums
            && kind.super_blocks
        {
            minimums.fill(63);
        } else if let Some(minimums) = &mut matrix.minimums {
            minimums.as_chunks_mut().0.iter_mut().for_each(|minimum| *minimum = 0x3800u16.to_le_bytes());
        }
        for integer in if kind.packing == Packing::Four { [-8, 7] } else { [i8::MIN, i8::MAX] } {
            matrix.integers.fill(0);
            for row in matrix.integers.chunks_mut(kind.packing.row_bytes(k)) {
                (0..k).for_each(|input| kind.packing.put(row, input, integer));
            }
            let weight = QuantisedWeight::packed(None, k, &[matrix.tensor()]);
            for sign in [1.0, -1.0] {
                let out = product(level, &vec![sign; 5 * k], k, &weight, None);
                let expected = matrix.tensor().numbers()[0] * sign * k as f32;
                assert!(out.iter().all(|found| (found / expected - 1.0).abs() < 1e-5), "{kind:?}: {expected} {out:?}");
            }
        }
    }
}

/// A row with NaN or infinity gives NaN, and its neighbouring rows do not change.
pub fn rows_that_are_not_finite_give_nan(level: SimdLevel) {
    let (rows, k, columns) = (7, 70, 37);
    let w = numbers(columns * k, 1.0, 1);
    let good = numbers(rows * k, 1.0, 2);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = good.clone();
        x[2 * k + 69] = bad;
        x[5 * k] = bad;
        for weight in weights(&w, k, 3) {
            let [good, found] = [&good, &x].map(|x| product(level, x, k, &weight, None));
            for (r, (good, found)) in good.chunks(columns).zip(found.chunks(columns)).enumerate() {
                if r == 2 || r == 5 {
                    let kind = (weight.bits(), weight.kind());
                    assert!(found.iter().all(|number| number.is_nan()), "{kind:?}: {found:?}");
                } else {
                    assert_eq!(good, found);
                }
            }
        }
    }
}

/// A weight with NaN or infinity is refused at its creation.
pub fn weights_that_are_not_finite_are_refused(_level: SimdLevel) {
    for bits in ALL {
        for bad in [f32::NAN, f32::INFINITY] {
            let row = |row: &mut [f32]| {
                row.fill(1.0);
                row[40] = bad;
            };
            assert_eq!(QuantisedWeight::new(bits, 3, 41, row).unwrap_err(), NotFinite);
        }
        let zeros = weight(bits, &[0.0; 80], 40);
        assert_eq!(product(SimdLevel::BASELINE, &[1.0; 40], 40, &zeros, None), [0.0; 2]);
    }
}
