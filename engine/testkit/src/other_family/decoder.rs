//! Decoder of both language models.

use repartee_engine::internals::decoder::{Decoder, DecoderShape, FeedForward};
use repartee_engine::internals::weights::Weights;
use repartee_kernels::AttentionShape;
use repartee_kernels::cpu::Cpu;

use super::sizes::{HIDDEN, INNER, LAYERS};

/// Loads the decoder at `w`.
pub(super) fn decoder(w: &Weights<'_, Cpu>) -> Decoder<Cpu> {
    let attention = AttentionShape { heads: 2, kv_heads: 1, head_dim: 16, window: None, chunk: None };
    let shape = DecoderShape::plain(HIDDEN, LAYERS, attention);
    Decoder::load(w, shape, |_| FeedForward::Dense(INNER)).unwrap()
}
