//! `talker`: reads the thinker's audio rows and text tokens, and predicts codebook 0 of each codec frame; after
//! `Qwen3OmniMoeTalkerForConditionalGeneration`.

use repartee_kernels::StepOps;

use super::config::TalkerConfig;
use super::thinker::{experts, text_shape};
use crate::models::load_error::LoadError;
use crate::models::parts::depth::code_predictor::CodePredictor;
use crate::models::parts::talker::codec_lm::{CodecLm, allowed_codes};
use crate::models::parts::talker::resize_mlp::ResizeMlp;
use crate::models::parts::weights::Weights;

/// The talker with its code predictor.
pub struct Talker<O: StepOps> {
    text_projection: ResizeMlp<O>,
    hidden_projection: ResizeMlp<O>,
    /// Language model over codebook 0.
    pub codec: CodecLm<O>,
    /// Predictor of codebooks 1 and up.
    pub code_predictor: CodePredictor<O>,
}

impl<O: StepOps> Talker<O> {
    /// Loads `talker`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &TalkerConfig) -> Result<Self, LoadError> {
        let text = &config.text;
        let (vocabulary, hidden) = (text.vocab_size, text.layers.hidden_size);
        let resize =
            |name| ResizeMlp::load(&w.at(name), (config.thinker_hidden_size, text.layers.intermediate_size, hidden));
        Ok(Self {
            text_projection: resize("text_projection")?,
            hidden_projection: resize("hidden_projection")?,
            codec: CodecLm::load(
                w,
                (vocabulary, "codec_embedding.weight", hidden),
                text_shape(text),
                |_| experts(text, text.shared_expert_intermediate_size),
                allowed_codes(vocabulary, config.codec_eos_token_id),
            )?,
            code_predictor: CodePredictor::load(&w.at("code_predictor"), &config.code_predictor)?,
        })
    }

    /// Computes rows of text: the thinker's token embeddings, projected.
    pub fn text_rows(&self, ops: &O, embeddings: &O::T) -> O::T {
        self.text_projection.forward(ops, embeddings)
    }

    /// Computes rows of audio: the thinker's hidden rows, projected.
    pub fn audio_rows(&self, ops: &O, hidden: &O::T) -> O::T {
        self.hidden_projection.forward(ops, hidden)
    }
}
