//! `talker`: reads text and predicts codebook 0 of each codec frame; after `Qwen3TTSTalkerForConditionalGeneration`.

use repartee_kernels::{Attention, Layout, StepOps};

use super::config::TalkerConfig;
use crate::models::LoadError;
use crate::models::parts::code_predictor::CodePredictor;
use crate::models::parts::decoder::{Decoder, FeedForward, Shape};
use crate::models::parts::resize_mlp::ResizeMlp;
use crate::models::parts::weights::Weights;

/// Ids at the end of the codec vocabulary that generation suppresses, all but the end of speech; hard-coded in the reference.
pub const SUPPRESSED_TAIL: usize = 1024;
/// Frames that a response has at least; hard-coded in the reference.
pub const LEAST_FRAMES: usize = 2;
/// Added to the logit of the end of speech while a response has fewer frames.
const NEVER: f32 = -1e9;

/// The talker with its code predictor.
pub struct Talker<O: StepOps> {
    text_embedding: O::Weight,
    text_projection: ResizeMlp<O>,
    codec_embedding: O::Weight,
    /// The layers.
    pub model: Decoder<O>,
    codec_head: O::Weight,
    /// 1 for each id that may be chosen.
    pub allowed_mask: O::Weight,
    /// One row, added to the logits of a response that may not end yet.
    pub endless: O::Weight,
    /// Codebooks 1 and up.
    pub code_predictor: CodePredictor<O>,
}

impl<O: StepOps> Talker<O> {
    /// Loads `talker`.
    pub fn load(w: &Weights<'_, O>, config: &TalkerConfig) -> Result<Self, LoadError> {
        let (vocabulary, hidden, text) = (config.vocab_size, config.hidden_size, config.text_hidden_size);
        let first_suppressed = vocabulary.saturating_sub(SUPPRESSED_TAIL);
        let is_end = |id: usize| id == config.codec_eos_token_id as usize;
        let allowed: Vec<f32> = (0..vocabulary).map(|id| f32::from(id < first_suppressed || is_end(id))).collect();
        let endless: Vec<f32> = (0..vocabulary).map(|id| if is_end(id) { NEVER } else { 0.0 }).collect();
        let model = w.at("model");
        Ok(Self {
            text_embedding: model.table("text_embedding.weight", config.text_vocab_size, text)?,
            text_projection: ResizeMlp::load(&w.at("text_projection"), (text, text, hidden))?,
            codec_embedding: model.table("codec_embedding.weight", vocabulary, hidden)?,
            model: Decoder::load(&model, shape(config), |_| FeedForward::Dense(config.intermediate_size))?,
            codec_head: w.linear("codec_head.weight", vocabulary, hidden)?,
            allowed_mask: w.made("allowed codec ids", Layout::Vector, &allowed, &[vocabulary])?,
            endless: w.made("the end of speech", Layout::Table, &endless, &[1, vocabulary])?,
            code_predictor: CodePredictor::load(&w.at("code_predictor"), &config.code_predictor)?,
        })
    }

    /// Rows of text: its embeddings, projected.
    pub fn text_rows(&self, ops: &O, ids: &O::Index) -> O::T {
        self.text_projection.forward(ops, &ops.embed_at(&self.text_embedding, ids))
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

fn shape(config: &TalkerConfig) -> Shape {
    Shape {
        hidden: config.hidden_size,
        layers: config.num_hidden_layers,
        attention: Attention {
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            window: config.sliding_window,
        },
        eps: config.rms_norm_eps as f32,
        theta: config.rope.theta as f32,
        qkv_bias: false,
        qk_norm: true,
        layer_scale: false,
    }
}
