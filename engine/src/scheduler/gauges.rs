//! Gauges and counters of the scheduler, for other threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use repartee_engine_api::{EngineLoad, StageWork};

use crate::session::Queues;
use crate::stage::CacheUse;

/// Names of the counted queues, in the order of [`Queues`]'s fields.
const QUEUES: [&str; 4] = ["commands", "windows", "responses", "events"];

/// Bucket bounds of the tick histogram: the demo's ticks take one to four milliseconds, and a codec frame of 80 ms is
/// late after as much.
const TICK_MICROSECONDS: [u64; 14] =
    [500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 24_000, 40_000, 80_000, 160_000, 320_000];

/// Gauges and counters of the engine, written by its thread.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Number of open sessions, including those that the thread has not taken yet.
    pub open: AtomicUsize,
    /// [`Scheduler::held`](super::Scheduler::held) when the thread was last idle.
    pub held: AtomicUsize,
    /// True if the last tick succeeded.
    pub ready: AtomicBool,
    /// Start of the clock of `tick_began`.
    epoch: OnceLock<Instant>,
    /// Nanoseconds from `epoch` to the beginning of the tick in progress; 0 between ticks.
    tick_began: AtomicU64,
    /// True if a caller waits for the tick in progress.
    tick_due: AtomicBool,
    ticks: AtomicU64,
    tick_nanoseconds: AtomicU64,
    /// The same of ticks for which a caller waited.
    due_nanoseconds: AtomicU64,
    /// Number of ticks in each bucket of [`TICK_MICROSECONDS`].
    ticks_by_time: [AtomicU64; TICK_MICROSECONDS.len()],
    /// Length of each queue of [`QUEUES`].
    queues: [AtomicU64; QUEUES.len()],
    /// Counters of the encoder or recogniser, then of each stage; empty until the model is known.
    counters: OnceLock<Vec<Counters>>,
}

/// Counters of one stage; see [`StageWork`].
#[derive(Debug)]
struct Counters {
    stage: &'static str,
    steps: AtomicU64,
    rows: AtomicU64,
    nanoseconds: AtomicU64,
    blocks: AtomicU64,
    capacity: AtomicU64,
    prompted: AtomicU64,
    reused: AtomicU64,
    /// `None` on a device that captures no steps.
    eager: Option<AtomicU64>,
}

