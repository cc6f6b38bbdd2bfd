//! Operations within consecutive segments of rows.

use std::ops::Range;

use super::device::Cuda;
use super::launch::{Args, MAX_HEAD_DIM, SIZE, TILE_THREADS, Tile, WARP, WARPS, attention_bytes, bits, scale};
use super::matrix::{Matrix, MatrixKind};
use super::tensor::{CudaIndex, Tensor};
use super::weight::{GroupedConv, Weight};
use crate::shapes::{FILTER_TAPS, SegmentShape};

/// Largest head within segments: its numbers fit into the shared memory of a block.
const MAX_SEGMENT_HEAD: usize = 2_048;
/// Threads of a block that norms a segment.
const NORM_THREADS: usize = 256;
/// Threads of a block that runs an LSTM over a segment.
const LSTM_THREADS: usize = 512;
/// Rows that a thread computes in the snake at twice the rate.
const RUN: usize = 8;

impl Cuda {
    /// Attention within segments.
    pub(super) fn within_segments(
        &self,
        (q, k, v): (&Tensor, &Tensor, &Tensor),
        segments: &CudaIndex,
        shape: SegmentShape,
    ) -> Tensor {
        let heads = shape.heads;
        let (out, dim) = (self.uninit_tensor(q.rows, q.columns), q.columns / heads);
        assert!(dim <= MAX_SEGMENT_HEAD, "a head has at most {MAX_SEGMENT_HEAD} numbers");
        assert_eq!((q.columns, k.columns, v.columns), (heads * dim, heads * dim, heads * dim), "widths differ");
        let [left, right] =
            [shape.left, shape.right].map(|reach| reach.map_or(u64::from(u32::MAX), |reach| reach as u64));
        let sizes = [segments.len as u64, dim as u64, left, right, bits(scale(dim))];
        let mut args = Args::of(&[q.at(), k.at(), v.at(), segments.at(), out.at()]);
        args.extend(&sizes);
        let kernel = &self.queue.kernels().segment_attention_f32;
        let blocks = (q.rows, heads * dim.div_ceil(MAX_HEAD_DIM));
        self.queue.launch(kernel, blocks, WARPS * WARP, attention_bytes(dim), args.all());
        out
    }

    /// Norm of each segment as a whole.
    pub(super) fn segment_norm(
        &self,
        x: &Tensor,
        (weight, bias): (&Weight, &Weight),
        eps: f32,
        segments: &CudaIndex,
    ) -> Tensor {
        let (weight, bias) = (weight.vector(), bias.vector());
        assert_eq!((weight.len, bias.len), (x.columns, x.columns), "a norm of another width");
        let out = self.uninit_tensor(x.rows, x.columns);
        let addresses = [x.at(), weight.memory.at, bias.memory.at, out.at(), segments.at()];
        let mut args = Args::of(&addresses);
        args.extend(&[segments.len as u64, x.rows as u64, x.columns as u64, bits(eps)]);
        // One more block, for the rows of no segment.
        let (grid, warps) = ((segments.len + 1, 1), NORM_THREADS / WARP);
        self.queue.launch(&self.queue.kernels().segment_norm_f32, grid, NORM_THREADS, warps * SIZE, args.all());
        out
    }

    /// Norm of each column over the rows of each segment, scaled and shifted by the segment's row of `style`.
    pub(super) fn instance_norm(&self, x: &Tensor, style: &Tensor, eps: f32, segments: &CudaIndex) -> Tensor {
        assert_eq!(style.columns, 2 * x.columns, "a style of another width");
        let out = self.uninit_tensor(x.rows, x.columns);
        let mut args = Args::of(&[x.at(), style.at(), out.at(), segments.at()]);
        args.extend(&[segments.len, style.rows.min(segments.len), x.rows, x.columns].map(|n| n as u64));
        args.extend(&[bits(eps)]);
        let grid = (segments.len + 1, x.columns.div_ceil(WARP));
        let kernel = &self.queue.kernels().segment_instance_norm_f32;
        self.queue.launch(kernel, grid, NORM_THREADS, NORM_THREADS * SIZE, args.all());
        out
    }

    /// Recurrence of an LSTM within segments.
    pub(super) fn lstm(&self, x: &Tensor, hidden: &Weight, segments: &CudaIndex, reverse: bool) -> Tensor {
        let [Matrix { kind: MatrixKind::F32, memory, outputs, columns, pitch }] = hidden.linear() else {
            panic!("the recurrence of an LSTM is one matrix in single precision")
        };
        assert_eq!((x.columns, *outputs), (4 * columns, 4 * columns), "gates of another width");
        let out = self.uninit_tensor(x.rows, *columns);
        let mut args = Args::of(&[x.at(), memory.at, out.at(), segments.at()]);
        let sizes = [segments.len, x.rows, *columns, *pitch, usize::from(reverse)];
        args.extend(&sizes.map(|n| n as u64));
        let kernel = &self.queue.kernels().segment_lstm_f32;
        self.queue.launch(kernel, (segments.len + 1, 1), LSTM_THREADS, 6 * columns * SIZE, args.all());
        out
    }

