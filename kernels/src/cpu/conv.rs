//! Convolutions in time over streams of several sessions at once, and the image convolution of the audio tower.
//!
//! A stream is packed `[time, channels]`. A tail keeps the past rows of each slot that a convolution needs. So each row is computed once,
//! and any chunking of a stream gives the same rows.

use std::ops::Range;

use super::arena::Buffer;
use super::conv_state::{ConvState, GapFill, StreamSpan};
use super::device::Cpu;
use super::gemm::{self, PackedWeight, StridedRows};
use super::integer_conv;
use super::one_channel;
use super::scratch::Scratch;
use super::simd::{dispatch, multiply_add};
use super::tensor::Tensor;
use super::weight::{Weight, WeightData};
use super::work_split::LEAST_PART;

/// Rows of a stream as a multiple of its tail's from which the two are not joined in memory.
const FEW_TAILS: usize = 3;

/// Causal convolution, full or depthwise. Rows of `x` outside all spans give zeros.
pub(super) fn conv1d(
    cpu: &Cpu,
    x: &Tensor,
    weight: &Weight,
    bias: &Weight,
    tail: &mut ConvState,
    spans: impl Iterator<Item = StreamSpan>,
) -> Tensor {
    let bias = bias.vector();
    let data = match &**weight {
        WeightData::Depthwise(taps) => depthwise(cpu, &x.data, taps, bias, tail, spans),
        WeightData::Conv1d { packed, dilation } => {
            causal(cpu, x, std::slice::from_ref(packed), *dilation, bias, tail, spans)
        }
        WeightData::GroupedConv1d { groups, dilation } => causal(cpu, x, groups, *dilation, bias, tail, spans),
        other => panic!("not a convolution: {}", other.kind()),
    };
    Tensor::new(data, bias.len())
}

/// Causal convolution, in one group or several, with taps `dilation` rows apart.
fn causal(
    cpu: &Cpu,
    x: &Tensor,
    groups: &[PackedWeight],
    dilation: usize,
    bias: &[f32],
    tail: &mut ConvState,
    spans: impl Iterator<Item = StreamSpan>,
) -> Buffer {
    let (channels, outputs) = (x.columns, bias.len());
    let mut out = cpu.arena.uninitialised(x.rows * outputs);
    let mut scratch = cpu.scratch.take();
    let Scratch { joined, group, .. } = &mut *scratch;
    let mut absent = GapFill::new(outputs);
    let mut multiply = |data: &[f32], rows: usize, out: &mut [f32]| {
        taps(cpu, data, (rows, channels), groups, dilation, bias, group, out);
    };
    for span in spans {
        absent.clear_before(&mut out, span.row, span.rows);
        let new = &x.data[span.row * channels..(span.row + span.rows) * channels];
        let out = &mut out[span.row * outputs..(span.row + span.rows) * outputs];
        if tail.rows == 0 {
            multiply(new, span.rows, out);
        } else if span.rows >= FEW_TAILS * tail.rows {
            // Rows far enough from the stream's past need no copy.
            let (first, rest) = out.split_at_mut(tail.rows * outputs);
            tail.extend_begin(span, new, joined);
            multiply(joined, tail.rows, first);
            multiply(new, span.rows - tail.rows, rest);
        } else {
            tail.extend(span, new, joined);
            multiply(joined, span.rows, out);
        }
    }
    absent.clear_rest(&mut out);
    out
}

/// Multiplies `rows` rows of `data` and the rows after each, `dilation` apart, with each group's weight; `results` is scratch.
#[allow(clippy::too_many_arguments)]
fn taps(
    cpu: &Cpu,
    data: &[f32],
    (rows, channels): (usize, usize),
    groups: &[PackedWeight],
    dilation: usize,
    bias: &[f32],
    results: &mut Vec<f32>,
    out: &mut [f32],
) {
    let (length, outputs) = (channels / groups.len(), bias.len());
    assert_eq!(length * groups.len(), channels, "groups have the same number of channels");
    let rows_of = |group: usize, weight: &PackedWeight| StridedRows {
        data,
        first: group * length,
        step: channels,
        count: rows,
        taps: weight.k / length,
        length,
        stride: dilation * channels,
    };
    if let [weight] = groups {
        if one_channel::is_faster(weight, rows) {
            return one_channel::multiply(cpu, (data, rows, channels), weight, dilation, bias, results, out);
        }
        return cpu.multiply(rows_of(0, weight), weight, Some(bias), out);
    }
    for (group, weight) in groups.iter().enumerate() {
        let mine = group * weight.columns..(group + 1) * weight.columns;
        results.resize(rows * weight.columns, 0.0);
        cpu.multiply(rows_of(group, weight), weight, Some(&bias[mine.clone()]), results);
        for (out, result) in out.chunks_exact_mut(outputs).zip(results.chunks_exact(weight.columns)) {
            out[mine.clone()].copy_from_slice(result);
        }
    }
}