impl Gauges {
    /// Creates the counters of the encoder and the stages: name, and true if the stage's device captures steps.
    pub(super) fn count(&self, names: impl Iterator<Item = (&'static str, bool)>) {
        let zero = || AtomicU64::new(0);
        self.counters.get_or_init(|| {
            let counters = names.map(|(stage, captures)| Counters {
                stage,
                steps: zero(),
                rows: zero(),
                nanoseconds: zero(),
                blocks: zero(),
                capacity: zero(),
                prompted: zero(),
                reused: zero(),
                eager: captures.then(zero),
            });
            counters.collect()
        });
    }

    /// Counts a step of the encoder (0) or a stage (from 1), and records the blocks held after it.
    pub(super) fn measured(&self, at: usize, rows: usize, took: Duration, blocks: usize) {
        let Some(counters) = self.counters.get().and_then(|all| all.get(at)) else { return };
        counters.steps.fetch_add(1, Ordering::Relaxed);
        counters.rows.fetch_add(rows as u64, Ordering::Relaxed);
        // 500 years of nanoseconds fit.
        counters.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        counters.blocks.store(blocks as u64, Ordering::Relaxed);
    }

    /// Records the blocks that each stage holds.
    pub(super) fn hold(&self, blocks: impl Iterator<Item = usize>) {
        for (counters, blocks) in self.stages().zip(blocks) {
            counters.blocks.store(blocks as u64, Ordering::Relaxed);
        }
    }

    /// Records each stage's cache: blocks, prompt positions, and positions found in the cache.
    pub(super) fn caches(&self, caches: impl Iterator<Item = CacheUse>) {
        for (counters, CacheUse { capacity, prompted, reused, .. }) in self.stages().zip(caches) {
            counters.capacity.store(capacity as u64, Ordering::Relaxed);
            counters.prompted.store(prompted, Ordering::Relaxed);
            counters.reused.store(reused, Ordering::Relaxed);
        }
    }

    /// Records the number of steps without a captured graph, of the encoder or recogniser and of each stage.
    pub(super) fn eager(&self, steps: impl Iterator<Item = Option<u64>>) {
        for (counters, steps) in self.counters.get().into_iter().flatten().zip(steps) {
            if let Some((counter, steps)) = counters.eager.as_ref().zip(steps) {
                counter.store(steps, Ordering::Relaxed);
            }
        }
    }

    fn stages(&self) -> impl Iterator<Item = &Counters> {
        self.counters.get().into_iter().flatten().skip(1)
    }

    /// Records that a tick begins or, with false, that it has ended.
    pub(super) fn set_ticking(&self, ticking: bool) {
        let began = if ticking { self.nanoseconds().max(1) } else { 0 };
        self.tick_due.store(false, Ordering::Relaxed);
        self.tick_began.store(began, Ordering::Relaxed);
    }

    /// Records that a caller waits for the tick in progress.
    pub(super) fn set_due(&self) {
        self.tick_due.store(true, Ordering::Relaxed);
    }

    /// Nanoseconds on the clock of `tick_began`.
    fn nanoseconds(&self) -> u64 {
        self.epoch.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    /// Records the queue lengths at the end of a tick and its duration; `None` for a tick that found nothing to do.
    pub(super) fn record_tick(&self, took: Option<Duration>, queues: Queues) {
        if let Some(took) = took {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            let took_nanoseconds = took.as_nanos() as u64;
            self.tick_nanoseconds.fetch_add(took_nanoseconds, Ordering::Relaxed);
            if self.tick_due.load(Ordering::Relaxed) {
                self.due_nanoseconds.fetch_add(took_nanoseconds, Ordering::Relaxed);
            }
            if let Some(at) = TICK_MICROSECONDS.iter().position(|most| took <= Duration::from_micros(*most)) {
                self.ticks_by_time[at].fetch_add(1, Ordering::Relaxed);
            }
        }
        let Queues { commands, windows, responses, events } = queues;
        for (gauge, length) in self.queues.iter().zip([commands, windows, responses, events]) {
            gauge.store(length as u64, Ordering::Relaxed);
        }
    }

    /// Returns tick counts and queue lengths.
    pub fn load(&self) -> EngineLoad {
        let mut within = 0;
        let ticks_within = TICK_MICROSECONDS.into_iter().zip(&self.ticks_by_time).map(|(most, ticks)| {
            within += ticks.load(Ordering::Relaxed);
            (Duration::from_micros(most), within)
        });
        let running_tick = match self.tick_began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_nanos(self.nanoseconds().saturating_sub(began)),
        };
        let due = if self.tick_due.load(Ordering::Relaxed) { running_tick } else { Duration::ZERO };
        EngineLoad {
            loops: 1,
            running_tick,
            running_time: running_tick,
            due_time: Duration::from_nanos(self.due_nanoseconds.load(Ordering::Relaxed)) + due,
            ticks_within: ticks_within.collect(),
            ticks: self.ticks.load(Ordering::Relaxed),
            tick_time: Duration::from_nanos(self.tick_nanoseconds.load(Ordering::Relaxed)),
            queues: QUEUES.into_iter().zip(self.queues.iter().map(|length| length.load(Ordering::Relaxed))).collect(),
        }
    }

    /// Returns the counters of the encoder and each stage.
    pub fn work(&self) -> Vec<StageWork> {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let counters = self.counters.get().into_iter().flatten();
        let work = counters.map(|one| StageWork {
            stage: one.stage,
            steps: read(&one.steps),
            rows: read(&one.rows),
            busy: Duration::from_nanos(read(&one.nanoseconds)),
            blocks: read(&one.blocks),
            capacity: read(&one.capacity),
            prompted: read(&one.prompted),
            reused: read(&one.reused),
            eager: one.eager.as_ref().map(read),
        });
        work.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tick_in_progress_has_a_duration() {
        let gauges = Gauges::default();
        assert_eq!(gauges.load().running_tick, Duration::ZERO);
        gauges.set_ticking(true);
        let first = gauges.load().running_tick;
        while gauges.load().running_tick <= first {}
        gauges.set_ticking(false);
        assert_eq!(gauges.load().running_tick, Duration::ZERO);
    }

    #[test]
    fn only_ticks_that_callers_wait_for_are_due() {
        let (gauges, took) = (Gauges::default(), Duration::from_millis(3));
        let tick = |due: bool| {
            gauges.set_ticking(true);
            if due {
                gauges.set_due();
            }
            gauges.record_tick(Some(took), Queues::default());
            gauges.set_ticking(false);
        };
        tick(false);
        tick(true);
        tick(false);
        assert_eq!((gauges.load().tick_time, gauges.load().due_time), (3 * took, took));
    }
}
