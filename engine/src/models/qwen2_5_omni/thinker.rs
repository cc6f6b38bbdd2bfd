//! `thinker`: the language model that reads audio and text and writes text, after
//! `Qwen2_5OmniThinkerForConditionalGeneration` without vision. Without vision the three rotary indices of a position
//! are equal, so the sections of M-RoPE have no effect.

use repartee_kernels::Ops;

use super::config::{TextConfig, ThinkerConfig};
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{DecoderShape, FeedForward};
use crate::models::parts::language_model::{HandedRow, LanguageModel, LanguageModelShape};
use crate::models::parts::weights::Weights;

/// Shape of a text decoder, for thinker and talker.
pub(super) fn text_shape(config: &TextConfig) -> DecoderShape {
    DecoderShape { qkv_bias: true, ..config.layers.shape(None) }
}

/// Loads `thinker.model` and `thinker.lm_head`.
pub fn load<O: Ops>(w: &Weights<'_, O>, config: &ThinkerConfig) -> Result<LanguageModel<O>, LoadError> {
    let text = &config.text;
    let shape = LanguageModelShape {
        vocabulary: text.vocab_size,
        tied: config.tie_word_embeddings,
        decoder: text_shape(text),
        handed: Some(HandedRow::LastAndEmbedding),
    };
    LanguageModel::load(w, shape, |_| FeedForward::Dense(text.layers.intermediate_size))
}