/// Depthwise causal convolution; `weight` is `[kernel][channels]`.
fn depthwise(
    cpu: &Cpu,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    tail: &mut ConvState,
    spans: impl Iterator<Item = StreamSpan>,
) -> Buffer {
    let channels = bias.len();
    let mut out = cpu.arena.uninitialised(x.len());
    let mut scratch = cpu.scratch.take();
    let mut absent = GapFill::new(channels);
    for span in spans {
        absent.clear_before(&mut out, span.row, span.rows);
        let range = span.row * channels..(span.row + span.rows) * channels;
        tail.extend(span, &x[range.clone()], &mut scratch.joined);
        depthwise_run(cpu.level, &scratch.joined, weight, bias, &mut out[range]);
    }
    absent.clear_rest(&mut out);
    out
}

#[inline(always)]
fn depthwise_loop<const FUSED: bool>(x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f32]) {
    let channels = bias.len();
    for (row, out) in out.chunks_exact_mut(channels).enumerate() {
        out.copy_from_slice(bias);
        for (tap, weight) in weight.chunks_exact(channels).enumerate() {
            let x = &x[(row + tap) * channels..(row + tap + 1) * channels];
            for ((o, &v), &w) in out.iter_mut().zip(x).zip(weight) {
                *o = multiply_add::<FUSED>(v, w, *o);
            }
        }
    }
}

dispatch!(fn depthwise_run = depthwise_loop(x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f32]));

/// Transposed convolution, computed as a causal one with `stride` output rows for each input row. With a kernel of twice the stride, each
/// output block needs its input row and the one before. A stream's first block lacks the row before; it is zeros if the reference cuts it
/// off.
pub(super) fn conv_transpose1d(
    cpu: &Cpu,
    x: &Tensor,
    weight: &Weight,
    bias: &Weight,
    tail: &mut ConvState,
    spans: impl Iterator<Item = StreamSpan>,
) -> Tensor {
    let WeightData::ConvTranspose1d { packed: weight, cut, .. } = &**weight else {
        panic!("not a transposed convolution: {}", weight.kind())
    };
    let (bias, channels) = (bias.vector(), x.columns);
    let taps = weight.k / channels;
    let mut out = cpu.arena.uninitialised(x.rows * weight.columns);
    let mut scratch = cpu.scratch.take();
    let mut absent = GapFill::new(weight.columns);
    for span in spans {
        let new = &x.data[span.row * channels..(span.row + span.rows) * channels];
        let skipped = if span.first && *cut { span.rows.min(1) } else { 0 };
        let data = if taps == 1 {
            new
        } else {
            tail.extend(span, new, &mut scratch.joined);
            &scratch.joined[..]
        };
        let count = span.rows - skipped;
        let rows = StridedRows {
            data,
            first: skipped * channels,
            step: channels,
            count,
            taps,
            length: channels,
            stride: channels,
        };
        let row = span.row + skipped;
        absent.clear_before(&mut out, row, count);
        let out = &mut out[row * weight.columns..(row + count) * weight.columns];
        cpu.multiply(rows, weight, None, out);
        for row in out.chunks_exact_mut(bias.len()) {
            for (v, b) in row.iter_mut().zip(bias) {
                *v += b;
            }
        }
    }
    absent.clear_rest(&mut out);
    Tensor::new(out, bias.len())
}

/// Centred convolution within consecutive segments of rows, with zeros beyond their ends.
pub(super) fn segment_conv1d(cpu: &Cpu, x: &Tensor, weight: &Weight, bias: &Weight, segments: &[u32]) -> Tensor {
    let (bias, channels) = (bias.vector(), x.columns);
    let outputs = bias.len();
    let mut out = cpu.arena.uninitialised(x.rows * outputs);
    let mut first = 0;
    for &rows in segments.iter().filter(|rows| **rows > 0) {
        let all = first..first + rows as usize;
        let x = &x.data[all.start * channels..all.end * channels];
        let out = &mut out[all.start * outputs..all.end * outputs];
        some_rows(cpu, (x, channels), weight, bias, 0..all.len(), out);
        first = all.end;
    }
    debug_assert_eq!(first, x.rows, "the segments are all rows");
    Tensor::new(out, outputs)
}

