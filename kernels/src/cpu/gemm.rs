//! Matrix product for linear layers and convolutions.
//!
//! A weight is packed once (`panels`). Each output is a sum over `k` in ascending order in one accumulator, for any number of rows; the
//! tile size only decides how many such sums run together. So a row's result does not depend on its batch.
//!
//! A large product is split over the threads of a pool, by rows or by panels. The split does not change a result either.
//!
//! A row need not be contiguous: it is `taps` stretches of `length` numbers, `stride` apart. With one tap this is a linear layer; with
//! several, over a stream `[time, channels]`, a (dilated) convolution without any copying.

use std::iter;

use super::groups::{self, QuantisedGroup};
pub use super::panels::PackedWeight;
use super::panels::Panels;
use super::pool::Pool;
use super::product::{self, Product};
use super::simd::SimdLevel;
pub use super::strided_rows::StridedRows;

/// Computes `out[r, c] = bias[c] + sum over k of x[r, k] * weight[c, k]`; `out` is `[x.count, weight.columns]`.
pub fn multiply(level: SimdLevel, x: StridedRows<'_>, weight: &PackedWeight, bias: Option<&[f32]>, out: &mut [f32]) {
    multiply_on(None, level, x, weight, bias, &mut Vec::new(), out);
}

/// Does the same as [`multiply`] on the threads of a pool if the product is large, with equal bits. `groups` is scratch for the quantised
/// rows of an integer weight.
pub fn multiply_on(
    pool: Option<&Pool>,
    level: SimdLevel,
    x: StridedRows<'_>,
    weight: &PackedWeight,
    bias: Option<&[f32]>,
    groups: &mut Vec<QuantisedGroup>,
    out: &mut [f32],
) {
    if x.count == 0 {
        return;
    }
    let product = match &weight.panels {
        Panels::Integers(integers) => {
            assert!(x.is_within(weight.k), "rows and weight differ, or rows reach beyond their data");
            groups::quantise(level, x, groups);
            Product::of_integers(pool, level, (groups, x.count), integers, bias, out)
        }
        Panels::F32(_) | Panels::Bf16(_) => Product::of_floats(pool, level, x, weight, bias, out),
    };
    product::run(pool, iter::once(&product));
}
