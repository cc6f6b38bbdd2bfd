//! Operations within consecutive segments of rows.

use super::device::Cuda;
use super::launch::{Args, MAX_HEAD_DIM, TILE_THREADS, Tile, WARP, WARPS, attention_bytes, bits, scale};
use super::tensor::{CudaIndex, Tensor};
use super::weight::Weight;
use crate::shapes::FILTER_TAPS;

/// Rows that a thread computes in the snake at twice the rate.
const RUN: usize = 8;

impl Cuda {
    /// Bidirectional attention within segments.
    pub(super) fn within_segments(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        segments: &CudaIndex,
        heads: usize,
    ) -> Tensor {
        let (out, dim) = (self.uninit_tensor(q.rows, q.columns), q.columns / heads);
        assert!(dim <= MAX_HEAD_DIM, "a head has at most {MAX_HEAD_DIM} numbers");
        assert_eq!((q.columns, k.columns, v.columns), (heads * dim, heads * dim, heads * dim), "widths differ");
        let sizes = [segments.len as u64, dim as u64, bits(scale(dim))];
        let args = &mut [q.at(), k.at(), v.at(), segments.at(), out.at(), sizes[0], sizes[1], sizes[2]];
        let kernel = &self.queue.kernels().segment_attention_f32;
        self.queue.launch(kernel, (q.rows, heads), WARPS * WARP, attention_bytes(dim), args);
        out
    }

    /// Centred convolution within segments.
    pub(super) fn centred(&self, x: &Tensor, weight: &Weight, bias: &Weight, segments: &CudaIndex) -> Tensor {
        let Weight::Conv1d { matrix, dilation } = weight else { panic!("not a convolution: {}", weight.kind()) };
        let (bias, taps) = (bias.vector(), matrix.columns / x.columns);
        assert_eq!((taps * x.columns, bias.len), (matrix.columns, matrix.outputs), "channels differ");
        assert!(taps % 2 == 1, "a centred convolution has an odd number of taps");
        let out = self.uninit_tensor(x.rows, matrix.outputs);
        let kernels = self.queue.kernels();
        let addresses = [x.at(), matrix.memory.at, bias.memory.at, out.at(), segments.at()];
        let sizes = [segments.len, x.rows, x.columns, taps, *dilation, matrix.outputs];
        let mut args = Args::of(&addresses);
        args.extend(&sizes.map(|n| n as u64));
        let tiled = (&kernels.segment_conv_bf16, Tile::MANY);
        self.convolve(&kernels.segment_conv_f32, tiled, (x.rows, matrix), args);
        out
    }

    /// Snake at twice the rate, within segments.
    pub(super) fn resampled_snake(
        &self,
        x: &Tensor,
        (alpha, beta): (&Weight, &Weight),
        filter: &Weight,
        segments: &CudaIndex,
    ) -> Tensor {
        let (alpha, beta, filter) = (alpha.vector(), beta.vector(), filter.vector());
        assert!(alpha.len == x.columns && beta.len == x.columns, "a snake of another width");
        assert_eq!(filter.len, FILTER_TAPS, "a filter has as many taps as the trait says");
        let out = self.uninit_tensor(x.rows, x.columns);
        let [count, rows, columns] = [segments.len, x.rows, x.columns].map(|n| n as u64);
        let addresses = [x.at(), alpha.memory.at, beta.memory.at, filter.memory.at, out.at(), segments.at()];
        let [x, alpha, beta, filter, to, segments] = addresses;
        let args = &mut [x, alpha, beta, filter, to, segments, count, rows, columns];
        let blocks = (out.rows.div_ceil(RUN) * out.columns).div_ceil(TILE_THREADS);
        self.queue.launch(&self.queue.kernels().segment_snake_f32, (blocks, 1), TILE_THREADS, 0, args);
        out
    }
}
