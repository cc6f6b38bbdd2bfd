//! Headroom: the share of the machine that is left for new calls, and the work that is shed first when little is.
//!
//! - `pressure`: measures of load, and of lateness
//! - `processors`: processor time of this process
//! - `call_load`: the load of one call
//! - `calibration`: measures it at the start
//! - `ceiling`: calls that were too many
//! - `beginnings`: calls that begin within a time
//! - `key_shares`: shares of the keys, where there are several
//! - `throttle`: opens and closes the admission of calls by these
//!
//! Work is shed in this order: the effort of the Opus encoders (each call by its own late frames), speculation at
//! [`SHED_SPECULATION`], new calls at 1. Those who are served keep their quality.

mod beginnings;
mod calibration;
mod call_load;
mod ceiling;
mod key_shares;
mod pressure;
mod processors;
mod throttle;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub use calibration::{calibrate, transport_load};
pub use call_load::Load;
pub use pressure::LoadSample;
use pressure::Pressure;
pub use processors::ProcessorMeter;
pub use throttle::NoHeadroom;
use throttle::Throttle;

/// Load of the processors, or lateness, from which on no speculation begins: it is work for an answer that may not be wanted.
pub const SHED_SPECULATION: f64 = 0.95;

/// Load of the processors from which on they are full.
const FULL_PROCESSORS: f64 = 0.95;

/// A call that has begun; its end when dropped.
#[derive(Debug)]
pub struct BegunCall {
    headroom: Headroom,
    key: Option<u64>,
    began: Instant,
}

impl Drop for BegunCall {
    fn drop(&mut self) {
        self.headroom.state().throttle.end(self.key, self.began);
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

impl State {
    /// Load of the processors, as a share of what others leave.
    fn processors(&self) -> f64 {
        self.pressure.load().processors / self.throttle.left_by_others()
    }
}

impl Headroom {
    /// Sets the load of one call that was measured at the start.
    pub fn set_call_load(&self, load: Load) {
        self.state().throttle.calibrate(load);
    }

    /// Takes a measurement.
    pub fn observe(&self, sample: LoadSample, now: Instant) {
        let mut state = self.state();
        state.pressure.add(sample);
        let (load, lateness) = (state.pressure.load(), state.pressure.lateness());
        state.throttle.observe(load, lateness, sample.left_by_others, now);
    }

    /// Fails unless one call more may begin, of a key if there are several. A server without calls takes the first one
    /// whatever it measures.
    ///
    /// # Errors
    ///
    /// The reason why it may not begin.
    pub fn admit(&self, key: Option<u64>, now: Instant) -> Result<(), NoHeadroom> {
        self.state().throttle.admit(key, now)
    }

    /// Counts a call that begins, until it ends: its load shows only later.
    pub fn begin(&self, key: Option<u64>, now: Instant) -> BegunCall {
        self.state().throttle.begin(key, now);
        BegunCall { headroom: self.clone(), key, began: now }
    }

    /// Number of calls that have begun.
    pub fn calls(&self) -> u64 {
        self.state().throttle.calls()
    }

    /// Share of the machine that is left, 0 to 1; 0 while no call is admitted beside others.
    pub fn left(&self) -> f64 {
        self.state().throttle.left()
    }

    /// True if speculations are shed.
    pub fn sheds_speculation(&self) -> bool {
        let state = self.state();
        state.throttle.lateness().max(state.processors()) >= SHED_SPECULATION
    }

    /// True if the processors are full: work that can wait takes them from calls.
    pub fn has_full_processors(&self) -> bool {
        self.state().processors() >= FULL_PROCESSORS
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain numbers: a panic cannot leave them half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
