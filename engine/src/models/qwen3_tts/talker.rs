//! `talker`: reads text and predicts codec frames; after `Qwen3TTSTalkerForConditionalGeneration`.

use repartee_engine_api::Role;
use repartee_kernels::Ops;

use super::config::{Config, TalkerConfig};
use super::voices::VoiceList;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{DecoderShape, FeedForward};
use crate::models::parts::depth::code_predictor;
use crate::models::parts::talker::codec_lm::{CodecLm, allowed_codes};
use crate::models::parts::talker::frame_talker::{FrameTalker, FrameTalkerWeights, LeastFrames, TextTable};
use crate::models::parts::talker::resize_mlp::ResizeMlp;
use crate::models::parts::talker::utterance::UtteranceTokens;
use crate::models::parts::weights::Weights;

/// Least number of frames in a response; hard-coded in the reference.
pub const LEAST_FRAMES: usize = 2;

/// Loads `talker`; `w` is its prefix.
pub fn load<O: Ops>(w: &Weights<'_, O>, config: &TalkerConfig) -> Result<FrameTalkerWeights<O>, LoadError> {
    let (vocabulary, layers, text) = (config.model.vocab_size, &config.model.layers, config.text_hidden_size);
    let hidden = layers.hidden_size;
    let end = config.ids.codec_eos;
    Ok(FrameTalkerWeights {
        text: TextTable::Own(w.table("model.text_embedding.weight", config.text_vocab_size, text)?),
        text_projection: ResizeMlp::load(&w.at("text_projection"), (text, text, hidden))?,
        hidden_projection: None,
        codec: CodecLm::load(
            w,
            (vocabulary, "codec_embedding.weight", hidden),
            DecoderShape { qk_norm: true, ..layers.shape(config.sliding_window) },
            |_| FeedForward::Dense(layers.intermediate_size),
            allowed_codes(vocabulary, end),
        )?,
        least: Some(LeastFrames::load(w, LEAST_FRAMES, vocabulary, end)?),
        code_predictor: code_predictor::load(&w.at("code_predictor"), &config.code_predictor)?,
    })
}

/// Adds the special ids and the voices. As in the reference all text precedes the first frame, unless it streams in or
/// the checkpoint clones voices.
pub fn talker<O: Ops>(
    weights: FrameTalkerWeights<O>,
    config: &Config,
    header: [u32; 3],
    voices: VoiceList,
) -> FrameTalker<O> {
    FrameTalker {
        weights,
        tokens: UtteranceTokens { header, ids: config.talker.ids },
        reads: Role::System,
        whole: config.cloning.is_none(),
        voices: Box::new(move |name| voices.get(name)),
    }
}
