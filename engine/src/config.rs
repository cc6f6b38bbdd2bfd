//! How an engine is set up: the `[engine]` table of the settings file. Every value is checked at start and refused by
//! its field's name.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::deadline::Order;
use crate::hand_off::{Chunks, HandOff};

/// How much the engine may take, and how its stages work together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Sessions at once; fewer if the memory is not enough for as many.
    pub sessions: usize,
    /// Answers outside of their conversations at once, of all sessions together.
    pub beside: usize,
    /// MiB for the keys and values of all conversations; memory is taken as positions are used.
    pub cache_mib: usize,
    /// Positions (text tokens and rows of sound) of one session; older items are forgotten beyond. At most the model's
    /// context.
    pub session_tokens: usize,
    /// How stages hand over.
    pub hand_off: HandOff,
    /// Whether a stage advances many sessions as one batch; without, one after the other, to compare.
    pub batch: bool,
    /// Whether sessions run by deadline; without, in the order in which they asked, to compare.
    pub deadlines: bool,
    /// Limits of waiting.
    pub waits: Waits,
    /// Settings of single stages, by the stage's name.
    pub stages: BTreeMap<String, StageConfig>,
}

/// Limits of waiting, in seconds. A session that waits longer ends with an error that says for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Waits {
    /// For a caller to read what it was sent.
    pub unread_s: u32,
    /// For a stage to make something of an answer.
    pub stage_s: u32,
    /// For the decision on an answer begun on suspicion.
    pub decision_s: u32,
}

/// Settings of one stage; what is left out is the model's own choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StageConfig {
    /// Rows of all sessions in one step.
    pub batch_rows: Option<usize>,
    /// Rows of one session in one step: the chunks in which a long prompt is read.
    pub prefill_chunk: Option<usize>,
    /// Pieces (text tokens, codec frames) of an answer that the stage is given first.
    pub initial_chunk: Option<usize>,
    /// Pieces that it is given at a time after that.
    pub steady_chunk: Option<usize>,
    /// Decode each chunk anew with so many frames before it, in place of carried state; to compare. Code2wav only.
    pub left_context: Option<usize>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sessions: 64,
            beside: 8,
            cache_mib: 4096,
            session_tokens: 8192,
            hand_off: HandOff::default(),
            batch: true,
            deadlines: true,
            waits: Waits::default(),
            stages: BTreeMap::new(),
        }
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self { unread_s: 60, stage_s: 60, decision_s: 30 }
    }
}

impl Waits {
    /// A limit as a duration.
    pub fn limit(seconds: u32) -> Duration {
        Duration::from_secs(u64::from(seconds))
    }
}

/// Rows in one step of a stage that names no limit.
const BATCH_ROWS: usize = 512;
/// The most that any number of rows or pieces may be.
const MOST_ROWS: usize = 65_536;

/// A setting that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("engine.{field} is {value}: {allowed}")]
pub struct ConfigError {
    /// Its path below `engine`.
    pub field: String,
    /// What it is.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

impl ConfigError {
    /// For a field, its value, and what it may be.
    pub fn new(field: impl Into<String>, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

impl EngineConfig {
    /// Checks everything that can be checked without a model.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("sessions", self.sessions, 1, MOST_ROWS)?;
        within("beside", self.beside, 0, MOST_ROWS)?;
        within("cache_mib", self.cache_mib, 1, 1 << 24)?;
        within("session_tokens", self.session_tokens, 64, 1 << 24)?;
        let Waits { unread_s, stage_s, decision_s } = self.waits;
        for (field, value) in [("unread_s", unread_s), ("stage_s", stage_s), ("decision_s", decision_s)] {
            within(&format!("waits.{field}"), value as usize, 1, 86_400)?;
        }
        for (name, stage) in &self.stages {
            let StageConfig { batch_rows, prefill_chunk, initial_chunk, steady_chunk, left_context } = *stage;
            let fields = [
                ("batch_rows", batch_rows),
                ("prefill_chunk", prefill_chunk),
                ("initial_chunk", initial_chunk),
                ("steady_chunk", steady_chunk),
                ("left_context", left_context),
            ];
            for (field, value) in fields {
                if let Some(value) = value {
                    within(&format!("stages.{name}.{field}"), value, 1, MOST_ROWS)?;
                }
            }
        }
        Ok(())
    }

    /// Refuses settings of stages that the model does not have, and those that a stage cannot follow; `stages` are the model's,
    /// and whether each can decode with left context.
    pub fn check_stages(&self, stages: &[(&str, bool)]) -> Result<(), ConfigError> {
        for (name, stage) in &self.stages {
            let known = || stages.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let Some((_, left_context)) = stages.iter().find(|(stage, _)| stage == name) else {
                let allowed = format!("this model's stages are {}", known());
                return Err(ConfigError::new(format!("stages.{name}"), "no stage", allowed));
            };
            if let Some(value) = stage.left_context
                && !left_context
            {
                let field = format!("stages.{name}.left_context");
                return Err(ConfigError::new(field, value, "this stage has none"));
            }
        }
        Ok(())
    }

    /// Settings of one stage.
    pub fn stage(&self, name: &str) -> StageConfig {
        self.stages.get(name).copied().unwrap_or_default()
    }

    /// In which order sessions run.
    pub fn order(&self) -> Order {
        if self.deadlines { Order::Deadline } else { Order::Arrival }
    }
}

impl StageConfig {
    /// Rows of all sessions in one step.
    pub fn batch(&self) -> usize {
        self.batch_rows.unwrap_or(BATCH_ROWS)
    }

    /// The chunks in which the stage is given an answer.
    pub fn chunks(&self) -> Chunks {
        Chunks { initial: self.initial_chunk.unwrap_or(1), steady: self.steady_chunk.unwrap_or(1) }
    }
}

fn within(field: &str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::new(field, value, format!("it may be {least} to {most}")))
    }
}
