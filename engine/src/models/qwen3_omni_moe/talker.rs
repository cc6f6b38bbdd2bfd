//! `talker`: reads the thinker's audio rows and text tokens, and predicts codec frames; after
//! `Qwen3OmniMoeTalkerForConditionalGeneration`.
//!
//! As in the reference, its prompt is the rows of all user messages and the header of the response.

use std::sync::Arc;

use repartee_engine_api::Role;
use repartee_kernels::Ops;

use super::config::{Config, TalkerConfig};
use crate::models::load_error::LoadError;
use crate::models::parts::depth::code_predictor;
use crate::models::parts::language_model::LanguageModel;
use crate::models::parts::talker::codec_lm::{CodecLm, allowed_codes};
use crate::models::parts::talker::frame_talker::{FrameTalker, FrameTalkerWeights, TextTable};
use crate::models::parts::talker::resize_mlp::ResizeMlp;
use crate::models::parts::talker::utterance::UtteranceTokens;
use crate::models::parts::talker::voice::{Speaker, Voice};
use crate::models::parts::weights::Weights;

/// Rows between the user rows and the first frame: the response's header and its first text token.
pub const HEADER_ROWS: usize = 9;

/// Loads `talker`; `w` is its prefix. Its text rows start from the thinker's table.
pub fn load<O: Ops>(
    w: &Weights<'_, O>,
    config: &TalkerConfig,
    thinker: Arc<LanguageModel<O>>,
) -> Result<FrameTalkerWeights<O>, LoadError> {
    let text = &config.text;
    let (vocabulary, layers) = (text.model.vocab_size, &text.model.layers);
    let resized = (config.thinker_hidden_size, layers.intermediate_size, layers.hidden_size);
    let resize = |name| ResizeMlp::load(&w.at(name), resized);
    Ok(FrameTalkerWeights {
        text: TextTable::Shared(thinker),
        text_projection: resize("text_projection")?,
        hidden_projection: Some(resize("hidden_projection")?),
        codec: CodecLm::load(
            w,
            (vocabulary, "codec_embedding.weight", layers.hidden_size),
            text.decoder(),
            |_| text.experts(text.shared_expert_intermediate_size),
            allowed_codes(vocabulary, config.ids.codec_eos),
        )?,
        least: None,
        code_predictor: code_predictor::load(&w.at("code_predictor"), &config.code_predictor)?,
    })
}

/// Adds the special ids and the voices; `header` is `<|im_start|>assistant\n`.
pub fn talker<O: Ops>(weights: FrameTalkerWeights<O>, config: &Config, header: [u32; 3]) -> FrameTalker<O> {
    let codec = &config.talker;
    let (speakers, unknown) = (codec.speaker_id.clone(), codec.ids.codec_pad);
    let speaker = move |name: &str| Speaker::Listed(speakers.get(name).copied().unwrap_or(unknown));
    FrameTalker {
        weights,
        tokens: UtteranceTokens { header, ids: codec.ids },
        reads: Role::User,
        whole: false,
        voices: Box::new(move |name| Voice { speaker: speaker(name), language: None }),
    }
}
