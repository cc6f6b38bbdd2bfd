//! What the engine has computed since its start, and what waits in it.

use std::time::Duration;

/// Steps of the encoder or of one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// Cache blocks that there are.
    pub capacity: u64,
    /// Positions of the prompts that it was given.
    pub prompted: u64,
    /// How many of these were in its cache already.
    pub reused: u64,
    /// Steps that the device put together operation by operation, though it captures steps and replays them: the first of each shape, and
    /// those that found no graph. `None` on a device that captures none.
    pub eager: Option<u64>,
}

/// Ticks of the engine's loop, and what waits in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Ticks that found something to do.
    pub ticks: u64,
    /// Time that they took together.
    pub tick_time: Duration,
    /// How many of them took at most so long, the shortest time first; those that took longer than all are in `ticks` alone.
    pub ticks_within: Vec<(Duration, u64)>,
    /// Length of each queue, of all sessions together, when the last tick ended: its name and the items in it.
    pub queues: Vec<(&'static str, u64)>,
}
