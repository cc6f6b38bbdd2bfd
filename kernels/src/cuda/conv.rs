//! Convolutions over streams and images.

use cudarc::driver::CudaFunction;

use super::device::Cuda;
use super::launch::{Args, TILE_THREADS, Tile};
use super::matrix::Matrix;
use super::tensor::{CudaIndex, CudaState, Tensor};
use super::weight::Weight;
use crate::step::StreamLevel;

/// Threads of a block of a depthwise convolution.
const THREADS: usize = 64;
/// Words of a chunk in a row spec.
const CHUNK: usize = 4;

impl Cuda {
    /// Causal convolution: full, in groups, or depthwise.
    pub(super) fn causal(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &CudaState,
        streams: &StreamLevel<CudaIndex>,
    ) -> Tensor {
        match weight {
            Weight::Conv1d { matrix, dilation } => self.taps(x, matrix, *dilation, bias, tail, streams, false),
            Weight::Depthwise { numbers, taps } => {
                let (at, tail_rows, columns) = tail.tail();
                let bias = bias.vector();
                assert!(columns == x.columns && bias.len == x.columns && tail_rows + 1 == *taps, "sizes differ");
                let out = self.uninit_tensor(x.rows, x.columns);
                let [chunks, count, scale, skip] = level(streams);
                let addresses = [x.at(), at, numbers.memory.at, bias.memory.at, out.at(), chunks];
                let sizes = [count, scale, skip, x.rows as u64, x.columns as u64, *taps as u64, tail_rows as u64];
                let mut args = [0; 13];
                args[..6].copy_from_slice(&addresses);
                args[6..].copy_from_slice(&sizes);
                let blocks = x.len().div_ceil(THREADS);
                self.queue.launch(&self.queue.kernels().depthwise_f32, (blocks, 1), THREADS, 0, &mut args);
                self.extend_tail(x, tail, streams);
                out
            }
            Weight::GroupedConv1d(grouped) => {
                let (at, tail_rows, columns) = tail.tail();
                let bias = bias.vector();
                let outputs = grouped.outputs(x.columns, bias.len);
                assert_eq!(
                    (columns, tail_rows),
                    (x.columns, (grouped.taps - 1) * grouped.dilation),
                    "the tail differs"
                );
                let out = self.uninit_tensor(x.rows, outputs);
                let [chunks, count, scale, skip] = level(streams);
                let mut args = Args::of(&[x.at(), at, grouped.numbers.memory.at, bias.memory.at, out.at(), chunks]);
                let sizes = [x.rows, x.columns, grouped.taps, grouped.dilation, outputs, grouped.groups, tail_rows];
                args.extend(&[count, scale, skip]);
                args.extend(&sizes.map(|n| n as u64));
                let blocks = (out.len().div_ceil(TILE_THREADS), 1);
                self.queue.launch(&self.queue.kernels().grouped_conv_f32, blocks, TILE_THREADS, 0, args.all());
                self.extend_tail(x, tail, streams);
                out
            }
            other => panic!("not a convolution: {}", other.kind()),
        }
    }

    /// Transposed convolution: `stride` rows for each row of `x`.
    pub(super) fn transposed(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &CudaState,
        streams: &StreamLevel<CudaIndex>,
    ) -> Tensor {
        let Weight::ConvTranspose1d { matrix, stride, cut } = weight else {
            panic!("not a transposed convolution: {}", weight.kind())
        };
        let out = self.taps(x, matrix, 1, bias, tail, streams, *cut);
        Tensor::new(out.data, x.rows * stride, bias.vector().len)
    }

