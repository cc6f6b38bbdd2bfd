//! `talker`: reads the thinker's audio rows and text tokens, and predicts codebook 0 of each codec frame; after
//! `Qwen3OmniMoeTalkerForConditionalGeneration`.

use repartee_kernels::{Layout, StepOps};

use super::config::TalkerConfig;
use super::thinker::{experts, text_shape};
use crate::models::LoadError;
use crate::models::parts::code_predictor::CodePredictor;
use crate::models::parts::decoder::Decoder;
use crate::models::parts::resize_mlp::ResizeMlp;
use crate::models::parts::weights::Weights;

/// Ids at the end of the codec vocabulary that generation suppresses, all but the end of speech; hard-coded in the
/// reference.
const SUPPRESSED_TAIL: usize = 1024;

/// The talker with its code predictor.
pub struct Talker<O: StepOps> {
    text_projection: ResizeMlp<O>,
    hidden_projection: ResizeMlp<O>,
    codec_embedding: O::Weight,
    /// The layers.
    pub model: Decoder<O>,
    codec_head: O::Weight,
    /// 1 for each id that may be chosen.
    pub allowed_mask: O::Weight,
    /// Codebooks 1 and up.
    pub code_predictor: CodePredictor<O>,
}

impl<O: StepOps> Talker<O> {
    /// Loads `talker`.
    pub fn load(w: &Weights<'_, O>, config: &TalkerConfig) -> Result<Self, LoadError> {
        let text = &config.text;
        let (vocabulary, hidden) = (text.vocab_size, text.hidden_size);
        let resize = |name| ResizeMlp::load(&w.at(name), (config.thinker_hidden_size, text.intermediate_size, hidden));
        let first_suppressed = vocabulary.saturating_sub(SUPPRESSED_TAIL);
        let allowed: Vec<f32> = (0..vocabulary)
            .map(|id| f32::from(id < first_suppressed || id == config.codec_eos_token_id as usize))
            .collect();
        Ok(Self {
            text_projection: resize("text_projection")?,
            hidden_projection: resize("hidden_projection")?,
            codec_embedding: w.table("model.codec_embedding.weight", vocabulary, hidden)?,
            model: Decoder::load(&w.at("model"), text_shape(text), |_| {
                experts(text, text.shared_expert_intermediate_size)
            })?,
            codec_head: w.linear("codec_head.weight", vocabulary, hidden)?,
            allowed_mask: w.made("allowed codec ids", Layout::Vector, &allowed, &[vocabulary])?,
            code_predictor: CodePredictor::load(&w.at("code_predictor"), &config.code_predictor)?,
        })
    }

    /// Rows of text: the thinker's token embeddings, projected.
    pub fn text_rows(&self, ops: &O, embeddings: &O::T) -> O::T {
        self.text_projection.forward(ops, embeddings)
    }

    /// Rows of audio: the thinker's hidden rows, projected.
    pub fn audio_rows(&self, ops: &O, hidden: &O::T) -> O::T {
        self.hidden_projection.forward(ops, hidden)
    }

    /// Embeddings of codec ids (codebook 0 and special ones).
    pub fn codec_rows(&self, ops: &O, ids: &O::Index) -> O::T {
        ops.embed_at(&self.codec_embedding, ids)
    }

    /// All layers; returns the rows `at` after the last norm: what the code predictor starts from.
    pub fn forward(&self, ops: &O, x: O::T, cache: &mut [O::State], batch: &O::Batch, at: &O::Index) -> O::T {
        let (x, _) = self.model.forward(ops, x, cache, batch, None);
        self.model.norm(ops, &ops.gather_at(&x, at))
    }

    /// Logits of codebook 0 for normed rows.
    pub fn logits(&self, ops: &O, hidden: &O::T) -> O::T {
        ops.linear(hidden, &self.codec_head, None)
    }
}
