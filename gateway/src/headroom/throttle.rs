//! Throttle of new calls: foresees the load of the calls that there are, and closes while what is due is late.
//!
//! A call is admitted if all calls with it are fewer than the machine carries, by the load of one call. That is known from
//! the calibration, and learned from calls that are no longer young. What is measured while callers come at once says
//! nothing about it: they greet, connect and ask at the same time, and none is late. Real overload is known by lateness. It
//! closes the throttle, and the number of calls at which that happened is a [`Ceiling`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::beginnings::Beginnings;
use super::call_load::{CallLoad, Load};
use super::ceiling::Ceiling;
use super::key_shares::{KeyShares, LEFT_TO_OTHERS};

/// Lateness at which the throttle closes.
const CLOSES: f64 = 1.0;
/// Lateness below which a closed throttle opens.
const OPENS: f64 = 0.8;
/// Time for which the lateness has to be low before a closed throttle opens.
const CALM: Duration = Duration::from_secs(2);
/// Time after which a call's load is in the measurements: a caller has asked, and is answered.
const YOUNG: Duration = Duration::from_secs(5);
/// Lateness counts for so many times the load that the present calls are known for; what is beyond comes from something
/// else.
const PRESENT: f64 = 2.0;

/// Reason why no call more begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHeadroom {
    /// Calls would be late.
    Machine,
    /// Calls of other keys are owed the rest.
    Key,
}

/// Throttle of new calls. Until it is calibrated it refuses none.
#[derive(Debug)]
pub(super) struct Throttle {
    open: bool,
    /// Lateness, as far as the present calls can cause it.
    lateness: f64,
    /// Share of the processors that others leave.
    left_by_others: f64,
    /// Since when the lateness has been low, while the throttle is closed.
    calm_since: Option<Instant>,
    /// Calls that are not late.
    ceiling: Ceiling,
    /// Time of the last measurement.
    observed: Option<Instant>,
    /// Load of one call; `None` before the calibration.
    of_one: Option<CallLoad>,
    /// Calls that may begin now.
    beginnings: Beginnings,
    /// Calls of each key, where there are several.
    shares: KeyShares,
    /// Number of calls.
    calls: u64,
    /// Beginnings of the calls that are younger than [`YOUNG`], at most one for each of the engine's sessions.
    young: VecDeque<Instant>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            open: true,
            lateness: 0.0,
            left_by_others: 1.0,
            calm_since: None,
            ceiling: Ceiling::default(),
            observed: None,
            of_one: None,
            beginnings: Beginnings::default(),
            shares: KeyShares::default(),
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

    /// Takes the load and the lateness at `now`. The processors' load is a share of all of them; others leave a share.
    pub fn observe(&mut self, load: Load, lateness: f64, left_by_others: f64, now: Instant) {
        self.remove_settled(now);
        self.left_by_others = left_by_others;
        let before = self.observed.replace(now).unwrap_or(now);
        let settled = self.calls.saturating_sub(self.young.len() as u64);
        let Some(of_one) = &mut self.of_one else { return };
        // While many calls are young, nobody knows whose load it is.
        if 4 * settled >= 3 * self.calls {
            of_one.learn(load, settled);
        }
        self.lateness = lateness.min(PRESENT * self.foreseen(0));
        if self.lateness >= CLOSES {
            if std::mem::replace(&mut self.open, false) {
                self.ceiling.begin_lateness();
            }
            self.ceiling.lower(self.calls);
        }
        if self.lateness >= OPENS {
            self.calm_since = None;
            return;
        }
        let calm = now.saturating_duration_since(*self.calm_since.get_or_insert(now));
        self.open |= calm >= CALM;
        if self.open {
            self.ceiling.raise(now.saturating_duration_since(before), 1.0 / self.of_one().value());
        }
    }

    /// Refuses one call more, of a key if there are several, unless it may begin.
    pub fn admit(&mut self, key: Option<u64>, now: Instant) -> Result<(), NoHeadroom> {
        self.remove_settled(now);
        let fits = self.open && self.ceiling.admits(self.calls + 1) && self.foreseen(1) < CLOSES;
        let carried = self.carried();
        if self.calls == 0 {
            return Ok(());
        }
        if !fits || self.beginnings.left(carried, 1.0, now) < 1.0 {
            return Err(NoHeadroom::Machine);
        }
        // One call, and those of other keys.
        let more = 1 + (LEFT_TO_OTHERS * carried).clamp(1.0, u32::MAX.into()) as u64;
        let scarce = self.foreseen(more) >= CLOSES || !self.ceiling.admits(self.calls + more);
        match key.filter(|key| !self.shares.admit(*key, carried, scarce, now)) {
            Some(_) => Err(NoHeadroom::Key),
            None => Ok(()),
        }
    }

    /// Calls that the machine carries; no bound before the calibration.
    fn carried(&self) -> f64 {
        self.of_one().value().recip()
    }

    /// Counts a call that begins at `now`, of a key if there are several.
    pub fn begin(&mut self, key: Option<u64>, now: Instant) {
        let carried = self.carried();
        if self.of_one.is_some() {
            self.beginnings.take(carried, 1.0, now);
        }
        if let Some(key) = key {
            self.shares.begin(key, carried, now);
        }
        self.calls += 1;
        self.young.push_back(now);
    }

    /// Ends a call that began at `began`.
    pub fn end(&mut self, key: Option<u64>, began: Instant) {
        key.into_iter().for_each(|key| self.shares.end(key));
        self.calls = self.calls.saturating_sub(1);
        if let Some(at) = self.young.iter().rposition(|young| *young == began) {
            self.young.remove(at);
        }
    }

    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Lateness, as far as calls can cause it.
    pub fn lateness(&self) -> f64 {
        self.lateness
    }

    /// Share of the processors that others leave.
    pub fn left_by_others(&self) -> f64 {
        self.left_by_others
    }

    /// Share of the machine that is left for calls, 0 to 1; 0 while none is admitted beside others.
    pub fn left(&self) -> f64 {
        let admits = self.open && self.ceiling.admits(self.calls + 1);
        if admits { (1.0 - self.lateness.max(self.foreseen(0))).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Load of one call; nothing before the calibration.
    fn of_one(&self) -> Load {
        let one = self.of_one.as_ref().map_or(Load::default(), CallLoad::of_one);
        Load { processors: one.processors / self.left_by_others, ..one }
    }

    /// Load of all calls and of `more` ones, once each is as much as a call is known for.
    fn foreseen(&self, more: u64) -> f64 {
        self.of_one().times((self.calls + more) as f64).value()
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