    #[allow(clippy::too_many_arguments)]
    fn taps(
        &self,
        x: &Tensor,
        matrix: &Matrix,
        dilation: usize,
        bias: &Weight,
        tail: &CudaState,
        streams: &StreamLevel<CudaIndex>,
        cut: bool,
    ) -> Tensor {
        let (at, tail_rows, columns) = tail.tail();
        let (bias, taps) = (bias.vector(), matrix.columns / x.columns);
        assert_eq!((taps * x.columns, columns), (matrix.columns, x.columns), "channels differ");
        assert_eq!(tail_rows, (taps - 1) * dilation, "the tail has other rows");
        assert!(matrix.outputs.is_multiple_of(bias.len), "the bias has another size");
        let out = self.uninit_tensor(x.rows, matrix.outputs);
        let kernels = self.queue.kernels();
        let [chunks, count, scale, skip] = level(streams);
        let addresses = [x.at(), at, matrix.memory.at, bias.memory.at, out.at(), chunks, count, scale, skip];
        let sizes = [x.rows, x.columns, taps, dilation, matrix.outputs, bias.len, tail_rows, usize::from(cut)];
        let mut args = Args::of(&addresses);
        args.extend(&sizes.map(|n| n as u64));
        let tile = Tile::of(x.rows, matrix.outputs);
        let tiled = tile.kernel([&kernels.conv_bf16, &kernels.conv_some_bf16, &kernels.conv_rows_bf16]);
        self.convolve(&kernels.conv_f32, (tiled, tile), (x.rows, matrix), args);
        self.extend_tail(x, tail, streams);
        out
    }

    /// Launches a convolution with `rows` output rows: the kernel for f32 weights, or that for bf16 with its tile.
    pub(super) fn convolve(
        &self,
        single: &CudaFunction,
        half: (&CudaFunction, Tile),
        (rows, matrix): (usize, &Matrix),
        mut args: Args,
    ) {
        args.extend(&[matrix.pitch as u64]);
        let (kernel, tile) = if matrix.kind.is_bf16() { half } else { (single, Tile::FLOAT) };
        self.queue.launch(kernel, tile.grid(rows, matrix.outputs), TILE_THREADS, 0, args.all());
    }

    /// Stores the end of each stream in its tail, for the next chunk.
    fn extend_tail(&self, x: &Tensor, tail: &CudaState, streams: &StreamLevel<CudaIndex>) {
        let (at, tail_rows, columns) = tail.tail();
        if tail_rows == 0 {
            return;
        }
        let [chunks, count, scale, skip] = level(streams);
        let args = &mut [x.at(), at, chunks, scale, skip, columns as u64, tail_rows as u64];
        let grid = (count as usize, columns.div_ceil(THREADS));
        self.queue.launch(&self.queue.kernels().extend_tail_f32, grid, THREADS, 0, args);
    }

    /// Convolution over two axes, of images.
    pub(super) fn pixels(
        &self,
        x: &Tensor,
        images: usize,
        (height, width): (usize, usize),
        weight: &Weight,
        bias: &Weight,
    ) -> Tensor {
        let Weight::Conv2d { matrix, stride } = weight else {
            panic!("not a convolution over two axes: {}", weight.kind())
        };
        let bias = bias.vector();
        assert_eq!((9 * x.columns, bias.len), (matrix.columns, matrix.outputs), "channels differ");
        assert_eq!(x.rows, images * height * width, "a row is a pixel");
        let rows = images * height.div_ceil(*stride) * width.div_ceil(*stride);
        let out = self.uninit_tensor(rows, matrix.outputs);
        let kernels = self.queue.kernels();
        let [rows, height, width, stride, channels, outputs] =
            [rows, height, width, *stride, x.columns, matrix.outputs].map(|n| n as u64);
        let addresses = [x.at(), matrix.memory.at, bias.memory.at, out.at()];
        let [x, weights, bias, y] = addresses;
        let args = Args::of(&[x, weights, bias, y, rows, height, width, stride, channels, outputs]);
        self.convolve(&kernels.conv2d_f32, (&kernels.conv2d_bf16, Tile::MANY), (out.rows, matrix), args);
        out
    }
}

/// Kernel parameters of a level: the chunks' address and number, scale and skip.
fn level(streams: &StreamLevel<CudaIndex>) -> [u64; 4] {
    [streams.chunks.at(), (streams.chunks.len / CHUNK) as u64, streams.scale as u64, streams.skip as u64]
}
