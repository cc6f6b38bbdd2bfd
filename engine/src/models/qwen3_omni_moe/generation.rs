//! Sampling of this family: generation_config.json, and the code predictor's hard-coded sampling.

use repartee_engine_api::Sampling;

use super::config::Config;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::generation::{Defaults, Generation};

/// Default sampling of the talker.
const TALKER: Sampling = Sampling { temperature: 0.9, top_k: 50, top_p: 1.0, repetition_penalty: 1.05 };
/// Sampling of the code predictor if the talker samples; the reference hard-codes it.
const CODE_PREDICTOR: Sampling = Sampling { temperature: 1.0, top_k: 50, top_p: 0.8, repetition_penalty: 1.0 };

/// Sampling and limits of each stage.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end the thinker's text; at least one.
    pub eos_token_ids: Vec<u32>,
    /// Sampling of the thinker: greedy unless the file says `do_sample`.
    pub thinker: Sampling,
    /// Most text tokens of a response.
    pub thinker_max_new_tokens: u32,
    /// Sampling of the talker's first codebook.
    pub talker: Sampling,
    /// Most codec frames of a response.
    pub talker_max_new_tokens: u32,
    /// Sampling of the code predictor: greedy exactly if the talker is.
    pub code_predictor: Sampling,
}

impl GenerationConfig {
    /// Reads generation_config.json if it exists. Without `eos_token_id` the end of a message ends the text.
    pub fn load(checkpoint: &Checkpoint, config: &Config) -> Result<Self, CheckpointError> {
        let defaults = Defaults { end_of_message: config.im_end_token_id, talker: TALKER };
        let Generation { eos_token_ids, thinker, thinker_max_new_tokens, talker, talker_max_new_tokens } =
            Generation::load(checkpoint, defaults, config.thinker.text.vocab_size)?;
        let code_predictor = if talker.temperature > 0.0 { CODE_PREDICTOR } else { Sampling::GREEDY };
        Ok(Self { eos_token_ids, thinker, thinker_max_new_tokens, talker, talker_max_new_tokens, code_predictor })
    }
}
