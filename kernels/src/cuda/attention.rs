//! Attention over the KV cache.

use super::device::Cuda;
use super::launch::{MAX_HEAD_DIM, TILE_THREADS, WARP, WARPS, attention_bytes, bits, scale};
use super::tensor::{CudaBatch, CudaState, Tensor};
use crate::shapes::AttentionShape;

impl Cuda {
    /// Stores the rows' keys and values, then computes attention up to the end of a row's chunk.
    pub(super) fn cached_attention(
        &self,
        (q, k, v): (&Tensor, &Tensor, &Tensor),
        cache: &CudaState,
        batch: &CudaBatch,
        shape: AttentionShape,
    ) -> Tensor {
        let CudaState::KeyValue { keys, values, block_len, width } = cache else {
            panic!("attention needs keys and values, got {}", cache.kind())
        };
        let kernels = self.queue.kernels();
        assert!(shape.head_dim <= MAX_HEAD_DIM, "a head has at most {MAX_HEAD_DIM} numbers");
        assert_eq!((k.columns, v.columns, q.columns), (*width, *width, shape.heads * shape.head_dim), "widths differ");
        let [sequences, stride] = [batch.sequences as u64, batch.stride as u64];
        let sizes = [*width as u64, *block_len as u64];
        let words = batch.words.at();
        let store = &mut [k.at(), v.at(), keys.at, values.at, words, sequences, stride, sizes[0], sizes[1]];
        self.queue.launch(&kernels.store_keys_f32, (k.rows, 1), TILE_THREADS, 0, store);
        let out = self.uninit_tensor(q.rows, q.columns);
        let group = (shape.heads / shape.kv_heads) as u64;
        let window = shape.window.map_or(u64::from(u32::MAX), |window| window as u64);
        let chunk = shape.chunk.map_or(1, |chunk| chunk as u64);
        let [dim, scale] = [shape.head_dim as u64, bits(scale(shape.head_dim))];
        let args = &mut [
            q.at(),
            keys.at,
            values.at,
            words,
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
        self.queue.launch(&kernels.attention_f32, (q.rows, shape.heads), WARPS * WARP, shared, args);
        out
    }
}
