//! Results of a measurement, and reasons for its failure.

use std::time::Duration;

use repartee_engine_api::{SessionError, SubmitError};
use repartee_kernels::cpu::ProductWork;
use thiserror::Error;

use super::machine::MachineLimits;
use crate::config::ConfigError;
use crate::models::load_error::LoadError;

/// Sizes of a measured turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredTurn {
    /// Duration of the noise submitted as input; 0 for a model without audio input.
    pub input: Duration,
    /// Most text tokens of the response. For a model without audio input: characters of the text that it reads.
    pub text_tokens: u32,
    /// Duration of sound after which the response is cut off.
    pub sound: Duration,
    /// Seed of the noise and of the response's random numbers.
    pub seed: u64,
}

/// Part of a turn in which a stage computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnPhase {
    /// Input: while the caller speaks.
    Listening,
    /// Response: from the commit on.
    Answer,
}

/// Kind of output that a stage produces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StageOutput {
    /// Text tokens or the rows that carry them.
    Text,
    /// Frames of codec codes.
    Codes,
    /// Any other output.
    #[default]
    Other,
}

/// Measured steps of one stage over rows of one kind.
#[derive(Debug, Clone)]
pub struct StageMeasurement {
    /// Part of the turn.
    pub phase: TurnPhase,
    /// Name of the stage, or `encoder`.
    pub stage: &'static str,
    /// Position in the chain of stages; the encoder's is 0.
    pub at: usize,
    /// Kind of output that the stage produces.
    pub output: StageOutput,
    /// Kind of rows: `prefill`, `decode`, `window` or `solver step`.
    pub kind: &'static str,
    /// Number of steps.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Duration of all steps.
    pub took: Duration,
    /// Products of all steps.
    pub products: ProductWork,
}

/// Times of a measured turn.
#[derive(Debug, Clone, Default)]
pub struct TurnTiming {
    /// Computing time while the caller speaks.
    pub listening: Duration,
    /// Time from the commit to the first sound.
    pub first_sound: Duration,
    /// Time from the commit to the end.
    pub whole: Duration,
    /// Duration of the output sound.
    pub sound: Duration,
}

/// Results of measuring one turn.
#[derive(Debug, Clone)]
pub struct TurnReport {
    /// Peak performance of the machine.
    pub machine: MachineLimits,
    /// Time to draw or read the weights and pack them.
    pub loading: Duration,
    /// Resident memory of this process after the turns, in bytes.
    pub resident: u64,
    /// Sizes of the turn; its input is 0 for a model without audio input.
    pub turn: MeasuredTurn,
    /// Every stage, from the turn with stages one after another.
    pub stages: Vec<StageMeasurement>,
    /// Times of the turn with stages one after another.
    pub sequential: TurnTiming,
    /// Times of the turn with stages in parallel, as in a server.
    pub parallel: TurnTiming,
}

/// Reasons for a failed measurement.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The checkpoint cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// A session refused a command.
    #[error("the engine took no command: {0}")]
    Submit(#[from] SubmitError),
    /// The model failed during the turn.
    #[error("the model failed: {0}")]
    Failed(#[from] SessionError),
    /// The memory has room for fewer sessions.
    #[error("{asked} sessions are to be measured, and engine.cache_mib has room for {slots}")]
    TooMany {
        /// Sessions asked for.
        asked: usize,
        /// Sessions that fit.
        slots: usize,
    },
    /// The model made no sound.
    #[error("the answer ended without sound: choose another seed")]
    Silent,
    /// The model does not speak.
    #[error("this model answers with text alone: only spoken turns are measured")]
    TextOnly,
}
