//! generation_config.json of a model with thinker and talker: default sampling of requests. Absent fields take the
//! defaults of the references' `generate`.

use repartee_engine_api::Sampling;
use serde::Deserialize;

use super::checks::{CheckResult, ConfigSection};
use crate::checkpoint::{Checkpoint, CheckpointError};

/// Name of the file.
const FILE: &str = "generation_config.json";

/// Sampling and limits of each stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
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
}

/// Values for fields that the file lacks, by family.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Token that ends a message, and so the text.
    pub end_of_message: u32,
    /// Sampling of the talker.
    pub talker: Sampling,
}

/// Fields as written in the file. Fields without a prefix are the thinker's.
#[derive(Debug, Default, Deserialize)]
struct RawGenerationConfig {
    eos_token_id: Option<Ids>,
    thinker_eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    repetition_penalty: Option<f32>,
    max_new_tokens: Option<u32>,
    thinker_do_sample: Option<bool>,
    thinker_temperature: Option<f32>,
    thinker_top_k: Option<u32>,
    thinker_top_p: Option<f32>,
    thinker_repetition_penalty: Option<f32>,
    thinker_max_new_tokens: Option<u32>,
    talker_do_sample: Option<bool>,
    talker_temperature: Option<f32>,
    talker_top_k: Option<u32>,
    talker_top_p: Option<f32>,
    talker_repetition_penalty: Option<f32>,
    talker_max_new_tokens: Option<u32>,
}

/// One id or a list of ids.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a token id or a list of token ids")]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Generation {
    /// Reads generation_config.json if it exists, for a thinker of `vocabulary` ids.
    pub fn load(checkpoint: &Checkpoint, defaults: Defaults, vocabulary: usize) -> Result<Self, CheckpointError> {
        let raw: RawGenerationConfig = checkpoint.json_file(FILE)?.unwrap_or_default();
        let generation = raw.resolve(defaults);
        let checked = generation.validate(vocabulary);
        checked.map_err(|value| CheckpointError::BadValue { file: checkpoint.label(FILE), value })?;
        Ok(generation)
    }

    fn validate(&self, vocabulary: usize) -> CheckResult {
        let at = ConfigSection("");
        let known = |id: &u32| usize::try_from(*id).is_ok_and(|id| id < vocabulary);
        let ends = &self.eos_token_ids;
        let all = !ends.is_empty() && ends.iter().all(known);
        at.check("eos_token_id", format!("{ends:?}"), all, "in the vocabulary")?;
        at.sampling("", &self.thinker)?;
        at.sampling("talker_", &self.talker)?;
        at.positive("max_new_tokens", self.thinker_max_new_tokens as usize)?;
        at.positive("talker_max_new_tokens", self.talker_max_new_tokens as usize)
    }
}

impl RawGenerationConfig {
    fn resolve(self, Defaults { end_of_message, talker }: Defaults) -> Generation {
        let eos_token_ids = match self.thinker_eos_token_id.or(self.eos_token_id) {
            Some(Ids::One(id)) => vec![id],
            Some(Ids::Many(ids)) => ids,
            None => vec![end_of_message],
        };
        let thinker = Sampling {
            temperature: self.thinker_temperature.or(self.temperature).unwrap_or(1.0),
            top_k: self.thinker_top_k.or(self.top_k).unwrap_or(50),
            top_p: self.thinker_top_p.or(self.top_p).unwrap_or(1.0),
            repetition_penalty: self.thinker_repetition_penalty.or(self.repetition_penalty).unwrap_or(1.0),
        };
        let talker = Sampling {
            temperature: self.talker_temperature.unwrap_or(talker.temperature),
            top_k: self.talker_top_k.unwrap_or(talker.top_k),
            top_p: self.talker_top_p.unwrap_or(talker.top_p),
            repetition_penalty: self.talker_repetition_penalty.unwrap_or(talker.repetition_penalty),
        };
        let talker = if self.talker_do_sample.unwrap_or(true) { talker } else { greedy(talker) };
        Generation {
            eos_token_ids,
            thinker: if self.thinker_do_sample.or(self.do_sample).unwrap_or(false) { thinker } else { greedy(thinker) },
            thinker_max_new_tokens: self.thinker_max_new_tokens.or(self.max_new_tokens).unwrap_or(1024),
            talker,
            talker_max_new_tokens: self.talker_max_new_tokens.unwrap_or(4096),
        }
    }
}

/// Always picks the most likely token; the repetition penalty still applies.
pub fn greedy(sampling: Sampling) -> Sampling {
    Sampling { repetition_penalty: sampling.repetition_penalty, ..Sampling::GREEDY }
}
