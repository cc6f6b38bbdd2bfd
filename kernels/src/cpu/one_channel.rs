//! Convolution to one channel: sixteen rows in the lanes, because the columns of a panel would fill one of sixteen.
//!
//! Each number is summed in the order of the matrix product, so it has the same bits.

use super::device::Cpu;
use super::gemm::PackedWeight;
use super::simd::{dispatch, multiply_add};
use super::work_split::LEAST_PART;

/// Rows that are summed together.
const ROWS: usize = 128;
/// Least rows for which copying the input by channel pays.
const LEAST_ROWS: usize = ROWS / 2;
/// Rows that are copied channel by channel: few enough for the nearest cache.
const COPIED: usize = 64;

/// Rows of the input by channel.
struct Channels<'a> {
    /// Numbers of all rows of one channel after the other.
    numbers: &'a [f32],
    /// Rows of a channel: those of the output and of the taps, and as many more as a last block may read.
    length: usize,
    /// Number of channels.
    count: usize,
    dilation: usize,
}

/// True if [`multiply`] computes a product of `rows` rows, and faster.
pub(super) fn is_faster(weight: &PackedWeight, rows: usize) -> bool {
    weight.columns == 1 && rows >= LEAST_ROWS && !weight.is_integer()
}

/// Multiplies `rows` rows of `data` and the rows after each, `dilation` apart, with the weight of one column; `scratch` is working memory.
pub(super) fn multiply(
    cpu: &Cpu,
    (data, rows, channels): (&[f32], usize, usize),
    weight: &PackedWeight,
    dilation: usize,
    bias: &[f32],
    scratch: &mut Vec<f32>,
    out: &mut [f32],
) {
    cpu.count(rows, weight);
    let taps = weight.k / channels;
    let given = rows + (taps - 1) * dilation;
    let length = given + ROWS;
    // What the last call left behind the rows is summed too, for results that do not exist.
    scratch.resize(weight.k + channels * length, 0.0);
    let (by_input, numbers) = scratch.split_at_mut(weight.k);
    weight.look_up(0, by_input);
    for (block, rows) in data[..given * channels].chunks(COPIED * channels).enumerate() {
        for (channel, numbers) in numbers.chunks_exact_mut(length).enumerate() {
            let from = rows[channel..].iter().step_by(channels);
            numbers[block * COPIED..].iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }
    let x = &Channels { numbers, length, count: channels, dilation };
    let (by_input, bias) = (&*by_input, bias.first().copied().unwrap_or_default());
    cpu.split(out, 1, (LEAST_PART / weight.k).max(ROWS), |first, part| {
        sum_rows(cpu.level, x, by_input, first, bias, part);
    });
}

#[inline(always)]
fn sum_loop<const FUSED: bool>(x: &Channels<'_>, weight: &[f32], first: usize, bias: f32, out: &mut [f32]) {
    for (block, out) in out.chunks_mut(ROWS).enumerate() {
        let row = first + block * ROWS;
        let mut sums = [0.0; ROWS];
        for (tap, weights) in weight.chunks_exact(x.count).enumerate() {
            for (channel, &by) in weights.iter().enumerate() {
                let from = &x.numbers[channel * x.length + row + tap * x.dilation..][..ROWS];
                for (sum, value) in sums.iter_mut().zip(from) {
                    *sum = multiply_add::<FUSED>(*value, by, *sum);
                }
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum + bias;
        }
    }
}

dispatch!(fn sum_rows = sum_loop(x: &Channels<'_>, weight: &[f32], first: usize, bias: f32, out: &mut [f32]));
