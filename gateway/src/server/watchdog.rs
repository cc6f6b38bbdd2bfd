//! Watchdog: measures from the control thread how late the server's runtime and the engine are.
//!
//! The runtime's delay is the time until a task that was given to it runs. The engine's is the duration of the tick in
//! progress: a command waits as long. The headroom is told of both, and of the processors' use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use repartee_engine_api::EngineLoad;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use super::readiness::Readiness;
use crate::headroom::{LoadSample, ProcessorMeter};
use crate::metrics::{HeadroomMetrics, RequestMetrics};

/// Interval of measurements.
const EVERY: Duration = Duration::from_millis(100);
/// Number of measurements that [`LatenessHandle::recent`] covers: one second.
const RECENT: usize = 10;
/// Delay of the runtime from which on it is logged.
const LATE_RUNTIME: Duration = Duration::from_millis(250);
/// Duration of a tick from which on it is logged.
const LATE_TICK: Duration = Duration::from_secs(1);
/// Pause between two log lines of one cause.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// Delays of a server, the longest of the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Time that a task waits until the server's runtime runs it.
    pub runtime: Duration,
    /// Duration of the engine's tick in progress.
    pub tick: Duration,
}

impl Lateness {
    fn longest(self, other: Self) -> Self {
        Self { runtime: self.runtime.max(other.runtime), tick: self.tick.max(other.tick) }
    }
}

/// Handle that reads the [`Lateness`] of a running server, for admission. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LatenessHandle {
    nanoseconds: Arc<[AtomicU64; 2]>,
}

impl LatenessHandle {
    /// Returns the longest delays of the last second.
    pub fn recent(&self) -> Lateness {
        let [runtime, tick] = &*self.nanoseconds;
        let read = |value: &AtomicU64| Duration::from_nanos(value.load(Ordering::Relaxed));
        Lateness { runtime: read(runtime), tick: read(tick) }
    }

