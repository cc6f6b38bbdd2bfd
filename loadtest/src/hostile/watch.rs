//! Observers of the attacked server: its health checks, and its memory.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::measure::process::ProcessMonitor;
use crate::report::percentile;
use crate::target::Target;

/// Interval of health checks.
const CHECKING: Duration = Duration::from_millis(50);
/// Time after which a health check counts as failed, and its delay.
const FAILED: Duration = Duration::from_secs(5);
/// Interval of memory samples.
const SAMPLING: Duration = Duration::from_millis(100);

/// Delays of health checks.
#[derive(Debug, Default)]
pub struct HealthLog {
    delays: Vec<Duration>,
    error: Option<String>,
}

impl HealthLog {
    /// Checks until it is cancelled; a connection for each check.
    pub async fn check(&mut self, target: &Target) {
        let mut ticks = interval(CHECKING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let begun = Instant::now();
            let answered = timeout(FAILED, target.get("/healthz")).await;
            let error = match answered {
                Ok(Ok((status, _))) if status.is_success() => None,
                Ok(Ok((status, _))) => Some(format!("status {}", status.as_u16())),
                Ok(Err(error)) => Some(format!("{error:#}")),
                Err(_) => Some(format!("none within {} s", FAILED.as_secs())),
            };
            self.delays.push(if error.is_none() { begun.elapsed() } else { FAILED });
            self.error = self.error.take().or(error);
        }
    }

    /// Returns the p99, the delay of a failed check without any; and the first error.
    pub fn finish(mut self) -> (Duration, Option<String>) {
        self.delays.sort();
        (percentile(&self.delays, 99).unwrap_or(FAILED), self.error)
    }
}

/// Watches memory until it is cancelled, or the process has ended or takes `most` bytes. `peak` is the largest so far.
pub async fn memory(process: &ProcessMonitor, peak: &mut u64, most: u64) {
    let mut ticks = interval(SAMPLING);
    loop {
        ticks.tick().await;
        let Some(memory) = process.memory() else { return };
        *peak = memory.max(*peak);
        if memory >= most {
            return;
        }
    }
}
