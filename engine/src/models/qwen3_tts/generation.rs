//! generation_config.json: sampling of this family. Absent fields take the defaults of the reference's `generate`.

use repartee_engine_api::Sampling;
use serde::Deserialize;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::checks::{CheckResult, ConfigSection};
use crate::models::parts::generation::greedy;

/// Name of the file.
const FILE: &str = "generation_config.json";

/// Sampling of talker and code predictor, and the length limit.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// Sampling of the talker's first codebook.
    pub talker: Sampling,
    /// Sampling of the code predictor's codebooks.
    pub code_predictor: Sampling,
    /// Most codec frames of a response.
    pub max_new_tokens: u32,
}

/// Fields as written in the file.
#[derive(Debug, Default, Deserialize)]
struct RawGenerationConfig {
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    repetition_penalty: Option<f32>,
    subtalker_dosample: Option<bool>,
    subtalker_temperature: Option<f32>,
    subtalker_top_k: Option<u32>,
    subtalker_top_p: Option<f32>,
    max_new_tokens: Option<u32>,
}

impl GenerationConfig {
    /// Reads generation_config.json if it exists.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let raw: RawGenerationConfig = checkpoint.json_file(FILE)?.unwrap_or_default();
        let generation = raw.resolve();
        let checked = generation.validate();
        checked.map_err(|value| CheckpointError::BadValue { file: checkpoint.label(FILE), value })?;
        Ok(generation)
    }

    fn validate(&self) -> CheckResult {
        let at = ConfigSection("");
        at.sampling("", &self.talker)?;
        at.sampling("subtalker_", &self.code_predictor)?;
        at.positive("max_new_tokens", self.max_new_tokens as usize)
    }
}

impl RawGenerationConfig {
    fn resolve(self) -> GenerationConfig {
        let talker = Sampling {
            temperature: self.temperature.unwrap_or(0.9),
            top_k: self.top_k.unwrap_or(50),
            top_p: self.top_p.unwrap_or(1.0),
            repetition_penalty: self.repetition_penalty.unwrap_or(1.05),
        };
        let code_predictor = Sampling {
            temperature: self.subtalker_temperature.unwrap_or(0.9),
            top_k: self.subtalker_top_k.unwrap_or(50),
            top_p: self.subtalker_top_p.unwrap_or(1.0),
            repetition_penalty: 1.0,
        };
        GenerationConfig {
            talker: if self.do_sample.unwrap_or(true) { talker } else { greedy(talker) },
            code_predictor: if self.subtalker_dosample.unwrap_or(true) {
                code_predictor
            } else {
                greedy(code_predictor)
            },
            max_new_tokens: self.max_new_tokens.unwrap_or(2048),
        }
    }
}
