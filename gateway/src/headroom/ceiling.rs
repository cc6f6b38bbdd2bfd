//! Ceiling of calls: the number at which they were late, a little less. It rises again, so that a machine that carries more is
//! used; slower after each time that this was too much.

use std::time::Duration;

/// Part of the calls that were too many.
const STEP: f64 = 0.03;
/// Rise in a second without lateness, as a share of the ceiling, at most and at least.
const RISE: (f64, f64) = (0.01, 0.001);
/// Time without lateness after which the rise doubles.
const DOUBLES: Duration = Duration::from_secs(60);
/// Ceiling above which it is forgotten, by the number of calls that the machine is known to carry.
const FORGOTTEN: f64 = 1.25;

/// Ceiling of calls; none before the first lateness.
#[derive(Debug)]
pub(super) struct Ceiling {
    calls: Option<f64>,
    rise: f64,
    /// Time without lateness since the rise changed last.
    calm: Duration,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self { calls: None, rise: RISE.0, calm: Duration::ZERO }
    }
}

impl Ceiling {
    /// True if `calls` are within it.
    pub fn admits(&self, calls: u64) -> bool {
        self.calls.is_none_or(|ceiling| calls as f64 <= ceiling)
    }

    /// Notes that lateness begins. If there is a ceiling, it rose too fast.
    pub fn begin_lateness(&mut self) {
        self.rise = if self.calls.is_some() { (self.rise / 2.0).max(RISE.1) } else { RISE.0 };
        self.calm = Duration::ZERO;
    }

    /// Notes that `calls` are late.
    pub fn lower(&mut self, calls: u64) {
        let most = calls as f64 * (1.0 - STEP);
        self.calls = Some(self.calls.map_or(most, |ceiling| ceiling.min(most)));
    }

    /// Notes that nothing was late for some time, on a machine that is known to carry `carried` calls.
    pub fn raise(&mut self, passed: Duration, carried: f64) {
        self.calm += passed;
        if self.calm >= DOUBLES {
            (self.rise, self.calm) = ((2.0 * self.rise).min(RISE.0), Duration::ZERO);
        }
        let rise = 1.0 + self.rise * passed.as_secs_f64();
        self.calls = self.calls.map(|calls| calls * rise).filter(|calls| *calls < FORGOTTEN * carried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seconds_until(ceiling: &mut Ceiling, calls: u64) -> usize {
        (0..10_000)
            .take_while(|_| {
                !ceiling.admits(calls) && {
                    ceiling.raise(SECOND, 100.0);
                    true
                }
            })
            .count()
    }

    #[test]
    fn ceilings_rise_slower_after_each_lateness() {
        let mut ceiling = Ceiling::default();
        assert!(ceiling.admits(u64::MAX));
        let mut times = Vec::new();
        for _ in 0..6 {
            ceiling.begin_lateness();
            ceiling.lower(80);
            assert!(ceiling.admits(77) && !ceiling.admits(78));
            times.push(seconds_until(&mut ceiling, 80));
        }
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]) && times[0] <= 5 && times[5] >= 25, "{times:?}");
    }

    #[test]
    fn ceilings_follow_calls_that_leave_while_late() {
        let mut ceiling = Ceiling::default();
        ceiling.begin_lateness();
        (50..=100).rev().for_each(|calls| ceiling.lower(calls));
        assert!(ceiling.admits(48) && !ceiling.admits(49));
    }

    #[test]
    fn a_machine_that_carries_more_forgets_them() {
        let mut ceiling = Ceiling::default();
        for _ in 0..20 {
            ceiling.begin_lateness();
            ceiling.lower(50);
        }
        let needed = seconds_until(&mut ceiling, u64::MAX);
        assert!((120..400).contains(&needed), "{needed}");
    }
}
