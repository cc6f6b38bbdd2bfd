//! `thinker`: the language model that reads audio and text and writes text, after
//! `Qwen3OmniMoeThinkerForConditionalGeneration` without vision. Without vision its rotary positions all have one
//! index, so the interleaved sections have no effect.

use repartee_kernels::{RouterShape, StepOps};

use super::config::{TextConfig, ThinkerConfig};
use crate::device::Device;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::thinker_stage::ThinkerModel;
use crate::models::parts::weights::Weights;

/// The thinker without its audio tower.
pub struct Thinker<O: StepOps> {
    /// `model.embed_tokens`; the talker's text rows start from it too.
    pub embed_tokens: O::Weight,
    /// Transformer layers and the last norm.
    pub model: Decoder<O>,
    lm_head: O::Weight,
    accept_hidden_layer: usize,
}

/// Shape of a text decoder, for thinker and talker.
pub(super) fn text_shape(config: &TextConfig) -> DecoderShape {
    DecoderShape { qk_norm: true, ..config.layers.shape(None) }
}

/// Experts of a text decoder.
pub(super) fn experts(config: &TextConfig, shared: Option<usize>) -> FeedForward {
    FeedForward::Experts {
        count: config.num_experts,
        inner: config.moe_intermediate_size,
        router: RouterShape { top_k: config.num_experts_per_tok, normalise: config.norm_topk_prob },
        shared,
    }
}

impl<O: StepOps> Thinker<O> {
    /// Loads `thinker.model` and `thinker.lm_head`; hidden rows are those that enter layer `accept_hidden_layer`.
    pub fn load(w: &Weights<'_, O>, config: &ThinkerConfig, accept_hidden_layer: usize) -> Result<Self, LoadError> {
        let text = &config.text;
        let model = w.at("model");
        let (embeddings, head) = ("model.embed_tokens.weight", "lm_head.weight");
        Ok(Self {
            embed_tokens: w.table(embeddings, text.vocab_size, text.layers.hidden_size)?,
            model: Decoder::load(&model, text_shape(text), |i| {
                if text.is_moe_layer(i) {
                    experts(text, None)
                } else {
                    FeedForward::Dense(text.layers.intermediate_size)
                }
            })?,
            lm_head: w.linear(
                if text.tie_word_embeddings { embeddings } else { head },
                text.vocab_size,
                text.layers.hidden_size,
            )?,
            accept_hidden_layer,
        })
    }

    /// Embeds tokens by `ids`; `audio` holds the indices of rows to replace, and their audio embeddings.
    pub fn embed(&self, ops: &O, ids: &O::Index, audio: Option<(&O::Index, &O::T)>) -> O::T {
        let x = ops.embed_at(&self.embed_tokens, ids);
        match audio {
            Some((at, audio)) => ops.scatter_at(x, at, audio),
            None => x,
        }
    }

    /// Runs all layers; returns the rows before the last norm and the hidden rows for the talker.
    pub fn forward(&self, ops: &O, x: O::T, cache: &mut [O::State], batch: &O::Batch) -> (O::T, O::T) {
        let (x, tapped) = self.model.forward(ops, x, cache, batch, Some(self.accept_hidden_layer));
        (x, tapped.expect("the accepted layer is one of the model's: its configuration was checked"))
    }

    /// Computes logits of the rows `at`.
    pub fn logits(&self, ops: &O, x: &O::T, at: &O::Index) -> O::T {
        ops.linear(&self.model.norm(ops, &ops.gather_at(x, at)), &self.lm_head, None)
    }
}

impl<O: Device> ThinkerModel<O> for Thinker<O> {
    fn cache(&self, ops: &O, blocks: usize, block_len: usize) -> Vec<O::State> {
        self.model.cache(ops, blocks, block_len)
    }

    fn embed(&self, ops: &O, ids: &O::Index, audio: Option<(&O::Index, &O::T)>) -> O::T {
        self.embed(ops, ids, audio)
    }

    fn forward(&self, ops: &O, x: O::T, _: &O::Index, cache: &mut [O::State], batch: &O::Batch) -> (O::T, O::T) {
        self.forward(ops, x, cache, batch)
    }

    fn logits(&self, ops: &O, x: &O::T, at: &O::Index) -> O::T {
        self.logits(ops, x, at)
    }
}
