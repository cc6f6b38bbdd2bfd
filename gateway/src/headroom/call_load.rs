//! Load of one call: calibrated at the start, then learned from the calls that there are.

/// Calls that the calibration counts as, beside those that are measured.
const CALIBRATED_CALLS: f64 = 8.0;
/// Weight of the newest measurement. With one each 100 ms, half of a change is visible after 5 s.
const WEIGHT: f64 = 0.014;
/// Largest factor by which learning departs from the calibration, below and above it: calls may be silent, and other work
/// than that of calls is measured too.
const DEPARTURE: (f64, f64) = (0.25, 2.0);

/// Load as shares of what the machine carries if others leave all of it: 1 is full.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Share of the engine's time.
    pub ticks: f64,
    /// Share of the processors.
    pub processors: f64,
}

impl Load {
    /// The fuller share.
    pub(super) fn value(self) -> f64 {
        self.ticks.max(self.processors)
    }

    /// This load `factor` times.
    pub(super) fn times(self, factor: f64) -> Self {
        self.zip(self, |share, _| share * factor)
    }

    /// Share by share.
    pub(super) fn zip(self, other: Self, each: impl Fn(f64, f64) -> f64) -> Self {
        Self { ticks: each(self.ticks, other.ticks), processors: each(self.processors, other.processors) }
    }
}

/// Estimate of the load of one call.
#[derive(Debug)]
pub(super) struct CallLoad {
    /// Load that was measured at the start.
    calibrated: Load,
    /// Means of the calls whose load shows, and of the load. Full hours weigh more than quiet ones.
    calls: f64,
    load: Load,
}

impl CallLoad {
    /// Begins with the load that was measured at the start.
    pub fn new(calibrated: Load) -> Self {
        Self { calibrated, calls: 0.0, load: Load::default() }
    }

    /// Takes the load of the machine under `calls` calls.
    pub fn learn(&mut self, load: Load, calls: u64) {
        self.calls += WEIGHT * (calls as f64 - self.calls);
        // Without calls it is the load of something else.
        let load = if calls == 0 { Load::default() } else { load };
        self.load = self.load.zip(load, |before, new| before + WEIGHT * (new - before));
    }

    /// Load of one call.
    pub fn of_one(&self) -> Load {
        let sum = self.calibrated.times(CALIBRATED_CALLS).zip(self.load, |calibrated, load| calibrated + load);
        let learned = sum.times(1.0 / (CALIBRATED_CALLS + self.calls));
        let (least, most) = DEPARTURE;
        learned.zip(self.calibrated, |learned, calibrated| learned.clamp(least * calibrated, most * calibrated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALIBRATED: Load = Load { ticks: 0.01, processors: 0.02 };

    fn learned(samples: usize, load: Load, calls: u64) -> Load {
        let mut estimate = CallLoad::new(CALIBRATED);
        (0..samples).for_each(|_| estimate.learn(load, calls));
        estimate.of_one()
    }

    fn near(found: Load, ticks: f64, processors: f64) {
        assert!((found.ticks / ticks - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.processors / processors - 1.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn measured_calls_outweigh_the_calibration() {
        let load = Load { ticks: 0.5, processors: 0.9 };
        assert_eq!(learned(0, load, 60), CALIBRATED);
        near(learned(1_000, load, 60), (0.5 + 0.08) / 68.0, (0.9 + 0.16) / 68.0);
        let soon = learned(50, load, 60).processors;
        assert!((0.9 / 60.0..0.018).contains(&soon), "half of the way within five seconds: {soon}");
    }

    #[test]
    fn other_work_changes_the_load_within_bounds() {
        let full = Load { ticks: 1.0, processors: 1.0 };
        near(learned(1_000, full, 2), 0.02, 0.04);
        assert_eq!(learned(1_000, full, 0), CALIBRATED);
        near(learned(1_000, Load::default(), 200), 0.0025, 0.005);
    }

    #[test]
    fn an_empty_server_returns_to_the_calibration() {
        let mut estimate = CallLoad::new(CALIBRATED);
        (0..600).for_each(|_| estimate.learn(Load { ticks: 0.9, processors: 0.9 }, 60));
        (0..600).for_each(|_| estimate.learn(Load::default(), 0));
        near(estimate.of_one(), 0.01, 0.02);
    }
}
