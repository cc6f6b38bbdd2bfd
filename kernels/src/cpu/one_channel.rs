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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::gemm::StridedRows;
    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn bits_are_those_of_the_matrix_product() {
        let number = |at: usize| ((at * 7_919 % 1_009) as f32 - 504.0) / 317.0;
        let pool = Arc::new(Pool::new(3).unwrap());
        // What an earlier call left in the scratch must not matter.
        let mut scratch = vec![f32::NAN; 40_000];
        for cpu in [Cpu::default(), Cpu::default().on(Some(pool))] {
            for (rows, channels, taps, dilation) in
                [(64, 12, 7, 1), (130, 5, 7, 3), (1_920, 12, 7, 1), (300, 16, 1, 1), (257, 1, 3, 9), (5_000, 24, 7, 1)]
            {
                let weight = PackedWeight::new(1, taps * channels, |_, at| number(at + 3));
                assert!(is_faster(&weight, rows));
                let data: Vec<f32> = (0..(rows + (taps - 1) * dilation) * channels).map(number).collect();
                let (mut ours, mut plain) = (vec![0.0; rows], vec![0.0; rows]);
                let (shape, bias) = ((&data[..], rows, channels), [0.25]);
                multiply(&cpu, shape, &weight, dilation, &bias, &mut scratch, &mut ours);
                let stride = dilation * channels;
                let x =
                    StridedRows { data: &data, first: 0, step: channels, count: rows, taps, length: channels, stride };
                cpu.multiply(x, &weight, Some(&bias), &mut plain);
                assert_eq!(ours, plain, "{rows} rows, {channels} channels, {taps} taps, dilation {dilation}");
            }
        }
    }
}
