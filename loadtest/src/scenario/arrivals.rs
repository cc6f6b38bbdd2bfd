//! Arrival processes: the start times of calls. All but `soak` are Poisson processes (open loop): a call begins
//! independently of earlier calls, so a slow server gets the same load.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Most calls of a scenario.
const MAX_CALLS: usize = 100_000;
/// Highest arrival rate, in calls per second.
const MAX_RATE: f64 = 1_000.0;

/// An arrival process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// A constant rate.
    Poisson {
        /// Calls per second.
        per_s: f64,
    },
    /// A rate that changes linearly over the scenario.
    Ramp {
        /// Calls per second at the beginning.
        from_per_s: f64,
        /// Calls per second at the end.
        to_per_s: f64,
    },
    /// Rates one after the other, for equal parts of the scenario.
    Step {
        /// Calls per second.
        per_s: Vec<f64>,
    },
    /// Callers who arrive evenly at the beginning and stay to the end.
    Soak {
        /// Number of concurrent callers.
        callers: usize,
        /// Time in which all callers arrive, in seconds.
        within_s: f64,
        /// Callers hang up after the turns of a call, and call again until the end.
        #[serde(default)]
        call_again: bool,
    },
}

impl Arrivals {
    /// Checks the rates.
    ///
    /// # Errors
    /// A value is out of bounds.
    pub fn check(&self) -> Result<()> {
        let rates = match self {
            Self::Poisson { per_s } => vec![*per_s],
            Self::Ramp { from_per_s, to_per_s } => vec![*from_per_s, *to_per_s],
            Self::Step { per_s } => per_s.clone(),
            Self::Soak { callers, within_s, .. } => {
                ensure!((1..=MAX_CALLS).contains(callers), "callers: 1 to {MAX_CALLS}");
                ensure!((0.0..=3_600.0).contains(within_s), "within_s: 0 to 3600");
                return Ok(());
            }
        };
        ensure!(!rates.is_empty(), "per_s: give at least one rate");
        ensure!(rates.iter().all(|rate| (0.0..=MAX_RATE).contains(rate)), "calls a second: 0 to {MAX_RATE}");
        Ok(())
    }

    /// True if calls last to the end of the scenario.
    pub fn stay(&self) -> bool {
        matches!(self, Self::Soak { call_again: false, .. })
    }

    /// True if callers call again until the end of the scenario.
    pub fn call_again(&self) -> bool {
        matches!(self, Self::Soak { call_again: true, .. })
    }

    /// Returns the start of each call within `duration`, in order.
    pub fn schedule(&self, duration: Duration, random: &mut Random) -> Vec<Duration> {
        if let Self::Soak { callers, within_s, .. } = self {
            let step = within_s / (*callers).max(1) as f64;
            return (0..*callers).map(|n| Duration::from_secs_f64(step * n as f64)).collect();
        }
        // Thinning: draws at the highest rate and keeps each point with probability rate / highest.
        let (length, highest) = (duration.as_secs_f64(), self.highest());
        let (mut calls, mut time) = (Vec::new(), 0.0);
        while highest > 0.0 && calls.len() < MAX_CALLS {
            time += random.exponential(1.0 / highest);
            if time >= length {
                break;
            }
            if random.chance(self.rate(time / length) / highest) {
                calls.push(Duration::from_secs_f64(time));
            }
        }
        calls
    }

    fn highest(&self) -> f64 {
        match self {
            Self::Poisson { per_s } => *per_s,
            Self::Ramp { from_per_s, to_per_s } => from_per_s.max(*to_per_s),
            Self::Step { per_s } => per_s.iter().copied().fold(0.0, f64::max),
            Self::Soak { .. } => 0.0,
        }
    }

    /// Calls per second after this share of the scenario, 0 to 1.
    fn rate(&self, share: f64) -> f64 {
        match self {
            Self::Poisson { per_s } => *per_s,
            Self::Ramp { from_per_s, to_per_s } => from_per_s + (to_per_s - from_per_s) * share,
            Self::Step { per_s } => per_s.get((share * per_s.len() as f64) as usize).copied().unwrap_or(0.0),
            Self::Soak { .. } => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts calls in each tenth of 1000 s.
    fn tenths(arrivals: &Arrivals) -> Vec<usize> {
        let calls = arrivals.schedule(Duration::from_secs(1_000), &mut Random::new(5));
        assert!(calls.is_sorted());
        (0..10).map(|tenth| calls.iter().filter(|at| at.as_secs() / 100 == tenth).count()).collect()
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let calls = Arrivals::Poisson { per_s: 20.0 }.schedule(Duration::from_secs(1_000), &mut Random::new(5));
        // 20,000 calls are expected; the deviation is 141.
        assert!(calls.len().abs_diff(20_000) < 600, "{}", calls.len());
        let gaps: Vec<f64> = calls.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution has equal mean and deviation, and a share of e^-1 exceeds the mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{mean} {variance}");
        let above = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((above - (-1.0_f64).exp()).abs() < 0.015, "{above}");
    }

    #[test]
    fn ramp_rises_evenly() {
        let found = tenths(&Arrivals::Ramp { from_per_s: 0.0, to_per_s: 20.0 });
        for (tenth, count) in found.iter().enumerate() {
            // 100, 300 .. 1900 are expected; the deviation is at most 44.
            assert!(count.abs_diff(100 + 200 * tenth) < 150, "{found:?}");
        }
    }

    #[test]
    fn steps_follow_each_other() {
        let found = tenths(&Arrivals::Step { per_s: vec![10.0, 0.0, 20.0, 5.0, 1.0] });
        for (tenth, count) in found.iter().enumerate() {
            let expected = [1_000, 0, 2_000, 500, 100][tenth / 2];
            assert!(count.abs_diff(expected) <= expected / 10 + 50 * usize::from(expected > 0), "{found:?}");
        }
    }

    #[test]
    fn soak_callers_come_within_their_time() {
        let soak = Arrivals::Soak { callers: 4, within_s: 2.0, call_again: false };
        let calls = soak.schedule(Duration::from_secs(60), &mut Random::new(1));
        assert_eq!(calls, [0, 500, 1_000, 1_500].map(Duration::from_millis));
        assert!(soak.stay());
    }

    #[test]
    fn seed_repeats_calls() {
        let calls = |seed| Arrivals::Poisson { per_s: 3.0 }.schedule(Duration::from_secs(20), &mut Random::new(seed));
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
    }

    #[test]
    fn rates_outside_limits_are_refused() {
        for bad in [
            Arrivals::Poisson { per_s: -1.0 },
            Arrivals::Poisson { per_s: f64::NAN },
            Arrivals::Step { per_s: vec![] },
            Arrivals::Soak { callers: 0, within_s: 1.0, call_again: false },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
