//! `thinker`: the language model that reads audio and text and writes text, after
//! `Qwen3OmniMoeThinkerForConditionalGeneration` without its vision part (its rotary positions are then all the same
//! index, so the interleaved sections make no difference).

use repartee_kernels::{RouterShape, StepOps};

use super::config::{TextConfig, ThinkerConfig};
use crate::device::Device;
use crate::models::LoadError;
use crate::models::parts::decoder::{Decoder, FeedForward, DecoderShape};
use crate::models::parts::thinker_stage::ThinkerModel;
use crate::models::parts::weights::Weights;

/// The thinker without its audio tower.
pub struct Thinker<O: StepOps> {
    /// `model.embed_tokens`, which the talker's text rows start from too.
    pub embed_tokens: O::Weight,
    /// The layers.
    pub model: Decoder<O>,
    lm_head: O::Weight,
    accept_hidden_layer: usize,
}

/// Sizes of a text decoder as the thinker and the talker have it.
pub(super) fn text_shape(config: &TextConfig) -> DecoderShape {
    DecoderShape { qk_norm: true, ..config.layers.shape(None) }
}

/// The experts of a text decoder.
pub(super) fn experts(config: &TextConfig, shared: Option<usize>) -> FeedForward {
    FeedForward::Experts {
        count: config.num_experts,
        inner: config.moe_intermediate_size,
        router: RouterShape { top_k: config.num_experts_per_tok, normalise: config.norm_topk_prob },
        shared,
    }
}

impl<O: StepOps> Thinker<O> {
    /// Loads `thinker.model` and `thinker.lm_head`; hidden rows are taken where they enter `accept_hidden_layer`.
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

    /// Rows of embeddings: tokens by `ids`; `audio` are rows that are replaced, and the audio embeddings that they become.
    pub fn embed(&self, ops: &O, ids: &O::Index, audio: Option<(&O::Index, &O::T)>) -> O::T {
        let x = ops.embed_at(&self.embed_tokens, ids);
        match audio {
            Some((at, audio)) => ops.scatter_at(x, at, audio),
            None => x,
        }
    }

    /// All layers; returns the rows before the last norm and the hidden rows that the talker takes.
    pub fn forward(&self, ops: &O, x: O::T, cache: &mut [O::State], batch: &O::Batch) -> (O::T, O::T) {
        let (x, tapped) = self.model.forward(ops, x, cache, batch, Some(self.accept_hidden_layer));
        (x, tapped.expect("the accepted layer is one of the model's: its configuration was checked"))
    }

    /// Logits of the rows `at`.
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
