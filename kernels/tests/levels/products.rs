//! Matrix product with floating-point weights.

use proptest::prelude::*;
use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply};
use repartee_kernels::cpu::simd::SimdLevel;

use crate::{check, numbers};

fn product(
    level: SimdLevel,
    x: &[f32],
    k: usize,
    weight: &PackedWeight,
    columns: usize,
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let mut out = vec![0.0; x.len() / k * columns];
    multiply(level, StridedRows::dense(x, k), weight, bias, &mut out);
    out
}

pub fn product_equals_the_plain_sum(level: SimdLevel) {
    check(64, &(1usize..12, 1usize..70, 1usize..150, 0u64..1000), |(rows, k, columns, seed)| {
        let (x, w) = (numbers(rows * k, 1.0, seed), numbers(columns * k, 1.0, seed + 1));
        let out = product(level, &x, k, &PackedWeight::new(columns, k, |c, i| w[c * k + i]), columns, None);
        for (at, &found) in out.iter().enumerate() {
            let (r, c) = (at / columns, at % columns);
            let sum: f64 = (0..k).map(|i| f64::from(x[r * k + i]) * f64::from(w[c * k + i])).sum();
            prop_assert!((f64::from(found) - sum).abs() < 1e-4, "{found} {sum}");
        }
        Ok(())
    });
}

pub fn bfloat16_equals_its_widened_numbers(level: SimdLevel) {
    check(64, &(1usize..12, 1usize..150, 0u64..1000), |(rows, columns, seed)| {
        let k = 29;
        let (x, w) = (numbers(rows * k, 1.0, seed), numbers(columns * k, 1.0, seed + 1));
        let bits = |c: usize, i: usize| (w[c * k + i].to_bits() >> 16) as u16;
        let wide = PackedWeight::new(columns, k, |c, i| f32::from_bits(u32::from(bits(c, i)) << 16));
        let narrow = PackedWeight::new_bf16(columns, k, bits);
        let [wide, narrow] = [wide, narrow].map(|weight| product(level, &x, k, &weight, columns, None));
        prop_assert_eq!(wide, narrow);
        Ok(())
    });
}

pub fn row_is_independent_of_its_neighbours(level: SimdLevel) {
    check(64, &(1usize..=128, 1usize..200, 0u64..1000), |(rows, columns, seed)| {
        let k = 37;
        let (x, w) = (numbers(rows * k, 1.0, seed), numbers(columns * k, 1.0, seed + 1));
        let bias = numbers(columns, 1.0, seed + 2);
        let weight = PackedWeight::new(columns, k, |c, i| w[c * k + i]);
        let whole = product(level, &x, k, &weight, columns, Some(&bias));
        let mut from = 0;
        let mut cut = seed as usize;
        while from < rows {
            cut = (cut * 31 + 7) % 9;
            let n = (cut + 1).min(rows - from);
            let part = product(level, &x[from * k..(from + n) * k], k, &weight, columns, Some(&bias));
            prop_assert_eq!(&part[..], &whole[from * columns..(from + n) * columns]);
            from += n;
        }
        Ok(())
    });
}

/// A single row reads a weight of this size as a stream, with other tiles than several rows.
pub fn streamed_row_is_independent_of_its_neighbours(level: SimdLevel) {
    const ROWS: usize = 3;
    let (k, columns) = (1_400, 809);
    let (x, w) = (numbers(ROWS * k, 1.0, 1), numbers(columns * k, 1.0, 2));
    let bf16 = PackedWeight::new_bf16(columns, k, |c, i| (w[c * k + i].to_bits() >> 16) as u16);
    for weight in [PackedWeight::new(columns, k, |c, i| w[c * k + i]), bf16] {
        assert!(weight.bytes() >= 2 << 20, "too small to be streamed");
        let whole = product(level, &x, k, &weight, columns, None);
        for (row, whole) in x.chunks_exact(k).zip(whole.chunks_exact(columns)) {
            assert!(product(level, row, k, &weight, columns, None) == whole);
        }
    }
}
