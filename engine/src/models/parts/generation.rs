//! generation_config.json: default sampling of requests. Absent fields take the defaults of the references'
//! `generate`.

use repartee_engine_api::Sampling;
use serde::Deserialize;

use super::config::limits::{RESPONSE, VOCABULARY};
use super::config::{ConfigFile, ConfigSection};
use crate::checkpoint::{Checkpoint, CheckpointError};

/// Name of the file.
const FILE: &str = "generation_config.json";

/// Sampling and limits of the stages of a model with thinker and talker.
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
    /// Sampling of a frame's other codebooks: greedy exactly if the talker is.
    pub code_predictor: Sampling,
}

/// Values for fields that the file lacks, by family.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Token that ends a message, and so the text.
    pub end_of_message: u32,
    /// Sampling of the talker.
    pub talker: Sampling,
    /// Sampling of the code predictor if the talker samples; no field sets it.
    pub code_predictor: Sampling,
}

/// One id or a list of ids.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a token id or a list of token ids")]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Generation {
    /// Reads generation_config.json if it exists, for a thinker of `vocabulary` ids. Fields without a prefix are the
    /// thinker's.
    pub fn load(checkpoint: &Checkpoint, absent: Defaults, vocabulary: usize) -> Result<Self, CheckpointError> {
        let file = generation_file(checkpoint)?;
        let at = file.top()?;
        let ends = at.first_of(&["thinker_eos_token_id", "eos_token_id"]);
        let eos_token_ids = stop_ids(&at, ends, vocabulary)?.unwrap_or_else(|| vec![absent.end_of_message]);
        let thinker = Sampling { temperature: 1.0, top_k: 50, top_p: 1.0, repetition_penalty: 1.0 };
        let talker = sampling(&at, &["talker_"], "do_sample", (absent.talker, true))?;
        let most = at.first_of(&["thinker_max_new_tokens", "max_new_tokens"]);
        Ok(Self {
            eos_token_ids,
            thinker: sampling(&at, &["thinker_", ""], "do_sample", (thinker, false))?,
            thinker_max_new_tokens: at.size(most, 1024, RESPONSE)? as u32,
            code_predictor: if talker.temperature > 0.0 { absent.code_predictor } else { Sampling::GREEDY },
            talker,
            talker_max_new_tokens: at.size("talker_max_new_tokens", 4096, RESPONSE)? as u32,
        })
    }
}

/// Reads the tokens that end a text: one id or a list of some; `None` if the field is absent.
pub fn stop_ids(at: &ConfigSection<'_>, field: &str, vocabulary: usize) -> Result<Option<Vec<u32>>, CheckpointError> {
    let ids = match at.get(field)? {
        Some(Ids::One(id)) => vec![id],
        Some(Ids::Many(ids)) => ids,
        None => return Ok(None),
    };
    let known = |id: &u32| usize::try_from(*id).is_ok_and(|id| id < vocabulary);
    at.check(field, format!("{ids:?}"), !ids.is_empty() && ids.iter().all(known), "in the vocabulary")?;
    Ok(Some(ids))
}

/// Opens generation_config.json, which a checkpoint may lack.
pub fn generation_file(checkpoint: &Checkpoint) -> Result<ConfigFile, CheckpointError> {
    ConfigFile::optional(checkpoint, FILE)
}

/// Reads sampling parameters from the fields whose names begin with the first of `prefixes` that the file has. The field
/// `switch` says whether to sample; otherwise the most likely token is picked, and the repetition penalty still applies.
pub fn sampling(
    at: &ConfigSection<'_>,
    prefixes: &[&str],
    switch: &str,
    (absent, sampled): (Sampling, bool),
) -> Result<Sampling, CheckpointError> {
    let field = |name: &str| {
        let names: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}{name}")).collect();
        at.first_of(&names.iter().map(String::as_str).collect::<Vec<_>>()).to_owned()
    };
    let most = *VOCABULARY.end() as u32;
    let number = |name: &str, absent: f32, holds: fn(f32) -> bool, allowed| {
        at.value(&field(name), absent, |value: f32| value.is_finite() && holds(value), allowed)
    };
    let sampling = Sampling {
        temperature: number("temperature", absent.temperature, |value| value >= 0.0, "a number from 0 upwards")?,
        top_k: at.value(&field("top_k"), absent.top_k, |count| count <= most, &format!("at most {most}"))?,
        top_p: number("top_p", absent.top_p, |share| share > 0.0 && share <= 1.0, "above 0, at most 1")?,
        repetition_penalty: number("repetition_penalty", absent.repetition_penalty, |value| value > 0.0, "above 0")?,
    };
    let greedy = Sampling { repetition_penalty: sampling.repetition_penalty, ..Sampling::GREEDY };
    Ok(if at.switch(&field(switch), sampled)? { sampling } else { greedy })
}
