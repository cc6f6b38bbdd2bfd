//! Snake activation at twice the rate, between two low-pass filters that keep its new harmonics from aliasing.
//!
//! A result needs twelve activations at twice the rate, six rows' worth on either side; from row to row two of them are new. So the code
//! slides a window over a segment, sixteen channels at a time, and never stores anything of twice the size. Each number is summed in the
//! same order for any split over threads.

use super::device::{Cpu, LEAST_ACTIVATION};
use super::math::sin_squared;
use super::simd::{dispatch, multiply_add};
use super::tensor::Tensor;
use super::weight::Weight;
use crate::shapes::FILTER_TAPS;

/// Channels that are computed together.
const LANES: usize = 16;
/// Filter taps that meet a row when upsampling: every other one.
const HALF: usize = FILTER_TAPS / 2;
/// Least results for which a part pays: each costs much more than an activation alone.
const LEAST: usize = LEAST_ACTIVATION / 8;

type Window = [[f32; LANES]; FILTER_TAPS];

/// Rows of a segment and the parameters of the activation.
struct Segment<'a> {
    x: &'a [f32],
    columns: usize,
    frequency: &'a [f32],
    magnitude: &'a [f32],
    filter: &'a [f32; FILTER_TAPS],
}

pub(super) fn rows(
    cpu: &Cpu,
    x: &Tensor,
    (frequency, magnitude): (&Weight, &Weight),
    filter: &Weight,
    segments: &[u32],
) -> Tensor {
    let columns = x.columns;
    let filter: &[f32; FILTER_TAPS] = filter.vector().try_into().expect("a filter has as many taps as the trait says");
    let (frequency, magnitude) = (frequency.vector(), magnitude.vector());
    let mut out = cpu.arena.uninitialised(x.data.len());
    let mut first = 0;
    for &rows in segments.iter().filter(|rows| **rows > 0) {
        let range = first * columns..(first + rows as usize) * columns;
        let segment = Segment { x: &x.data[range.clone()], columns, frequency, magnitude, filter };
        cpu.split(&mut out[range], columns, LEAST, |row, part| activate(cpu.level, &segment, row, part));
        first += rows as usize;
    }
    debug_assert_eq!(first, x.rows, "the segments are all rows");
    Tensor { data: out, ..*x }
}

#[inline(always)]
fn activate_loop<const FUSED: bool>(segment: &Segment<'_>, first: usize, out: &mut [f32]) {
    let columns = segment.columns;
    for from in (0..columns).step_by(LANES) {
        let lanes = from..columns.min(from + LANES);
        let width = lanes.len();
        let (mut frequency, mut magnitude) = ([0.0; LANES], [0.0; LANES]);
        frequency[..width].copy_from_slice(&segment.frequency[lanes.clone()]);
        magnitude[..width].copy_from_slice(&segment.magnitude[lanes.clone()]);
        let activation = |at: usize| activation::<FUSED>(segment, from, width, (&frequency, &magnitude), at);
        // Activation `at`, counted from those before the segment, is number `at - (HALF - 1)`; its slot is `at % FILTER_TAPS`.
        let mut window: Window = [[0.0; LANES]; FILTER_TAPS];
        for at in 2 * first..2 * first + FILTER_TAPS - 2 {
            window[at % FILTER_TAPS] = activation(at);
        }
        for (row, out) in (first..).zip(out.chunks_exact_mut(columns)) {
            let begin = 2 * row;
            for at in begin + FILTER_TAPS - 2..begin + FILTER_TAPS {
                window[at % FILTER_TAPS] = activation(at);
            }
            let mut sum = [0.0; LANES];
            for (tap, by) in segment.filter.iter().enumerate() {
                let values = &window[(begin + tap) % FILTER_TAPS];
                for (sum, value) in sum.iter_mut().zip(values) {
                    *sum = multiply_add::<FUSED>(*by, *value, *sum);
                }
            }
            out[lanes.clone()].copy_from_slice(&sum[..width]);
        }
    }
}

/// Returns the activation at place `at - (HALF - 1)` of twice the rate; beyond the ends, the nearest one.
#[inline(always)]
fn activation<const FUSED: bool>(
    segment: &Segment<'_>,
    from: usize,
    width: usize,
    (frequency, magnitude): (&[f32; LANES], &[f32; LANES]),
    at: usize,
) -> [f32; LANES] {
    let rows = segment.x.len() / segment.columns;
    let at = at.saturating_sub(HALF - 1).min(2 * rows - 1);
    // An even place lies a quarter of a row before its row's middle and needs one more past row; an odd one lies after it.
    let (row, odd) = (at / 2, at % 2);
    let mut sum = [0.0; LANES];
    for k in 0..HALF {
        let row = (row + odd + k).saturating_sub(HALF / 2).min(rows - 1);
        let by = 2.0 * segment.filter[FILTER_TAPS - 1 - odd - 2 * k];
        let x = &segment.x[row * segment.columns + from..][..width];
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum = multiply_add::<FUSED>(by, *x, *sum);
        }
    }
    for ((value, frequency), magnitude) in sum.iter_mut().zip(frequency).zip(magnitude) {
        *value = multiply_add::<FUSED>(*magnitude, sin_squared::<FUSED>(*value * frequency), *value);
    }
    sum
}

dispatch!(/// Writes the results of the segment's rows from `first` on.
    fn activate = activate_loop(segment: &Segment<'_>, first: usize, out: &mut [f32]));