    /// Centred convolution within segments.
    pub(super) fn centred(&self, x: &Tensor, weight: &Weight, bias: &Weight, segments: &CudaIndex) -> Tensor {
        let (matrix, dilation) = match weight {
            Weight::Conv1d { matrix, dilation } => (matrix, dilation),
            Weight::GroupedConv1d(grouped) => return self.grouped_within_segments(x, grouped, bias, segments),
            other => panic!("not a convolution: {}", other.kind()),
        };
        let (bias, taps) = (bias.vector(), matrix.columns / x.columns);
        assert_eq!((taps * x.columns, bias.len), (matrix.columns, matrix.outputs), "channels differ");
        assert!(taps % 2 == 1, "a centred convolution has an odd number of taps");
        let out = self.uninit_tensor(x.rows, matrix.outputs);
        let kernels = self.queue.kernels();
        let addresses = [x.at(), matrix.memory.at, bias.memory.at, out.at(), segments.at()];
        let sizes = [segments.len, x.rows, x.columns, taps, *dilation, matrix.outputs, 1];
        let mut args = Args::of(&addresses);
        args.extend(&sizes.map(|n| n as u64));
        let tiled = (&kernels.segment_conv_bf16, Tile::MANY);
        self.convolve(&kernels.segment_conv_f32, tiled, (x.rows, matrix), args);
        out
    }

    /// Rows of a centred convolution over one segment. The device is fast: it computes all rows and takes these.
    pub(super) fn centred_rows(
        &self,
        out: Option<Tensor>,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        rows: Range<usize>,
    ) -> Tensor {
        let segment = self.uninit_words(1);
        self.queue.write(segment.at(), &[x.rows as u32]);
        let all = self.centred(x, weight, bias, &CudaIndex::new(segment, 1));
        let Some(out) = out else { return all };
        assert_eq!((out.rows, out.columns), (all.rows, all.columns), "the result has other rows");
        let (row, from) = (all.columns * SIZE, (rows.start * all.columns * SIZE) as u64);
        self.queue.copy(out.at() + from, all.at() + from, rows.len() * row);
        out
    }

    /// Centred convolution in groups, within segments.
    fn grouped_within_segments(&self, x: &Tensor, weight: &GroupedConv, bias: &Weight, segments: &CudaIndex) -> Tensor {
        let bias = bias.vector();
        let outputs = weight.outputs(x.columns, bias.len);
        assert!(weight.taps % 2 == 1, "a centred convolution has an odd number of taps");
        let out = self.uninit_tensor(x.rows, outputs);
        let mut args = Args::of(&[x.at(), weight.numbers.memory.at, bias.memory.at, out.at(), segments.at()]);
        let sizes = [segments.len, x.rows, x.columns, weight.taps, weight.dilation, outputs, weight.groups];
        args.extend(&sizes.map(|n| n as u64));
        let (kernels, own) = (self.queue.kernels(), outputs / weight.groups);
        // Half a tile of one group's outputs is still faster than a thread for each number.
        let (kernel, blocks) = if 2 * own >= Tile::FLOAT.outputs {
            args.extend(&[(weight.taps * x.columns / weight.groups) as u64]);
            let (along, across) = Tile::FLOAT.grid(x.rows, own);
            (&kernels.segment_conv_f32, (along, across * weight.groups))
        } else {
            (&kernels.segment_grouped_conv_f32, (out.len().div_ceil(TILE_THREADS), 1))
        };
        self.queue.launch(kernel, blocks, TILE_THREADS, 0, args.all());
        out
    }

    /// Snake at twice the rate, within segments.
    pub(super) fn resampled_snake(
        &self,
        x: &Tensor,
        (frequency, magnitude): (&Weight, &Weight),
        filter: &Weight,
        segments: &CudaIndex,
    ) -> Tensor {
        let (frequency, magnitude, filter) = (frequency.vector(), magnitude.vector(), filter.vector());
        assert!(frequency.len == x.columns && magnitude.len == x.columns, "a snake of another width");
        assert_eq!(filter.len, FILTER_TAPS, "a filter has as many taps as the trait says");
        let out = self.uninit_tensor(x.rows, x.columns);
        let [count, rows, columns] = [segments.len, x.rows, x.columns].map(|n| n as u64);
        let addresses = [x.at(), frequency.memory.at, magnitude.memory.at, filter.memory.at, out.at(), segments.at()];
        let [x, frequency, magnitude, filter, to, segments] = addresses;
        let args = &mut [x, frequency, magnitude, filter, to, segments, count, rows, columns];
        let blocks = (out.rows.div_ceil(RUN) * out.columns).div_ceil(TILE_THREADS);
        self.queue.launch(&self.queue.kernels().segment_snake_f32, (blocks, 1), TILE_THREADS, 0, args);
        out
    }
}
