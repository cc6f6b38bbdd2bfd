//! `talker`: reads what the thinker hands over and predicts codes; after `Qwen2_5OmniTalkerForConditionalGeneration`.

use repartee_kernels::{WeightLayout, StepOps};

use super::config::TalkerConfig;
use super::thinker::text_shape;
use crate::models::LoadError;
use crate::models::parts::codec_lm::CodecLm;
use crate::models::parts::decoder::FeedForward;
use crate::models::parts::weights::Weights;

/// A logit that is chosen.
const SURE: f32 = 1e3;

/// The talker.
pub struct Talker<O: StepOps> {
    thinker_to_talker_proj: (O::Weight, O::Weight),
    /// The layers, and the codes. What may be chosen is what the codec knows, and what ends the codes; the reference would fail on the
    /// other ids.
    pub codec: CodecLm<O>,
    /// One row of logits, of the padding.
    padding: O::Weight,
}

impl<O: StepOps> Talker<O> {
    /// Loads `talker` for a codec of `codes` codes.
    pub fn load(w: &Weights<'_, O>, config: &TalkerConfig, codes: usize) -> Result<Self, LoadError> {
        let (text, input) = (&config.text, config.embedding_size);
        let (vocabulary, hidden) = (text.vocab_size, text.layers.hidden_size);
        let ends = ends(config);
        let padding = (0..vocabulary).map(|id| if id == config.tts_codec_pad_token_id as usize { SURE } else { 0.0 });
        let projection = w.at("thinker_to_talker_proj");
        Ok(Self {
            thinker_to_talker_proj: (projection.linear("weight", hidden, input)?, projection.vector("bias", hidden)?),
            codec: CodecLm::load(
                w,
                (vocabulary, "embed_tokens.weight", input),
                text_shape(text),
                |_| FeedForward::Dense(text.layers.intermediate_size),
                |id| id < codes || ends.contains(&(id as u32)),
            )?,
            padding: w.made("padding", WeightLayout::Table, &padding.collect::<Vec<_>>(), &[1, vocabulary])?,
        })
    }

    /// Input rows: the thinker's, with the embeddings of codec ids, projected.
    pub fn rows(&self, ops: &O, thinker: O::T, codec: &O::Index) -> O::T {
        let x = ops.add(thinker, &self.codec.rows(ops, codec));
        let (weight, bias) = &self.thinker_to_talker_proj;
        ops.linear(&x, weight, Some(bias))
    }

    /// Marks the padding as said, for each entry of `rows` that is 0, in the history of the slots of `params`: the reference counts the
    /// prompt's ids as said, and of those the padding alone may be chosen.
    pub fn say_padding(&self, ops: &O, rows: &O::Index, params: &O::Index, said: &mut O::State) {
        ops.sample_at(&ops.embed_at(&self.padding, rows), params, None, Some(said));
    }
}

/// The ids that end the codes; hard-coded in the reference as what these two are in the published checkpoints.
pub fn ends(config: &TalkerConfig) -> [u32; 2] {
    [config.tts_codec_pad_token_id, config.tts_codec_end_token_id]
}
