//! Attention over the KV cache.

use super::device::Cuda;
use super::launch::{Args, MAX_HEAD_DIM, TILE_THREADS, WARP, WARPS, attention_bytes, bits, scale};
use super::tensor::{CudaBatch, CudaState, Tensor};
use super::weight::Weight;
use crate::shapes::AttentionShape;

impl Cuda {
    /// Queries, keys and values of joined rows, normed and rotated.
    pub(super) fn heads_of(
        &self,
        rows: &Tensor,
        (norms, eps): (Option<(&Weight, &Weight)>, f32),
        (batch, frequencies): (&CudaBatch, Option<&Weight>),
        shape: AttentionShape,
    ) -> [Tensor; 3] {
        let (dim, heads) = (shape.head_dim, shape.heads + 2 * shape.kv_heads);
        assert!(dim.is_multiple_of(2) && rows.columns == heads * dim, "widths differ");
        let [q, k, v] =
            [shape.heads, shape.kv_heads, shape.kv_heads].map(|heads| self.uninit_tensor(rows.rows, heads * dim));
        let at = |weight: Option<&Weight>, len: usize| {
            weight.map_or(0, |weight| {
                assert_eq!(weight.vector().len, len, "widths differ");
                weight.vector().memory.at
            })
        };
        let [of_queries, of_keys] = [norms.map(|norms| norms.0), norms.map(|norms| norms.1)].map(|norm| at(norm, dim));
        let mut args = Args::of(&[rows.at(), of_queries, of_keys, at(frequencies, dim / 2), batch.words.at()]);
        args.extend(&[q.at(), k.at(), v.at()]);
        args.extend(&[batch.sequences, batch.stride, shape.heads, shape.kv_heads, dim].map(|n| n as u64));
        args.extend(&[bits(eps)]);
        let grid = (rows.rows, heads.div_ceil(WARPS));
        self.queue.launch(&self.queue.kernels().split_heads_f32, grid, WARPS * WARP, 0, args.all());
        [q, k, v]
    }

    /// Stores the rows' keys and values at their positions.
    pub(super) fn store_rows(&self, (k, v): (&Tensor, &Tensor), cache: &CudaState, batch: &CudaBatch) {
        let (keys, values, sizes) = numbers(cache);
        assert_eq!([k.columns as u64, v.columns as u64], [sizes[0]; 2], "widths differ");
        let [sequences, stride] = [batch.sequences as u64, batch.stride as u64];
        let args = &mut [k.at(), v.at(), keys, values, batch.words.at(), sequences, stride, sizes[0], sizes[1]];
        self.queue.launch(&self.queue.kernels().store_keys_f32, (k.rows, 1), TILE_THREADS, 0, args);
    }

    /// Computes attention of each row over its sequence up to the end of the row's chunk; the keys are stored already.
    pub(super) fn cached_attention(
        &self,
        q: &Tensor,
        cache: &CudaState,
        batch: &CudaBatch,
        shape: AttentionShape,
    ) -> Tensor {
        let (keys, values, sizes) = numbers(cache);
        assert!(shape.head_dim <= MAX_HEAD_DIM, "a head has at most {MAX_HEAD_DIM} numbers");
        let widths = [shape.kv_heads, shape.heads].map(|heads| heads * shape.head_dim);
        assert_eq!(([widths[0] as u64], widths[1]), ([sizes[0]], q.columns), "widths differ");
        let [sequences, stride] = [batch.sequences as u64, batch.stride as u64];
        let out = self.uninit_tensor(q.rows, q.columns);
        let group = (shape.heads / shape.kv_heads) as u64;
        let window = shape.window.map_or(u64::from(u32::MAX), |window| window as u64);
        let chunk = shape.chunk.map_or(1, |chunk| chunk as u64);
        let [dim, scale] = [shape.head_dim as u64, bits(scale(shape.head_dim))];
        let args = &mut [
            q.at(),
            keys,
            values,
            batch.words.at(),
            out.at(),
            sequences,
            stride,
            group,
            sizes[0],
            sizes[1],
            dim,
            window,
            chunk,
            scale,
        ];
        let shared = attention_bytes(shape.head_dim);
        self.queue.launch(&self.queue.kernels().attention_f32, (q.rows, shape.heads), WARPS * WARP, shared, args);
        out
    }
}

/// Addresses of keys and of values; numbers of a position, and positions of a block.
fn numbers(cache: &CudaState) -> (u64, u64, [u64; 2]) {
    let CudaState::KeyValue { keys, values, block_len, width } = cache else {
        panic!("attention needs keys and values, got {}", cache.kind())
    };
    (keys.at, values.at, [*width as u64, *block_len as u64])
}
