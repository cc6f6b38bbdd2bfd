//! Pressure: how full the machine is. 1 is the most that callers do not hear.

use std::time::Duration;

use super::call_load::Load;

/// Share of time in ticks at which the engine is full. What is left is for the work between ticks.
const FULL_TICKS: f64 = 0.95;
/// Share of the processors at which they are full: packets and frames wait for one from here on.
const FULL_PROCESSORS: f64 = 0.9;
/// Delay of the runtime that callers begin to hear: two packets.
const FULL_DELAY: Duration = Duration::from_millis(40);
/// Share of late frames that callers begin to hear.
const FULL_LATE: f64 = 0.02;
/// Frames of a sample below which its share of late ones is of this number: those of four callers in 100 ms.
const FEW_FRAMES: u64 = 20;
/// Weight of the newest measurement. With one each 100 ms, half of a change is visible after 300 ms.
const WEIGHT: f64 = 0.2;

/// Measurement since the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LoadSample {
    /// Duration that the sample covers.
    pub covers: Duration,
    /// Time that the engine spent in ticks.
    pub ticks: Duration,
    /// Share of the processors that this process used, of those that others leave to it.
    pub processors: f64,
    /// Share of the processors that others leave to this process, above 0.
    pub left_by_others: f64,
    /// Time that a task waited for the runtime.
    pub runtime_delay: Duration,
    /// Frames that were due.
    pub frames: u64,
    /// Frames of these that were played late.
    pub late_frames: u64,
}

/// Mean of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    load: Load,
    runtime: f64,
    late: f64,
}

/// Load in shares of what the machine carries, from a share of the engine's time and one of the processors.
pub(super) fn load(ticks: f64, processors: f64) -> Load {
    Load { ticks: ticks / FULL_TICKS, processors: processors / FULL_PROCESSORS }
}

impl Pressure {
    /// Adds a measurement.
    pub fn add(&mut self, sample: LoadSample) {
        let LoadSample { covers, ticks, processors, runtime_delay, frames, late_frames, .. } = sample;
        if covers.is_zero() {
            return;
        }
        let mean = |before: f64, new: f64| before + WEIGHT * (new - before);
        self.load = self.load.zip(load(ticks.as_secs_f64() / covers.as_secs_f64(), processors), mean);
        self.runtime = mean(self.runtime, runtime_delay.as_secs_f64() / FULL_DELAY.as_secs_f64());
        // With few frames one that is late would say too much.
        let late = if frames == 0 { 0.0 } else { late_frames as f64 / frames.max(FEW_FRAMES) as f64 };
        self.late = mean(self.late, late / FULL_LATE);
    }

    /// Load, which rises with each call.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Lateness, which shows only when the machine is full.
    pub fn lateness(&self) -> f64 {
        self.runtime.max(self.late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    fn after(samples: usize, sample: LoadSample) -> f64 {
        let mut pressure = Pressure::default();
        (0..samples).for_each(|_| pressure.add(LoadSample { covers: EVERY, ..sample }));
        pressure.load().value().max(pressure.lateness())
    }

    #[test]
    fn each_measure_fills_the_machine() {
        assert_eq!(after(50, LoadSample::default()), 0.0);
        for sample in [
            LoadSample { ticks: EVERY, ..LoadSample::default() },
            LoadSample { processors: 0.95, ..LoadSample::default() },
            LoadSample { runtime_delay: EVERY / 2, ..LoadSample::default() },
            LoadSample { frames: 400, late_frames: 10, ..LoadSample::default() },
        ] {
            assert!(after(50, sample) >= 1.0, "{sample:?}");
            assert!(after(2, sample) < 0.5, "one disturbance of a moment is none: {sample:?}");
        }
        for sample in [
            LoadSample { ticks: EVERY / 2, ..LoadSample::default() },
            LoadSample { processors: 0.5, ..LoadSample::default() },
            LoadSample { runtime_delay: EVERY / 5, ..LoadSample::default() },
            LoadSample { frames: 400, late_frames: 4, ..LoadSample::default() },
        ] {
            assert!((0.4..0.6).contains(&after(100, sample)), "{sample:?}: {}", after(100, sample));
        }
    }
}
