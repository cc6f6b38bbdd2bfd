//! Pressure: how full the machine is. 1 is the most that callers do not hear.
//!
//! Two things are measured. The **load** is the time of ticks and of processors. It tells the load of a call, but not that a
//! machine is full: an engine that computes ahead of time is busy while nobody waits, and callers who come at once keep
//! the processors busy while every frame is in time. The **lateness** tells that work which is due is not done, and closes the
//! admission.

use std::time::Duration;

use super::call_load::Load;

/// Share of time in ticks at which the engine is full. What is left is for the work between ticks.
const FULL_TICKS: f64 = 0.95;
/// Delay of the runtime that callers begin to hear: two packets.
const FULL_DELAY: Duration = Duration::from_millis(40);
/// Share of late frames that callers begin to hear.
const FULL_LATE: f64 = 0.02;
/// Frames of a sample below which its share of late ones is of this number: those of four callers in 100 ms.
const FEW_FRAMES: u64 = 20;
/// Duration of a tick that callers hear, because the engine keeps less sound ahead of them.
const FULL_TICK: Duration = Duration::from_millis(400);
/// Weight of the newest measurement of a load. With one each 100 ms, half of a change is visible after 300 ms.
const LOAD_WEIGHT: f64 = 0.2;
/// The same of delays and late frames: 700 ms. A disturbance of a moment is not heard, because receivers keep some sound.
const LATE_WEIGHT: f64 = 0.1;
/// The same of ticks that callers wait for: 3 s. Each first packet is waited for, so a few callers who ask together fill the
/// engine for seconds.
const DUE_WEIGHT: f64 = 0.025;

/// Measurement since the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LoadSample {
    /// Duration that the sample covers.
    pub covers: Duration,
    /// Time that the engine spent in ticks.
    pub ticks: Duration,
    /// Time of these in ticks that a caller waited for.
    pub due_ticks: Duration,
    /// Duration of the tick in progress.
    pub running_tick: Duration,
    /// Processors that this process used, as a share of what it can fill without lateness.
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

/// Means of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    load: Load,
    runtime: f64,
    late: f64,
    tick: f64,
    due: f64,
}

/// Load in shares of what the machine carries, from a share of the engine's time and that of the processors.
pub(super) fn load(ticks: f64, processors: f64) -> Load {
    Load { ticks: ticks / FULL_TICKS, processors }
}

impl Pressure {
    /// Adds a measurement.
    pub fn add(&mut self, sample: LoadSample) {
        let LoadSample { covers, ticks, processors, frames, late_frames, .. } = sample;
        if covers.is_zero() {
            return;
        }
        let ratio = |time: Duration, of: Duration| time.as_secs_f64() / of.as_secs_f64();
        let mean = |weight: f64, before: f64, new: f64| before + weight * (new - before);
        let measured = load(ratio(ticks, covers), processors);
        self.load = self.load.zip(measured, |before, new| mean(LOAD_WEIGHT, before, new));
        self.runtime = mean(LATE_WEIGHT, self.runtime, ratio(sample.runtime_delay, FULL_DELAY));
        self.tick = mean(LATE_WEIGHT, self.tick, ratio(sample.running_tick, FULL_TICK));
        // With few frames one that is late would say too much.
        let late = if frames == 0 { 0.0 } else { late_frames as f64 / frames.max(FEW_FRAMES) as f64 };
        self.late = mean(LATE_WEIGHT, self.late, late / FULL_LATE);
        self.due = mean(DUE_WEIGHT, self.due, load(ratio(sample.due_ticks, covers), 0.0).ticks);
    }

    /// Load, which rises with each call.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Lateness of what is due.
    pub fn lateness(&self) -> f64 {
        self.runtime.max(self.late).max(self.tick).max(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    fn after(samples: usize, sample: LoadSample) -> Pressure {
        let mut pressure = Pressure::default();
        (0..samples).for_each(|_| pressure.add(LoadSample { covers: EVERY, ..sample }));
        pressure
    }

    #[test]
    fn each_measure_of_lateness_fills_the_machine() {
        assert_eq!(after(50, LoadSample::default()).lateness(), 0.0);
        for sample in [
            LoadSample { runtime_delay: EVERY / 2, ..LoadSample::default() },
            LoadSample { running_tick: 5 * EVERY, ..LoadSample::default() },
            LoadSample { due_ticks: EVERY, ..LoadSample::default() },
            LoadSample { frames: 400, late_frames: 10, ..LoadSample::default() },
        ] {
            assert!(after(150, sample).lateness() >= 1.0, "{sample:?}");
            assert!(after(2, sample).lateness() < 0.5, "one disturbance of a moment is none: {sample:?}");
        }
        for sample in [
            LoadSample { runtime_delay: EVERY / 5, ..LoadSample::default() },
            LoadSample { running_tick: 2 * EVERY, ..LoadSample::default() },
            LoadSample { due_ticks: EVERY / 2, ..LoadSample::default() },
            LoadSample { frames: 400, late_frames: 4, ..LoadSample::default() },
        ] {
            let lateness = after(150, sample).lateness();
            assert!((0.4..0.6).contains(&lateness), "{sample:?}: {lateness}");
        }
    }

    #[test]
    fn work_that_nobody_waits_for_is_not_late() {
        let ahead = after(150, LoadSample { ticks: EVERY, processors: 1.2, ..LoadSample::default() });
        assert_eq!(ahead.lateness(), 0.0);
        assert!(ahead.load().ticks > 1.0 && ahead.load().processors > 1.0, "{:?}", ahead.load());
    }

    #[test]
    fn three_first_packets_do_not_fill_it() {
        // A second each for the first sound, one after the other, then sound ahead of time for five.
        let (mut pressure, mut fullest) = (Pressure::default(), 0.0_f64);
        for at in 0..240 {
            let due_ticks = if at % 80 < 30 { EVERY } else { Duration::ZERO };
            pressure.add(LoadSample { covers: EVERY, ticks: EVERY, due_ticks, ..LoadSample::default() });
            fullest = fullest.max(pressure.lateness());
        }
        assert!(fullest < 0.8, "{fullest}");
    }
}
