//! What the engine has computed since its start.

use std::time::Duration;

/// Steps of the encoder or of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageWork {
    /// The stage's name; `encoder` for the encoder of input audio.
    pub stage: &'static str,
    /// Steps taken; a step is one batch.
    pub steps: u64,
    /// Rows of all steps. Divided by `steps` it is the mean batch.
    pub rows: u64,
    /// Time computed. With several threads the stages' times overlap.
    pub busy: Duration,
    /// Cache blocks that sessions hold now.
    pub blocks: u64,
}
