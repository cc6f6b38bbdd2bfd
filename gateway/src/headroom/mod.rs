//! Headroom: the share of the machine that is left for new calls, and the work that is shed first when little is.
//!
//! - `pressure`: one measure of how full the machine is, from how late it is
//! - `throttle`: opens and closes the admission of calls by it
//!
//! Work is shed in this order: the effort of the Opus encoders (each call by its own late frames), speculation at
//! [`SHED_SPECULATION`], new calls at 1. Those who are served keep their quality.

mod pressure;
mod throttle;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use pressure::LoadSample;
use pressure::Pressure;
use throttle::Throttle;

/// Pressure from which on no speculation begins: it is work for an answer that may not be wanted.
pub const SHED_SPECULATION: f64 = 0.85;

/// A call that has begun; its end when dropped.
#[derive(Debug)]
pub struct BegunCall {
    headroom: Headroom,
    began: Instant,
}

impl Drop for BegunCall {
    fn drop(&mut self) {
        self.headroom.state().throttle.end(self.began);
    }
}

/// Handle of a server's headroom. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Headroom {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    pressure: Pressure,
    throttle: Throttle,
}

impl Headroom {
    /// Takes a measurement; `calls` is the number of calls at `now`.
    pub fn observe(&self, sample: LoadSample, calls: u64, now: Instant) {
        let mut state = self.state();
        state.pressure.add(sample);
        let pressure = state.pressure.value();
        state.throttle.observe(pressure, calls, now);
    }

    /// True if one call more may begin beside `calls`. An empty server takes the first call whatever it measures.
    pub fn admits(&self, calls: u64, now: Instant) -> bool {
        self.state().throttle.admits(calls, now)
    }

    /// Counts a call that begins, until it ends: its load shows only later.
    pub fn begin(&self, now: Instant) -> BegunCall {
        self.state().throttle.begin(now);
        BegunCall { headroom: self.clone(), began: now }
    }

    /// Share of the machine that is left, 0 to 1; 0 while no call is admitted beside others.
    pub fn left(&self) -> f64 {
        let state = self.state();
        if state.throttle.is_open() { (1.0 - state.pressure.value()).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// True if speculations are shed.
    pub fn sheds_speculation(&self) -> bool {
        self.state().pressure.value() >= SHED_SPECULATION
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain numbers: a panic cannot leave them half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
