//! Counters of the engine's work since its start, and its queue lengths.

use std::time::Duration;

/// Work of the encoder or recogniser, or of one stage, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageWork {
    /// Name of the stage, or of the recogniser; `encoder` for the encoder of input audio.
    pub stage: &'static str,
    /// Number of steps; a step is one batch.
    pub steps: u64,
    /// Rows of all steps. Divided by `steps` it is the mean batch.
    pub rows: u64,
    /// Computing time. With several threads the times of stages overlap.
    pub busy: Duration,
    /// Cache blocks that sessions hold now.
    pub blocks: u64,
    /// Number of all cache blocks.
    pub capacity: u64,
    /// Prompt positions that the stage received.
    pub prompted: u64,
    /// Prompt positions of these that were in the cache already.
    pub reused: u64,
    /// Steps launched without a captured graph on a device that captures steps: the first of each shape, and those that
    /// found no graph. `None` on a device that captures none.
    pub eager: Option<u64>,
}

/// Ticks of the engine's loop, and its queue lengths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Number of ticks that found something to do.
    pub ticks: u64,
    /// Duration of these ticks together.
    pub tick_time: Duration,
    /// Duration of those of these ticks, and of the one in progress, that began while a caller waited: for its first packet,
    /// for overdue text, or for sound that is about to run out. Ticks that only run ahead are not among them.
    pub due_time: Duration,
    /// Time since the tick in progress began; 0 between ticks.
    pub running_tick: Duration,
    /// Cumulative histogram of tick durations: upper bound, ascending, and number of ticks that took at most as long.
    /// Longer ticks are in `ticks` alone.
    pub ticks_within: Vec<(Duration, u64)>,
    /// Queue lengths at the end of the last tick, summed over all sessions, by name of the queue.
    pub queues: Vec<(&'static str, u64)>,
}
