//! The part of the system that a run filled first.

use std::time::Duration;

use crate::measure::log::{ResourceSample, ScenarioLog};

/// Above this p99 lateness the generator is the limit, not the server.
pub(super) const GENERATOR_LATE: Duration = Duration::from_millis(20);
/// Share of time in ticks at which the engine's thread is full.
const FULL_TICKS: f64 = 0.9;
/// Mean wait of a task at which the runtime is full, in seconds.
const LATE_RUNTIME_S: f64 = 0.01;
/// Share of the machine's cores at which it is full.
const FULL_MACHINE: f64 = 0.95;

/// Mean of a sampled figure.
pub(super) fn mean(log: &ScenarioLog, of: fn(&ResourceSample) -> f64) -> f64 {
    log.samples.iter().map(of).sum::<f64>() / log.samples.len().max(1) as f64
}

/// Names the part of the system that was full in a run on `cores` cores.
pub(super) fn limiting_part(log: &ScenarioLog, cores: f64) -> &'static str {
    let used = mean(log, |sample| sample.server_cores.unwrap_or(0.0) + sample.own_cores);
    if log.errors.keys().any(|error| error.contains("session_limit_reached")) {
        "sessions"
    } else if log.lateness.percentile(99.0).is_some_and(|late| late > GENERATOR_LATE) {
        "generator"
    } else if log.server_ticks.is_some_and(|share| share >= FULL_TICKS) {
        "engine"
    } else if used >= FULL_MACHINE * cores {
        "processor"
    } else if log.server_runtime_delay.is_some_and(|delay| delay >= LATE_RUNTIME_S) {
        "runtime"
    } else {
        "unknown"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_parts_are_named() {
        let log = || crate::report::rows::tests::log().1;
        let named = |change: &dyn Fn(&mut ScenarioLog)| {
            let mut log = log();
            change(&mut log);
            limiting_part(&log, 2.0)
        };
        assert_eq!(named(&|_| ()), "unknown");
        assert_eq!(named(&|log| log.error("503 session_limit_reached: no slot")), "sessions");
        assert_eq!(named(&|log| log.lateness.add(GENERATOR_LATE * 2)), "generator");
        assert_eq!(named(&|log| log.server_ticks = Some(0.95)), "engine");
        assert_eq!(named(&|log| log.server_runtime_delay = Some(0.02)), "runtime");
        assert_eq!(named(&|log| log.samples.iter_mut().for_each(|sample| sample.own_cores = 1.4)), "processor");
    }
}
