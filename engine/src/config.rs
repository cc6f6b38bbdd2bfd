//! Settings of the table `[engine]`. Values are checked at start; an error names the field.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::deadline::SchedulingOrder;
use crate::device::DeviceChoice;
use crate::hand_off::{ChunkSizes, HandOff};
use crate::spoken_answers::{MAX_INSTRUCTIONS, SpokenAnswersConfig, TOKENS};
use crate::spoken_text::{MAX_SENTENCE, SpokenTextConfig};
use crate::weight_policy::{KvCacheFormat, WeightPolicy};

/// Renamed settings, as (old, new) paths. An old path at the start of a path is replaced by the new one; apply the
/// pairs in this order.
pub const RENAMED: &[(&str, &str)] = &[
    ("engine.beside", "engine.out_of_band"),
    ("engine.waits", "engine.timeouts"),
    ("engine.timeouts.decision_s", "engine.timeouts.speculation_s"),
];

/// Settings of an engine: memory, batching, scheduling, timeouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Upper bound of concurrent sessions; fewer if the memory does not suffice.
    pub sessions: usize,
    /// Upper bound of concurrent out-of-band responses, of all sessions together.
    #[serde(alias = "beside")]
    pub out_of_band: usize,
    /// MiB for the state of all sessions in all stages; memory is allocated as it is used.
    pub cache_mib: usize,
    /// Upper bound of one session's positions (text tokens and rows of audio); beyond it the oldest items are evicted.
    /// At most the model's context.
    pub session_tokens: usize,
    /// True if the checkpoint can transcribe input audio on request, which not every one was taught.
    pub transcribes: bool,
    /// True if the checkpoint can translate input audio into English on request.
    pub translates: bool,
    /// Licences of weights that are accepted, by name: those of families whose weights not everybody may use.
    pub accept_licence: Vec<String>,
    /// Device of the model.
    pub device: DeviceChoice,
    /// Hand-off mode between stages.
    pub hand_off: HandOff,
    /// True if a stage advances many slots as one batch; false for one after another, for comparison.
    pub batch: bool,
    /// Storage format of matrices.
    pub weights: WeightPolicy,
    /// Storage format of keys and values; only the CPU offers a choice.
    pub kv_cache: KvCacheFormat,
    /// Number of computing threads; unset for one on each physical core, at most 8.
    pub threads: Option<usize>,
    /// Number of tick loops, which share the sessions, the threads and the cache: a session stays on one. They keep the
    /// weights once. Only the processor has more than one.
    pub loops: usize,
    /// True if sessions run by deadline; false for first come, first served, for comparison.
    pub deadlines: bool,
    /// Timeouts of sessions and responses.
    #[serde(alias = "waits")]
    pub timeouts: Timeouts,
    /// Form in which given text reaches a voice.
    pub spoken_text: SpokenTextConfig,
    /// Defaults of answers that a cascade speaks.
    pub spoken_answers: SpokenAnswersConfig,
    /// Settings of single stages, by name of the stage.
    pub stages: BTreeMap<String, StageConfig>,
}

/// Timeouts in seconds. A session that exceeds one ends with an error that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Timeout of the caller to read an event while its queue is full.
    pub unread_s: u32,
    /// Timeout of a stage to advance an active response, and of the encoder to advance a pending one.
    pub stage_s: u32,
    /// Timeout of a speculation's commit or abort.
    #[serde(alias = "decision_s")]
    pub speculation_s: u32,
}

/// Settings of one stage; unset ones take the model's or the engine's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageConfig {
    /// Upper bound of all slots' rows in one step.
    pub batch_rows: Option<usize>,
    /// Upper bound of one slot's rows in one step: the chunk of a long prompt's prefill.
    pub prefill_chunk: Option<usize>,
    /// Pieces (text tokens, codec frames) in a response's first chunk.
    pub initial_chunk: Option<usize>,
    /// Pieces in each later chunk of a response.
    pub steady_chunk: Option<usize>,
    /// Settings that only some stages of some families have, by name.
    #[serde(flatten)]
    pub options: BTreeMap<String, usize>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sessions: 64,
            out_of_band: 8,
            cache_mib: 4096,
            session_tokens: 8192,
            transcribes: false,
            translates: false,
            accept_licence: Vec::new(),
            device: DeviceChoice::default(),
            hand_off: HandOff::default(),
            batch: true,
            weights: WeightPolicy::default(),
            kv_cache: KvCacheFormat::default(),
            threads: None,
            loops: 1,
            deadlines: true,
            timeouts: Timeouts::default(),
            spoken_text: SpokenTextConfig::default(),
            spoken_answers: SpokenAnswersConfig::default(),
            stages: BTreeMap::new(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { unread_s: 60, stage_s: 60, speculation_s: 30 }
    }
}

impl Timeouts {
    /// Converts seconds to a duration.
    pub fn limit(seconds: u32) -> Duration {
        Duration::from_secs(u64::from(seconds))
    }
}

/// Default of [`StageConfig::batch_rows`].
const BATCH_ROWS: usize = 512;
/// Upper bound of any number of slots, rows or pieces.
const MOST_ROWS: usize = 65_536;

/// Default upper bound of threads: a call is small.
const MOST_DEFAULT_THREADS: usize = 8;

/// Upper bound of tick loops.
const MOST_LOOPS: usize = 64;

