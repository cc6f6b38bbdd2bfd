//! Convolutions in time over streams of several sessions at once, and the picture convolution of the audio tower.
//!
//! A stream is packed `[time, channels]`. What a convolution needs of the past lies in a tail for each slot, so each row is
//! computed once and any split of a stream gives the same rows.

use super::gemm::{self, Packed, Rows};
use super::simd::{Level, dispatch, multiply_add};
use crate::ops::StreamChunk;

/// The last rows of each slot's stream.
#[derive(Debug)]
pub struct Tail {
    /// Rows remembered.
    pub rows: usize,
    /// Channels.
    pub columns: usize,
    /// `[slot][rows][columns]`.
    pub data: Vec<f32>,
    /// Whether a slot's stream has had a row yet.
    pub started: Vec<bool>,
}

impl Tail {
    /// The slot's tail followed by the new rows; afterwards the tail is the end of that. A stream's first rows follow
    /// zeros.
    fn extend(&mut self, chunk: StreamChunk, new: &[f32], joined: &mut Vec<f32>) {
        let size = self.rows * self.columns;
        let tail = &mut self.data[chunk.slot * size..(chunk.slot + 1) * size];
        if chunk.first {
            tail.fill(0.0);
        }
        joined.clear();
        joined.extend_from_slice(tail);
        joined.extend_from_slice(new);
        tail.copy_from_slice(&joined[joined.len() - size..]);
    }
}

/// Causal convolution: `weight.k` is `taps * channels`, taps `dilation` rows apart.
#[allow(clippy::too_many_arguments)]
pub fn causal(
    level: Level,
    x: &[f32],
    channels: usize,
    weight: &Packed,
    dilation: usize,
    bias: &[f32],
    tail: &mut Tail,
    chunks: &[StreamChunk],
) -> Vec<f32> {
    let taps = weight.k / channels;
    let mut out = vec![0.0; x.len() / channels * weight.columns];
    let (mut from, mut to) = (0, 0);
    let mut joined = Vec::new();
    for &chunk in chunks {
        let new = &x[from..from + chunk.rows * channels];
        from += new.len();
        let data = if tail.rows == 0 {
            new
        } else {
            tail.extend(chunk, new, &mut joined);
            &joined[..]
        };
        let rows = Rows {
            data,
            first: 0,
            step: channels,
            count: chunk.rows,
            taps,
            length: channels,
            stride: dilation * channels,
        };
        let size = chunk.rows * weight.columns;
        gemm::multiply(level, rows, weight, Some(bias), &mut out[to..to + size]);
        to += size;
    }
    out
}

/// Causal convolution of each channel by itself; `weight` is `[kernel][channels]`.
pub fn depthwise(
    level: Level,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    tail: &mut Tail,
    chunks: &[StreamChunk],
) -> Vec<f32> {
    let channels = bias.len();
    let mut out = vec![0.0; x.len()];
    let mut from = 0;
    let mut joined = Vec::new();
    for &chunk in chunks {
        let size = chunk.rows * channels;
        tail.extend(chunk, &x[from..from + size], &mut joined);
        depthwise_run(level, &joined, weight, bias, &mut out[from..from + size]);
        from += size;
    }
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

/// Transposed convolution as a causal one that makes `stride` rows of each input row: with a kernel of twice the stride
/// each block of output needs this input row and the one before. A stream's first row has none before it; the reference
/// cuts that block off, so it yields nothing.
#[allow(clippy::too_many_arguments)]
pub fn transposed(
    level: Level,
    x: &[f32],
    channels: usize,
    weight: &Packed,
    stride: usize,
    bias: &[f32],
    tail: &mut Tail,
    chunks: &[StreamChunk],
) -> (Vec<f32>, Vec<StreamChunk>) {
    let taps = weight.k / channels;
    let columns = bias.len();
    let mut out = Vec::with_capacity(x.len() / channels * weight.columns);
    let mut results = Vec::with_capacity(chunks.len());
    let mut from = 0;
    let mut joined = Vec::new();
    for &chunk in chunks {
        let new = &x[from..from + chunk.rows * channels];
        from += new.len();
        // Not `chunk.first` alone: a stream's first chunk may be empty, cut off by a convolution before this one.
        let started = tail.started[chunk.slot] && !chunk.first;
        tail.started[chunk.slot] = started || chunk.rows > 0;
        let skipped = if started { 0 } else { (taps - 1).min(chunk.rows) };
        let data = if taps == 1 {
            new
        } else {
            tail.extend(chunk, new, &mut joined);
            &joined[..]
        };
        let count = chunk.rows - skipped;
        let rows =
            Rows { data, first: skipped * channels, step: channels, count, taps, length: channels, stride: channels };
        let start = out.len();
        out.resize(start + count * weight.columns, 0.0);
        gemm::multiply(level, rows, weight, None, &mut out[start..]);
        for row in out[start..].chunks_exact_mut(columns) {
            for (v, b) in row.iter_mut().zip(bias) {
                *v += b;
            }
        }
        results.push(StreamChunk { slot: chunk.slot, rows: count * stride, first: chunk.first });
    }
    (out, results)
}

/// Convolution of pictures `[height][width][channels]` by 3 x 3 taps with padding 1; `weight.k` is
/// `3 * 3 * channels`, rows of taps outermost.
pub fn conv2d(
    level: Level,
    x: &[f32],
    (images, height, width): (usize, usize, usize),
    channels: usize,
    weight: &Packed,
    stride: usize,
    bias: &[f32],
) -> Vec<f32> {
    let (out_height, out_width) = (height.div_ceil(stride), width.div_ceil(stride));
    let columns = weight.columns;
    let mut out = vec![0.0; images * out_height * out_width * columns];
    // A frame of zeros makes every window whole; its rows of taps are then three stretches.
    let padded_width = width + 2;
    let mut padded = vec![0.0; (height + 2) * padded_width * channels];
    for image in 0..images {
        for y in 0..height {
            let from = (image * height + y) * width * channels;
            let to = ((y + 1) * padded_width + 1) * channels;
            padded[to..to + width * channels].copy_from_slice(&x[from..from + width * channels]);
        }
        for y in 0..out_height {
            let rows = Rows {
                data: &padded,
                first: stride * y * padded_width * channels,
                step: stride * channels,
                count: out_width,
                taps: 3,
                length: 3 * channels,
                stride: padded_width * channels,
            };
            let to = (image * out_height + y) * out_width * columns;
            gemm::multiply(level, rows, weight, Some(bias), &mut out[to..to + out_width * columns]);
        }
    }
    out
}
