//! `thinker`: the language model that reads audio and text and writes text, after
//! `Qwen3OmniMoeThinkerForConditionalGeneration` without vision. Without vision its rotary positions all have one
//! index, so the interleaved sections have no effect.

use repartee_kernels::{Ops, RouterShape};

use super::config::{TextConfig, ThinkerConfig};
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{DecoderShape, FeedForward};
use crate::models::parts::language_model::{HandedRow, LanguageModel, LanguageModelShape};
use crate::models::parts::weights::Weights;

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

/// Loads `thinker.model` and `thinker.lm_head`; the talker gets the rows that enter layer `accept_hidden_layer`.
pub fn load<O: Ops>(
    w: &Weights<'_, O>,
    config: &ThinkerConfig,
    accept_hidden_layer: usize,
) -> Result<LanguageModel<O>, LoadError> {
    let text = &config.text;
    let shape = LanguageModelShape {
        vocabulary: text.vocab_size,
        tied: text.tie_word_embeddings,
        decoder: text_shape(text),
        handed: Some(HandedRow::Entering(accept_hidden_layer)),
    };
    LanguageModel::load(w, shape, |layer| {
        if text.is_moe_layer(layer) { experts(text, None) } else { FeedForward::Dense(text.layers.intermediate_size) }
    })
}