/// Number of physical cores that this process may use; hyper-threads count once where the system reports them.
fn physical_cores() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let siblings = |cpu: usize| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
    };
    let cores: BTreeSet<String> = (0..).map_while(siblings).collect();
    if cores.is_empty() { usable } else { usable.min(cores.len()) }
}

/// Error of a setting that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("engine.{field} is {value}: {allowed}")]
pub struct ConfigError {
    /// Path of the field below `engine`.
    pub field: String,
    /// Rejected value of the field.
    pub value: String,
    /// Description of the allowed values.
    pub allowed: String,
}

impl ConfigError {
    /// Creates an error for a field and its value.
    pub fn new(field: impl Into<String>, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

impl EngineConfig {
    /// Checks everything that can be checked without a model.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("sessions", self.sessions, 1, MOST_ROWS)?;
        within("out_of_band", self.out_of_band, 0, MOST_ROWS)?;
        within("cache_mib", self.cache_mib, 1, 1 << 24)?;
        within("session_tokens", self.session_tokens, 64, 1 << 24)?;
        within("threads", self.threads(), 1, 256)?;
        within("loops", self.loops, 1, MOST_LOOPS.min(self.sessions))?;
        let Timeouts { unread_s, stage_s, speculation_s } = self.timeouts;
        for (field, value) in [("unread_s", unread_s), ("stage_s", stage_s), ("speculation_s", speculation_s)] {
            within(&format!("timeouts.{field}"), value as usize, 1, 86_400)?;
        }
        if !self.spoken_text.has_valid_sentence() {
            let allowed = format!("it may be a sentence of at most {MAX_SENTENCE} bytes in one line");
            return Err(ConfigError::new("spoken_text.code_block", "no such sentence", allowed));
        }
        within("spoken_answers.tokens", self.spoken_answers.tokens as usize, *TOKENS.start(), *TOKENS.end())?;
        if self.spoken_answers.instructions.len() > MAX_INSTRUCTIONS {
            let allowed = format!("they hold at most {MAX_INSTRUCTIONS} bytes");
            return Err(ConfigError::new("spoken_answers.instructions", "too long", allowed));
        }
        for (name, stage) in &self.stages {
            let StageConfig { batch_rows, prefill_chunk, initial_chunk, steady_chunk, ref options } = *stage;
            let fields = [
                ("batch_rows", batch_rows),
                ("prefill_chunk", prefill_chunk),
                ("initial_chunk", initial_chunk),
                ("steady_chunk", steady_chunk),
            ];
            let options = options.iter().map(|(option, value)| (&option[..], Some(*value)));
            for (field, value) in fields.into_iter().chain(options) {
                if let Some(value) = value {
                    within(&format!("stages.{name}.{field}"), value, 1, MOST_ROWS)?;
                }
            }
        }
        Ok(())
    }

    /// Rejects settings of stages that the model lacks, and options that a stage lacks. `stages` lists the model's
    /// stages, each with its options.
    pub fn check_stages(&self, stages: &[(&str, &[&str])]) -> Result<(), ConfigError> {
        for (name, stage) in &self.stages {
            let known = || stages.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let Some((_, options)) = stages.iter().find(|(stage, _)| stage == name) else {
                let allowed = format!("this model's stages are {}", known());
                return Err(ConfigError::new(format!("stages.{name}"), "no stage", allowed));
            };
            if let Some((option, value)) = stage.options.iter().find(|(option, _)| !options.contains(&&option[..])) {
                let field = format!("stages.{name}.{option}");
                return Err(ConfigError::new(field, value, "this stage has no such setting"));
            }
        }
        Ok(())
    }

    /// Value of one stage's option, if set.
    pub fn stage_option(&self, stage: &str, option: &str) -> Option<usize> {
        self.stages.get(stage)?.options.get(option).copied()
    }

    /// Settings of one stage; defaults if none are set.
    pub fn stage(&self, name: &str) -> StageConfig {
        self.stages.get(name).cloned().unwrap_or_default()
    }

    /// Number of computing threads.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| physical_cores().min(MOST_DEFAULT_THREADS))
    }

    /// Settings of one of the tick loops: its share of the sessions, the cache and the threads.
    pub fn of_loop(&self, number: usize) -> Self {
        let loops = self.loops.max(1);
        // The first ones have what is left over.
        let share = |all: usize| (all + loops - 1 - number.min(loops - 1)) / loops;
        Self {
            sessions: share(self.sessions),
            // A session finds a slot in its own loop alone.
            out_of_band: self.out_of_band.div_ceil(loops),
            cache_mib: (self.cache_mib / loops).max(1),
            threads: Some((self.threads() / loops).max(1)),
            ..self.clone()
        }
    }

    /// Scheduling order of the sessions.
    pub fn order(&self) -> SchedulingOrder {
        if self.deadlines { SchedulingOrder::Deadline } else { SchedulingOrder::Arrival }
    }
}

impl StageConfig {
    /// Upper bound of all slots' rows in one step.
    pub fn batch(&self) -> usize {
        self.batch_rows.unwrap_or(BATCH_ROWS)
    }

    /// Chunk sizes of the edge before the stage.
    pub fn chunks(&self) -> ChunkSizes {
        ChunkSizes { initial: self.initial_chunk.unwrap_or(1), steady: self.steady_chunk.unwrap_or(1) }
    }
}

fn within(field: &str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::new(field, value, format!("it may be {least} to {most}")))
    }
}
