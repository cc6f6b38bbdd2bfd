//! Throttle of new calls: closes at full pressure, opens once it has been low for a while, and foresees the load of calls
//! that have just begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::call_load::{CallLoad, Load};

/// Pressure at which the throttle closes.
const CLOSES: f64 = 1.0;
/// Pressure below which a closed throttle opens.
const OPENS: f64 = 0.8;
/// Time for which the pressure has to be low before a closed throttle opens.
const CALM: Duration = Duration::from_secs(2);
/// Time after which a call's load is in the measurements: a caller has asked, and is answered.
const YOUNG: Duration = Duration::from_secs(5);
/// Most that is measured of the load that the present calls are known for; what is beyond comes from something else.
const PRESENT: f64 = 2.0;

/// Throttle of new calls. Until it is calibrated it refuses none.
#[derive(Debug)]
pub(super) struct Throttle {
    open: bool,
    /// Load of the present calls, as it is measured.
    load: Load,
    /// The same when no call was young last.
    of_settled: Load,
    /// The larger one of load and lateness.
    pressure: f64,
    /// Share of the processors that others leave.
    left_by_others: f64,
    /// Since when the pressure has been low, while the throttle is closed.
    calm_since: Option<Instant>,
    /// Load of one call; `None` before the calibration.
    of_one: Option<CallLoad>,
    /// Number of calls.
    calls: u64,
    /// Beginnings of the calls that are younger than [`YOUNG`], at most one for each of the engine's sessions.
    young: VecDeque<Instant>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            open: true,
            load: Load::default(),
            of_settled: Load::default(),
            pressure: 0.0,
            left_by_others: 1.0,
            calm_since: None,
            of_one: None,
            calls: 0,
            young: VecDeque::new(),
        }
    }
}

impl Throttle {
    /// Sets the load of one call that was measured at the start.
    pub fn calibrate(&mut self, load: Load) {
        self.of_one = Some(CallLoad::new(load));
    }

    /// Takes the load and the lateness at `now`. The processors' load is a share of what others leave of them.
    pub fn observe(&mut self, load: Load, lateness: f64, left_by_others: f64, now: Instant) {
        self.remove_settled(now);
        self.left_by_others = left_by_others;
        let settled = self.calls.saturating_sub(self.young.len() as u64);
        let Some(of_one) = &mut self.of_one else { return };
        // While many calls are young, nobody knows whose load it is.
        if 4 * settled >= 3 * self.calls {
            of_one.learn(Load { processors: load.processors * left_by_others, ..load }, settled);
        }
        let most = self.of_one().times(PRESENT * self.calls as f64);
        self.load = load.zip(most, f64::min);
        if self.young.is_empty() {
            self.of_settled = self.load;
        }
        self.pressure = self.load.value().max(lateness.min(most.value()));
        if self.open {
            self.open = self.pressure < CLOSES;
            self.calm_since = None;
        } else if self.pressure < OPENS {
            self.open = now.saturating_duration_since(*self.calm_since.get_or_insert(now)) >= CALM;
        } else {
            self.calm_since = None;
        }
    }

    /// True if one call more may begin.
    pub fn admits(&mut self, now: Instant) -> bool {
        self.remove_settled(now);
        self.calls == 0 || (self.open && self.pressure < CLOSES && self.foreseen(1) < CLOSES)
    }

    /// Counts a call that begins at `now`.
    pub fn begin(&mut self, now: Instant) {
        self.calls += 1;
        self.young.push_back(now);
    }

    /// Ends a call that began at `began`. If it is young still, it adds no load.
    pub fn end(&mut self, began: Instant) {
        self.calls = self.calls.saturating_sub(1);
        if let Some(at) = self.young.iter().rposition(|young| *young == began) {
            self.young.remove(at);
        }
    }

    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Pressure as it is measured.
    pub fn pressure(&self) -> f64 {
        self.pressure
    }

    /// Share of the machine that is left for calls, 0 to 1; 0 while none is admitted beside others.
    pub fn left(&self) -> f64 {
        if self.open { (1.0 - self.pressure.max(self.foreseen(0))).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Load of one call; nothing before the calibration.
    fn of_one(&self) -> Load {
        let one = self.of_one.as_ref().map_or(Load::default(), CallLoad::of_one);
        Load { processors: one.processors / self.left_by_others, ..one }
    }

    /// Load once that of the young calls and of `more` calls shows. What is measured beyond the load of the settled calls is
    /// that of young ones: most of it while they all ask at once.
    fn foreseen(&self, more: usize) -> f64 {
        let (young, add) = (self.young.len() as u64, |a: f64, b: f64| a + b);
        let times = |calls: u64| self.of_one().times(calls as f64);
        let settled = times(self.calls.saturating_sub(young)).zip(self.of_settled, f64::max).zip(self.load, f64::min);
        let known = settled.zip(times(young), add).zip(self.load, f64::max);
        known.zip(times(more as u64), add).value()
    }

    fn remove_settled(&mut self, now: Instant) {
        while self.young.front().is_some_and(|began| now.saturating_duration_since(*began) >= YOUNG) {
            self.young.pop_front();
        }
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
