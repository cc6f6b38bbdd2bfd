//! Centred convolution with a quantised weight.
//!
//! Each row is quantised once, in groups of its channels, with the scales of its own numbers; a result reads the groups of as many
//! rows as there are taps. Rows that are a dilation apart lie together, so that the groups of a result are one stretch.

use super::device::Cpu;
use super::groups::{self, QuantisedGroup};
use super::product::{self, Product};
use super::quantised::QuantisedWeight;
use super::strided_rows::StridedRows;
use super::tensor::Tensor;

/// Computes it within consecutive segments of rows, with zeros beyond their ends.
pub(super) fn within_segments(
    cpu: &Cpu,
    x: &Tensor,
    (weight, taps, dilation): (&QuantisedWeight, usize, usize),
    bias: &[f32],
    segments: &[u32],
) -> Tensor {
    let (channels, outputs, beside) = (x.columns, bias.len(), taps / 2);
    let a_row = weight.groups() / taps;
    assert_eq!((channels.div_ceil(groups::GROUP), weight.columns()), (a_row, outputs), "channels differ");
    let mut out = cpu.arena.uninitialised(x.rows * outputs);
    let mut quantised = cpu.groups.take();
    let mut scratch = cpu.scratch.take();
    let mut first = 0;
    for &rows in segments.iter().filter(|rows| **rows > 0) {
        let rows = rows as usize;
        let out = &mut out[first * outputs..(first + rows) * outputs];
        for phase in 0..dilation.min(rows) {
            let count = (rows - phase).div_ceil(dilation);
            let (first, step) = ((first + phase) * channels, dilation * channels);
            let x = StridedRows { data: &x.data, first, step, count, taps: 1, length: channels, stride: channels };
            quantised.clear();
            quantised.resize((count + 2 * beside) * a_row, QuantisedGroup::ZERO);
            let own = &mut quantised[beside * a_row..(beside + count) * a_row];
            groups::quantise_rows(cpu.level, x, a_row, own);
            let (pool, weights) = (cpu.pool.as_deref(), std::slice::from_ref(weight));
            let input = (&quantised[..], count, a_row);
            if dilation == 1 {
                let product = Product::of_integer_rows(pool, cpu.level, input, weights, Some(bias), out);
                product::run(pool, std::iter::once(&product));
                break;
            }
            let results = &mut scratch.group;
            results.resize(count * outputs, 0.0);
            let product = Product::of_integer_rows(pool, cpu.level, input, weights, Some(bias), results);
            product::run(pool, std::iter::once(&product));
            let rows = out.chunks_exact_mut(outputs).skip(phase).step_by(dilation);
            rows.zip(results.chunks_exact(outputs)).for_each(|(to, from)| to.copy_from_slice(from));
        }
        first += rows;
    }
    debug_assert_eq!(first, x.rows, "the segments are all rows");
    Tensor::new(out, outputs)
}
