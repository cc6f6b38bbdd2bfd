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
    /// Number of tick loops. What follows is of all of them together; the tick in progress is the longest.
    pub loops: usize,
    /// Number of ticks that found something to do.
    pub ticks: u64,
    /// Duration of these ticks together.
    pub tick_time: Duration,
    /// Duration of those of these ticks, and of the one in progress, that began while a caller waited: for its first packet,
    /// for overdue text, or for sound that is about to run out. Ticks that only run ahead are not among them.
    pub due_time: Duration,
    /// Time since the tick in progress began; 0 between ticks.
    pub running_tick: Duration,
    /// The same of the loops' ticks together.
    pub running_time: Duration,
    /// Cumulative histogram of tick durations: upper bound, ascending, and number of ticks that took at most as long.
    /// Longer ticks are in `ticks` alone.
    pub ticks_within: Vec<(Duration, u64)>,
    /// Queue lengths at the end of the last tick, summed over all sessions, by name of the queue.
    pub queues: Vec<(&'static str, u64)>,
}

impl StageWork {
    /// Adds the work of the same stage in another tick loop.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.rows += other.rows;
        self.busy += other.busy;
        self.blocks += other.blocks;
        self.capacity += other.capacity;
        self.prompted += other.prompted;
        self.reused += other.reused;
        self.eager = self.eager.zip(other.eager).map(|(one, other)| one + other);
    }
}

impl EngineLoad {
    /// Adds the load of another tick loop.
    pub fn add(&mut self, other: &Self) {
        self.loops += other.loops;
        self.ticks += other.ticks;
        self.tick_time += other.tick_time;
        self.due_time += other.due_time;
        self.running_time += other.running_time;
        self.running_tick = self.running_tick.max(other.running_tick);
        for ((_, ticks), (_, more)) in self.ticks_within.iter_mut().zip(&other.ticks_within) {
            *ticks += more;
        }
        for ((_, length), (_, more)) in self.queues.iter_mut().zip(&other.queues) {
            *length += more;
        }
    }

    /// Time of a tick loop in its ticks, the one in progress included: the mean of all loops.
    pub fn ticking(&self) -> Duration {
        self.of_a_loop(self.tick_time + self.running_time)
    }

    /// [`EngineLoad::due_time`] of a tick loop: the mean of all loops.
    pub fn due(&self) -> Duration {
        self.of_a_loop(self.due_time)
    }

    fn of_a_loop(&self, time: Duration) -> Duration {
        time / u32::try_from(self.loops).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn loads_of_loops_add_up() {
        let of = |running: u32, within: u64| EngineLoad {
            loops: 1,
            ticks: 10,
            tick_time: 40 * MS,
            due_time: 20 * MS,
            running_tick: running * MS,
            running_time: running * MS,
            ticks_within: vec![(MS, within), (8 * MS, 9)],
            queues: vec![("commands", 2)],
        };
        let mut load = of(8, 3);
        load.add(&of(4, 5));
        assert_eq!((load.loops, load.ticks, load.tick_time), (2, 20, 80 * MS));
        assert_eq!((load.running_tick, load.ticking(), load.due()), (8 * MS, 46 * MS, 20 * MS));
        assert_eq!((load.ticks_within, load.queues), (vec![(MS, 8), (8 * MS, 18)], vec![("commands", 4)]));
    }

    #[test]
    fn work_of_loops_adds_up() {
        let one = StageWork { stage: "thinker", steps: 2, rows: 5, busy: MS, capacity: 10, ..StageWork::default() };
        let mut all = one;
        all.add(&one);
        assert_eq!((all.steps, all.rows, all.busy, all.capacity, all.eager), (4, 10, 2 * MS, 20, None));
    }
}
