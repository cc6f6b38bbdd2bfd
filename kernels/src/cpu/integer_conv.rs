//! Centred convolution with a quantised weight.
//!
//! Each row is quantised once, in groups of its channels, with the scales of its own numbers; a result reads the groups of as many
//! rows as there are taps. Rows that are a dilation apart lie together, so that the groups of a result are one stretch.

use std::ops::Range;

use super::device::Cpu;
use super::groups::{self, QuantisedGroup};
use super::product::{self, Product};
use super::quantised::QuantisedWeight;
use super::strided_rows::StridedRows;

/// Quantised weight of a convolution, its taps and its dilation.
pub(super) type IntegerTaps<'a> = (&'a QuantisedWeight, usize, usize);

/// Computes a range of rows over one segment `x` of rows of `channels` numbers, with zeros beyond its ends.
pub(super) fn some_rows(
    cpu: &Cpu,
    (x, channels): (&[f32], usize),
    (weight, taps, dilation): IntegerTaps<'_>,
    bias: &[f32],
    rows: Range<usize>,
    out: &mut [f32],
) {
    let (outputs, beside, length) = (bias.len(), taps / 2, x.len() / channels);
    let a_row = weight.groups() / taps;
    assert_eq!((channels.div_ceil(groups::GROUP), weight.columns()), (a_row, outputs), "channels differ");
    let mut quantised = cpu.groups.take();
    let mut scratch = cpu.scratch.take();
    for phase in 0..dilation.min(rows.len()) {
        let (from, count) = (rows.start + phase, (rows.len() - phase).div_ceil(dilation));
        // Rows before and after that the segment has; the others are zeros.
        let before = beside.min(from / dilation);
        let after = beside.min((length - 1 - (from + (count - 1) * dilation)) / dilation);
        let (first, step) = ((from - before * dilation) * channels, dilation * channels);
        let given = before + count + after;
        let x = StridedRows { data: x, first, step, count: given, taps: 1, length: channels, stride: channels };
        quantised.clear();
        quantised.resize((count + 2 * beside) * a_row, QuantisedGroup::ZERO);
        groups::quantise_rows(cpu.level, x, a_row, &mut quantised[(beside - before) * a_row..][..given * a_row]);
        let (pool, weights) = (cpu.pool.as_deref(), std::slice::from_ref(weight));
        let input = (&quantised[..], count, a_row);
        if dilation == 1 {
            let product = Product::of_integer_rows(pool, cpu.level, input, weights, Some(bias), out);
            return product::run(pool, std::iter::once(&product));
        }
        let results = &mut scratch.group;
        results.resize(count * outputs, 0.0);
        let product = Product::of_integer_rows(pool, cpu.level, input, weights, Some(bias), results);
        product::run(pool, std::iter::once(&product));
        let rows = out.chunks_exact_mut(outputs).skip(phase).step_by(dilation);
        rows.zip(results.chunks_exact(outputs)).for_each(|(to, from)| to.copy_from_slice(from));
    }
}
