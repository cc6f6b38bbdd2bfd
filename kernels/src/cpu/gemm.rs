//! The matrix product behind linear layers and convolutions.
//!
//! A weight is packed once into panels of [`LANES`] output columns: `[panel][k][LANES]`. One output is the sum over `k`
//! in ascending order in a single accumulator, whatever the number of rows beside it: the tile that computes it
//! decides only how many such sums run side by side. That is what makes a row's result independent of its batch.
//!
//! A row need not be contiguous: it is `taps` stretches of `length` numbers that lie `stride` apart. With one tap this
//! is a linear layer; with several, over a stream `[time, channels]`, a (dilated) convolution without any copying.

use super::simd::{Lanes, Level, Pair, Plain, Wide};

/// Output columns in a panel.
pub const LANES: usize = 16;

/// A weight `[columns, k]`, packed for [`multiply`].
#[derive(Debug, Clone)]
pub struct Packed {
    /// Output columns.
    pub columns: usize,
    /// Numbers that make one output.
    pub k: usize,
    /// `[panel][k][LANES]`, the last panel filled up with zeros.
    panels: Vec<f32>,
}

impl Packed {
    /// Packs the weight whose number for (output column, k) is `at(column, k)`.
    pub fn new(columns: usize, k: usize, at: impl Fn(usize, usize) -> f32) -> Self {
        let count = columns.div_ceil(LANES);
        let mut panels = vec![0.0; count * k * LANES];
        for panel in 0..count {
            for lane in 0..LANES.min(columns - panel * LANES) {
                for i in 0..k {
                    panels[(panel * k + i) * LANES + lane] = at(panel * LANES + lane, i);
                }
            }
        }
        Self { columns, k, panels }
    }

    fn panel_count(&self) -> usize {
        self.columns.div_ceil(LANES)
    }
}

/// Where the rows of the left operand lie.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Offset of row `r` is `first + r * step`.
    pub first: usize,
    /// See `first`.
    pub step: usize,
    /// How many rows.
    pub count: usize,
    /// Stretches in a row.
    pub taps: usize,
    /// Numbers in a stretch.
    pub length: usize,
    /// Distance between the starts of stretches.
    pub stride: usize,
}

impl<'a> Rows<'a> {
    /// Plain rows of a matrix `[count, k]`.
    pub fn dense(data: &'a [f32], k: usize) -> Self {
        let count = data.len().checked_div(k).unwrap_or(0);
        Self { data, first: 0, step: k, count, taps: 1, length: k, stride: 0 }
    }
}

/// `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]`; `out` is `[x.count, weight.columns]`.
pub fn multiply(level: Level, x: Rows<'_>, weight: &Packed, bias: Option<&[f32]>, out: &mut [f32]) {
    if x.count == 0 {
        return;
    }
    // The kernels read and write through raw pointers: these bounds are what they rely on.
    assert_eq!(x.taps * x.length, weight.k, "row length and weight differ");
    let last = x.first + (x.count - 1) * x.step + (x.taps.max(1) - 1) * x.stride + x.length;
    assert!(last <= x.data.len(), "rows reach beyond their data");
    assert_eq!(out.len(), x.count * weight.columns, "output has the wrong size");
    assert!(bias.is_none_or(|b| b.len() == weight.columns), "bias has the wrong size");
    match level {
        // SAFETY: `Level::detect` asked the processor; bounds were checked above.
        Level::Avx512 => unsafe { avx512(x, weight, bias, out) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2(x, weight, bias, out) },
        // SAFETY: no special instruction; bounds were checked above.
        Level::Baseline => unsafe { tiles::<Plain, 1, 2, 1, 2, 4>(x, weight, bias, out) },
    }
}