/// Some rows of a centred convolution over one segment, written to `out`, or to a tensor whose other rows are not set.
pub(super) fn segment_conv1d_rows(
    cpu: &Cpu,
    out: Option<Tensor>,
    x: &Tensor,
    weight: &Weight,
    bias: &Weight,
    rows: Range<usize>,
) -> Tensor {
    let bias = bias.vector();
    let outputs = bias.len();
    let mut out = out.unwrap_or_else(|| Tensor::new(cpu.arena.uninitialised(x.rows * outputs), outputs));
    assert_eq!((out.rows, out.columns), (x.rows, outputs), "the result has other rows");
    let own = &mut out.data[rows.start * outputs..rows.end * outputs];
    some_rows(cpu, (&x.data, x.columns), weight, bias, rows, own);
    out
}

/// Computes a range of rows of a centred convolution over one segment `x` of rows of `channels` numbers.
fn some_rows(
    cpu: &Cpu,
    (x, channels): (&[f32], usize),
    weight: &Weight,
    bias: &[f32],
    rows: Range<usize>,
    out: &mut [f32],
) {
    if rows.is_empty() {
        return;
    }
    let (groups, dilation) = match &**weight {
        WeightData::IntegerConv1d { weight, taps, dilation } => {
            return integer_conv::some_rows(cpu, (x, channels), (weight, *taps, *dilation), bias, rows, out);
        }
        WeightData::Conv1d { packed, dilation } => (std::slice::from_ref(packed), dilation),
        WeightData::GroupedConv1d { groups, dilation } => (&groups[..], dilation),
        other => panic!("not a convolution: {}", other.kind()),
    };
    let (length, beside) = (x.len() / channels, groups[0].k * groups.len() / channels / 2 * dilation);
    let (before, after) = (beside.min(rows.start), beside.min(length - rows.end));
    let mut scratch = cpu.scratch.take();
    let Scratch { joined, group, .. } = &mut *scratch;
    joined.clear();
    joined.resize((beside - before) * channels, 0.0);
    joined.extend_from_slice(&x[(rows.start - before) * channels..(rows.end + after) * channels]);
    joined.resize((rows.len() + 2 * beside) * channels, 0.0);
    taps(cpu, joined, (rows.len(), channels), groups, *dilation, bias, group, out);
}

/// Convolution of images `[height][width][channels]` by 3 x 3 taps with padding 1; `weight.k` is `3 * 3 * channels`, rows of taps
/// outermost.
pub(super) fn conv2d(
    cpu: &Cpu,
    x: &[f32],
    (images, height, width): (usize, usize, usize),
    channels: usize,
    weight: &PackedWeight,
    stride: usize,
    bias: &[f32],
) -> Buffer {
    let (out_height, out_width) = (height.div_ceil(stride), width.div_ceil(stride));
    let columns = weight.columns;
    let mut out = cpu.arena.uninitialised(images * out_height * out_width * columns);
    // With a border of zeros every window is whole, and its rows of taps are three contiguous stretches.
    let padded_width = width + 2;
    let mut padded = cpu.arena.zeros((height + 2) * padded_width * channels);
    let line = out_width * columns;
    cpu.count(images * out_height * out_width, weight);
    for (image, out) in out.chunks_exact_mut((out_height * line).max(1)).enumerate() {
        for y in 0..height {
            let from = (image * height + y) * width * channels;
            let to = ((y + 1) * padded_width + 1) * channels;
            padded[to..to + width * channels].copy_from_slice(&x[from..from + width * channels]);
        }
        let padded = &padded;
        // An image line is one product, too small to be split further.
        cpu.split(out, line, LEAST_PART / weight.k.max(1), |first, lines| {
            for (y, out) in (first..).zip(lines.chunks_exact_mut(line.max(1))) {
                let rows = StridedRows {
                    data: padded,
                    first: stride * y * padded_width * channels,
                    step: stride * channels,
                    count: out_width,
                    taps: 3,
                    length: 3 * channels,
                    stride: padded_width * channels,
                };
                gemm::multiply(cpu.level, rows, weight, Some(bias), out);
            }
        });
    }
    out
}
