//! `talker`: reads text and predicts codebook 0 of each codec frame; after `Qwen3TTSTalkerForConditionalGeneration`.

use repartee_kernels::{StepOps, WeightLayout};

use super::config::TalkerConfig;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{DecoderShape, FeedForward};
use crate::models::parts::depth::code_predictor::CodePredictor;
use crate::models::parts::talker::codec_lm::{CodecLm, allowed_codes};
use crate::models::parts::talker::resize_mlp::ResizeMlp;
use crate::models::parts::weights::Weights;

/// Least number of frames in a response; hard-coded in the reference.
pub const LEAST_FRAMES: usize = 2;
/// Added to the logit of the end of speech while a response has fewer frames.
const NEVER: f32 = -1e9;

/// The talker with its code predictor.
pub struct Talker<O: StepOps> {
    text_embedding: O::Weight,
    text_projection: ResizeMlp<O>,
    /// Language model over codebook 0.
    pub codec: CodecLm<O>,
    /// One row, added to the logits of a response that may not end yet.
    pub endless: O::Weight,
    /// Predictor of codebooks 1 and up.
    pub code_predictor: CodePredictor<O>,
}

impl<O: StepOps> Talker<O> {
    /// Loads `talker`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &TalkerConfig) -> Result<Self, LoadError> {
        let (vocabulary, hidden, text) = (config.vocab_size, config.layers.hidden_size, config.text_hidden_size);
        let end = config.codec_eos_token_id;
        let endless: Vec<f32> = (0..vocabulary).map(|id| if id == end as usize { NEVER } else { 0.0 }).collect();
        Ok(Self {
            text_embedding: w.table("model.text_embedding.weight", config.text_vocab_size, text)?,
            text_projection: ResizeMlp::load(&w.at("text_projection"), (text, text, hidden))?,
            codec: CodecLm::load(
                w,
                (vocabulary, "codec_embedding.weight", hidden),
                DecoderShape { qk_norm: true, ..config.layers.shape(config.sliding_window) },
                |_| FeedForward::Dense(config.layers.intermediate_size),
                allowed_codes(vocabulary, end),
            )?,
            endless: w.made("the end of speech", WeightLayout::Table, &endless, &[1, vocabulary])?,
            code_predictor: CodePredictor::load(&w.at("code_predictor"), &config.code_predictor)?,
        })
    }

    /// Computes rows of text: its embeddings, projected.
    pub fn text_rows(&self, ops: &O, ids: &O::Index) -> O::T {
        self.text_projection.forward(ops, &ops.embed_at(&self.text_embedding, ids))
    }
}