#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
unsafe fn avx512(x: Rows<'_>, weight: &Packed, bias: Option<&[f32]>, out: &mut [f32]) {
    unsafe { tiles::<Wide, 4, 8, 4, 8, 8>(x, weight, bias, out) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(x: Rows<'_>, weight: &Packed, bias: Option<&[f32]>, out: &mut [f32]) {
    unsafe { tiles::<Pair, 1, 6, 1, 2, 4>(x, weight, bias, out) }
}

/// Cuts the output into tiles that fit the registers: `P4` panels at a time for four rows, `P2` for two, `P1` for one;
/// `N` rows of a single panel at a time where few columns are left.
///
/// # Safety
/// The processor has `L`'s instructions; the bounds that [`multiply`] asserts hold.
#[inline(always)]
unsafe fn tiles<L: Lanes, const P4: usize, const N: usize, const P3: usize, const P2: usize, const P1: usize>(
    x: Rows<'_>,
    weight: &Packed,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let mut row = 0;
    unsafe {
        // A narrow weight has too few panels to fill the registers, so take more rows.
        if weight.panel_count() < P4 {
            while x.count - row >= N {
                panels::<L, N, 1>(x, weight, bias, out, row);
                row += N;
            }
        }
        while x.count - row >= 4 {
            panels::<L, 4, P4>(x, weight, bias, out, row);
            row += 4;
        }
        match x.count - row {
            0 => {}
            1 => panels::<L, 1, P1>(x, weight, bias, out, row),
            2 => panels::<L, 2, P2>(x, weight, bias, out, row),
            _ => panels::<L, 3, P3>(x, weight, bias, out, row),
        }
    }
}

/// All panels for rows `row .. row + R`, `P` at a time.
///
/// # Safety
/// As [`tiles`], and `row + R <= x.count`.
#[inline(always)]
unsafe fn panels<L: Lanes, const R: usize, const P: usize>(
    x: Rows<'_>,
    weight: &Packed,
    bias: Option<&[f32]>,
    out: &mut [f32],
    row: usize,
) {
    let count = weight.panel_count();
    let mut panel = 0;
    unsafe {
        while count - panel >= P {
            tile::<L, R, P>(x, weight, bias, out, row, panel);
            panel += P;
        }
        while panel < count {
            tile::<L, R, 1>(x, weight, bias, out, row, panel);
            panel += 1;
        }
    }
}

/// `R` rows times `P` panels.
///
/// # Safety
/// As [`panels`], and `panel + P <= weight.panel_count()`.
#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize, const P: usize>(
    x: Rows<'_>,
    weight: &Packed,
    bias: Option<&[f32]>,
    out: &mut [f32],
    row: usize,
    panel: usize,
) {
    unsafe {
        let mut sums = [[L::zero(); P]; R];
        let panel_size = weight.k * LANES;
        let mut w = weight.panels.as_ptr().add(panel * panel_size);
        let base = x.data.as_ptr().add(x.first + row * x.step);
        for tap in 0..x.taps {
            let from = base.add(tap * x.stride);
            for i in 0..x.length {
                let mut columns = [L::zero(); P];
                for (p, column) in columns.iter_mut().enumerate() {
                    *column = L::load(w.add(p * panel_size));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let value = L::splat(*from.add(r * x.step + i));
                    for (sum, &column) in sums.iter_mut().zip(&columns) {
                        *sum = sum.multiply_add(value, column);
                    }
                }
                w = w.add(LANES);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (p, &sum) in sums.iter().enumerate() {
                let column = (panel + p) * LANES;
                let width = LANES.min(weight.columns - column);
                let to = out.as_mut_ptr().add((row + r) * weight.columns + column);
                if width == LANES && bias.is_none() {
                    sum.store(to);
                    continue;
                }
                let mut lanes = [0.0f32; LANES];
                sum.store(lanes.as_mut_ptr());
                for (lane, &value) in lanes.iter().take(width).enumerate() {
                    *to.add(lane) = value + bias.map_or(0.0, |b| *b.get_unchecked(column + lane));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        (0..n).map(|i| crate::random::uniform(seed, i as u64, 0, 0) * 2.0 - 1.0).collect()
    }

    fn naive(x: &[f32], rows: usize, k: usize, w: &[f32], columns: usize) -> Vec<f64> {
        let mut out = vec![0.0; rows * columns];
        for r in 0..rows {
            for c in 0..columns {
                out[r * columns + c] = (0..k).map(|i| f64::from(x[r * k + i]) * f64::from(w[c * k + i])).sum();
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn equals_the_plain_sum(rows in 1usize..12, k in 1usize..70, columns in 1usize..150, seed in 0u64..1000) {
            let (x, w) = (numbers(rows * k, seed), numbers(columns * k, seed + 1));
            let packed = Packed::new(columns, k, |c, i| w[c * k + i]);
            let mut out = vec![0.0; rows * columns];
            for level in [Level::Baseline, Level::Avx2, Level::Avx512] {
                multiply(level.min(Level::detect()), Rows::dense(&x, k), &packed, None, &mut out);
                for (a, b) in out.iter().zip(naive(&x, rows, k, &w, columns)) {
                    prop_assert!((f64::from(*a) - b).abs() < 1e-4, "{a} {b}");
                }
            }
        }

        #[test]
        fn a_row_does_not_depend_on_the_rows_beside_it(rows in 1usize..=128, columns in 1usize..200, seed in 0u64..1000) {
            let k = 37;
            let (x, w, bias) = (numbers(rows * k, seed), numbers(columns * k, seed + 1), numbers(columns, seed + 2));
            let packed = Packed::new(columns, k, |c, i| w[c * k + i]);
            let mut whole = vec![0.0; rows * columns];
            multiply(Level::detect(), Rows::dense(&x, k), &packed, Some(&bias), &mut whole);
            let mut from = 0;
            let mut cut = seed as usize;
            while from < rows {
                cut = (cut * 31 + 7) % 9;
                let n = (cut + 1).min(rows - from);
                let mut part = vec![0.0; n * columns];
                let stretch = &x[from * k..(from + n) * k];
                multiply(Level::detect(), Rows::dense(stretch, k), &packed, Some(&bias), &mut part);
                prop_assert_eq!(&part[..], &whole[from * columns..(from + n) * columns]);
                from += n;
            }
        }
    }
}