    fn set(&self, Lateness { runtime, tick }: Lateness) {
        for (value, delay) in self.nanoseconds.iter().zip([runtime, tick]) {
            // 500 years of nanoseconds fit.
            value.store(delay.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// The last measurements.
#[derive(Debug, Default)]
struct RecentDelays {
    delays: [Lateness; RECENT],
    next: usize,
}

impl RecentDelays {
    /// Adds a measurement and returns the longest delays.
    fn add(&mut self, delay: Lateness) -> Lateness {
        self.delays[self.next] = delay;
        self.next = (self.next + 1) % RECENT;
        self.delays.into_iter().fold(Lateness::default(), Lateness::longest)
    }
}

/// Log line that is written at most once in [`WARNING_PAUSE`].
#[derive(Debug, Default)]
struct LimitedWarning {
    last: Option<Instant>,
}

impl LimitedWarning {
    /// True if `delay` reaches `limit` and the last line is old enough.
    fn is_due(&mut self, delay: Duration, limit: Duration, now: Instant) -> bool {
        let paused = self.last.is_some_and(|last| now.saturating_duration_since(last) < WARNING_PAUSE);
        let due = delay >= limit && !paused;
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Task that was given to the runtime.
#[derive(Debug)]
struct RuntimeProbe {
    sent: Instant,
    ran: oneshot::Receiver<Instant>,
}

impl RuntimeProbe {
    fn send(runtime: &Handle) -> Self {
        let (run, ran) = oneshot::channel();
        let sent = Instant::now();
        runtime.spawn(async move {
            // The receiver is gone if the server has ended.
            let _ = run.send(Instant::now());
        });
        Self { sent, ran }
    }
}

/// Work of the server up to a time.
#[derive(Debug, Clone, Copy, Default)]
struct LoadTotals {
    at: Option<Instant>,
    ticks: Duration,
    due_ticks: Duration,
    frames: u64,
    late_frames: u64,
}

impl LoadTotals {
    fn of(load: &EngineLoad, played: &HeadroomMetrics, now: Instant) -> Self {
        let (frames, late_frames) = (played.frames.get(), played.late_frames.get());
        let (ticks, due_ticks) = (load.ticking(), load.due());
        Self { at: Some(now), ticks, due_ticks, frames, late_frames }
    }

    /// Measurement since `before`, with the processors' use and the delays now. A first total covers no time.
    fn since(self, before: Self, processors: (f64, f64), now: Lateness) -> LoadSample {
        let covers = self.at.zip(before.at).map(|(now, before)| now.saturating_duration_since(before));
        LoadSample {
            covers: covers.unwrap_or_default(),
            // The engine restarts after a fault, and counts from zero.
            ticks: self.ticks.saturating_sub(before.ticks),
            due_ticks: self.due_ticks.saturating_sub(before.due_ticks),
            running_tick: now.tick,
            processors: processors.0,
            left_by_others: processors.1,
            runtime_delay: now.runtime,
            frames: self.frames.saturating_sub(before.frames),
            late_frames: self.late_frames.saturating_sub(before.late_frames),
        }
    }
}

/// Measures until the runtime ends.
pub(super) async fn watch(
    runtime: Handle,
    readiness: Arc<Readiness>,
    metrics: RequestMetrics,
    lateness: LatenessHandle,
) {
    let RequestMetrics { watchdog: metrics, headroom, .. } = metrics;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut recent = RecentDelays::default();
    let (mut late_runtime, mut late_tick) = (LimitedWarning::default(), LimitedWarning::default());
    let mut probe = RuntimeProbe::send(&runtime);
    let (mut totals, mut processors) = (LoadTotals::default(), ProcessorMeter::new());
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let delay = match probe.ran.try_recv() {
            Ok(ran) => {
                let delay = ran.saturating_duration_since(probe.sent);
                metrics.runtime.observe(delay.as_secs_f64());
                probe = RuntimeProbe::send(&runtime);
                delay
            }
            Err(oneshot::error::TryRecvError::Empty) => now.saturating_duration_since(probe.sent),
            Err(oneshot::error::TryRecvError::Closed) => return,
        };
        let engine = readiness.engine();
        let load = engine.map(|engine| engine.load()).unwrap_or_default();
        let tick = load.running_tick;
        let before = std::mem::replace(&mut totals, LoadTotals::of(&load, &headroom, now));
        let used = (processors.share(now), processors.left_by_others());
        let delays = Lateness { runtime: delay, tick };
        readiness.headroom().observe(totals.since(before, used, delays), now);
        headroom.left.set(readiness.headroom().left());
        let longest = recent.add(delays);
        lateness.set(longest);
        metrics.recent_runtime.set(longest.runtime.as_secs_f64());
        metrics.recent_tick.set(longest.tick.as_secs_f64());
        if late_runtime.is_due(delay, LATE_RUNTIME, now) {
            tracing::warn!(
                ms = delay.as_millis() as u64,
                "the runtime is late: tasks wait for long work on its threads"
            );
        }
        if late_tick.is_due(tick, LATE_TICK, now) {
            tracing::warn!(ms = tick.as_millis() as u64, "the engine is late: a tick takes long");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn longest_delay_is_recent_for_a_second() {
        let mut recent = RecentDelays::default();
        assert_eq!(recent.add(Lateness { runtime: 5 * MS, tick: MS }), Lateness { runtime: 5 * MS, tick: MS });
        for _ in 1..RECENT {
            assert_eq!(recent.add(Lateness { runtime: MS, tick: 2 * MS }).runtime, 5 * MS);
        }
        assert_eq!(recent.add(Lateness::default()), Lateness { runtime: MS, tick: 2 * MS });
    }

    #[test]
    fn warnings_are_limited_in_rate() {
        let (mut warning, start) = (LimitedWarning::default(), Instant::now());
        let mut due = |ms: u32, after: Duration| warning.is_due(ms * MS, 10 * MS, start + after);
        assert!(!due(9, Duration::ZERO));
        assert!(due(10, Duration::ZERO));
        assert!(!due(99, WARNING_PAUSE - MS));
        assert!(!due(9, WARNING_PAUSE));
        assert!(due(99, WARNING_PAUSE));
    }

    /// Blocks the only thread of a runtime until the watchdog has seen it.
    #[test]
    fn blocked_runtime_is_late() {
        let blocked = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let (requests, lateness) = (RequestMetrics::new().unwrap(), LatenessHandle::default());
        let metrics = requests.watchdog.clone();
        blocked.spawn(async move { released.recv() });
        own.block_on(async {
            let watched = watch(blocked.handle().clone(), Readiness::new(), requests.clone(), lateness.clone());
            let seen = async {
                while lateness.recent().runtime < 2 * EVERY {
                    tokio::time::sleep(EVERY / 10).await;
                }
                release.send(()).unwrap();
                while metrics.runtime.get_sample_count() == 0 {
                    tokio::time::sleep(EVERY / 10).await;
                }
            };
            tokio::select! {
                () = watched => panic!("the runtime ended"),
                () = seen => {}
            }
        });
        assert!(metrics.runtime.get_sample_sum() >= 0.2 && metrics.recent_runtime.get() >= 0.2);
    }
}
