//! `talker`: reads the thinker's rows and predicts codes; after `Qwen2_5OmniTalkerForConditionalGeneration`.

use repartee_kernels::{StepOps, WeightLayout};

use super::config::TalkerConfig;
use super::thinker::text_shape;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::FeedForward;
use crate::models::parts::talker::codec_lm::CodecLm;
use crate::models::parts::weights::Weights;

/// Logit high enough that greedy sampling picks its id.
const SURE: f32 = 1e3;

/// The talker without its stage.
pub struct Talker<O: StepOps> {
    thinker_to_talker_proj: (O::Weight, O::Weight),
    /// The layers, and the codes. Allowed ids are the codec's codes and the ids that end the codes; the reference would
    /// fail on other ids.
    pub codec: CodecLm<O>,
    /// One row of logits that selects the padding id.
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

    /// Computes input rows: the sum of the thinker's rows and the embeddings of codec ids, projected.
    pub fn rows(&self, ops: &O, thinker: O::T, codec: &O::Index) -> O::T {
        let x = ops.add(thinker, &self.codec.rows(ops, codec));
        let (weight, bias) = &self.thinker_to_talker_proj;
        ops.linear(&x, weight, Some(bias))
    }

    /// Adds the padding id to the sampling history of the slots of `params`, for each entry of `rows` that is 0. The
    /// reference counts the prompt's ids as sampled; of those only the padding may be sampled.
    pub fn say_padding(&self, ops: &O, rows: &O::Index, params: &O::Index, said: &mut O::State) {
        ops.sample_at(&ops.embed_at(&self.padding, rows), params, None, Some(said));
    }
}

/// Ids that end the codes. The reference hard-codes them; in the published checkpoints they equal these two fields.
pub fn ends(config: &TalkerConfig) -> [u32; 2] {
    [config.tts_codec_pad_token_id, config.tts_codec_end_token_id]
}
