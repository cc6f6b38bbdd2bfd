//! What other threads see of the scheduler.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use repartee_engine_api::StageWork;

/// Gauges and counters of the engine, written by its thread.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Open sessions, also those that the thread has not taken yet.
    pub open: AtomicUsize,
    /// [`Scheduler::held`](super::Scheduler::held) when the thread last had nothing to do.
    pub held: AtomicUsize,
    /// Whether the last tick succeeded.
    pub ready: AtomicBool,
    /// The encoder, then each stage; empty until the model is known.
    counters: OnceLock<Vec<Counters>>,
}

/// See [`StageWork`].
#[derive(Debug)]
struct Counters {
    stage: &'static str,
    steps: AtomicU64,
    rows: AtomicU64,
    nanoseconds: AtomicU64,
    blocks: AtomicU64,
}

impl Gauges {
    /// Begins to count for the encoder and the stages of these names.
    pub(super) fn count(&self, names: impl Iterator<Item = &'static str>) {
        let zero = || AtomicU64::new(0);
        self.counters.get_or_init(|| {
            let counters =
                names.map(|stage| Counters { stage, steps: zero(), rows: zero(), nanoseconds: zero(), blocks: zero() });
            counters.collect()
        });
    }

    /// Counts a step of the encoder (0) or a stage (from 1), and notes the blocks that are held after it.
    pub(super) fn measured(&self, at: usize, rows: usize, took: Duration, blocks: usize) {
        let Some(counters) = self.counters.get().and_then(|all| all.get(at)) else { return };
        counters.steps.fetch_add(1, Ordering::Relaxed);
        counters.rows.fetch_add(rows as u64, Ordering::Relaxed);
        // 500 years of nanoseconds fit.
        counters.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        counters.blocks.store(blocks as u64, Ordering::Relaxed);
    }

    /// Notes the blocks that each stage holds.
    pub(super) fn hold(&self, blocks: impl Iterator<Item = usize>) {
        let stages = self.counters.get().into_iter().flatten().skip(1);
        for (counters, blocks) in stages.zip(blocks) {
            counters.blocks.store(blocks as u64, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub fn work(&self) -> Vec<StageWork> {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let counters = self.counters.get().into_iter().flatten();
        let work = counters.map(|one| StageWork {
            stage: one.stage,
            steps: read(&one.steps),
            rows: read(&one.rows),
            busy: Duration::from_nanos(read(&one.nanoseconds)),
            blocks: read(&one.blocks),
        });
        work.collect()
    }
}
