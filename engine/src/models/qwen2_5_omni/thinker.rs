//! `thinker`: the language model that reads audio and text and writes text, after
//! `Qwen2_5OmniThinkerForConditionalGeneration` without vision. Without vision the three rotary indices of a position
//! are equal, so the sections of M-RoPE have no effect.

use repartee_kernels::StepOps;

use super::config::{TextConfig, ThinkerConfig};
use crate::device::Device;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::thinker_stage::ThinkerModel;
use crate::models::parts::weights::Weights;

/// The thinker without its audio tower.
pub struct Thinker<O: StepOps> {
    /// `model.embed_tokens`; the talker's rows use it too.
    pub embed_tokens: O::Weight,
    model: Decoder<O>,
    lm_head: O::Weight,
}

/// Shape of a text decoder, for thinker and talker.
pub(super) fn text_shape(config: &TextConfig) -> DecoderShape {
    DecoderShape { qkv_bias: true, ..config.layers.shape(None) }
}

impl<O: StepOps> Thinker<O> {
    /// Loads `thinker.model` and `thinker.lm_head`.
    pub fn load(w: &Weights<'_, O>, config: &ThinkerConfig) -> Result<Self, LoadError> {
        let text = &config.text;
        let embeddings = "model.embed_tokens.weight";
        let head = if config.tie_word_embeddings { embeddings } else { "lm_head.weight" };
        Ok(Self {
            embed_tokens: w.table(embeddings, text.vocab_size, text.layers.hidden_size)?,
            model: Decoder::load(&w.at("model"), text_shape(text), |_| {
                FeedForward::Dense(text.layers.intermediate_size)
            })?,
            lm_head: w.linear(head, text.vocab_size, text.layers.hidden_size)?,
        })
    }

    /// Bytes of one position in the KV cache.
    pub fn position_bytes(&self) -> usize {
        self.model.position_bytes()
    }
}

impl<O: Device> ThinkerModel<O> for Thinker<O> {
    fn cache(&self, ops: &O, blocks: usize, block_len: usize) -> Vec<O::State> {
        self.model.cache(ops, blocks, block_len)
    }

    fn embed(&self, ops: &O, ids: &O::Index, audio: Option<(&O::Index, &O::T)>) -> O::T {
        let x = ops.embed_at(&self.embed_tokens, ids);
        match audio {
            Some((at, audio)) => ops.scatter_at(x, at, audio),
            None => x,
        }
    }

    /// The hidden rows are the last hidden state plus the token's embedding; an audio row has no embedding.
    fn forward(&self, ops: &O, x: O::T, ids: &O::Index, cache: &mut [O::State], batch: &O::Batch) -> (O::T, O::T) {
        let (x, _) = self.model.forward(ops, x, cache, batch, None);
        let handed = ops.add(self.model.norm(ops, &x), &ops.embed_at(&self.embed_tokens, ids));
        (x, handed)
    }

    fn logits(&self, ops: &O, x: &O::T, at: &O::Index) -> O::T {
        ops.linear(&self.model.norm(ops, &ops.gather_at(x, at)), &self.lm_head, None)
    }
}
