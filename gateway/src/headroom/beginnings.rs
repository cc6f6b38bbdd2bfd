//! Calls that may begin within a time: callers who connect and ask at once take more than they do later.

use std::time::{Duration, Instant};

/// Time in which at most as many calls begin as the machine carries.
const FILLS: Duration = Duration::from_secs(10);
/// Share of the calls that the machine carries that may begin at one moment, and the least number.
const AT_ONCE: f64 = 0.25;
const LEAST_AT_ONCE: f64 = 8.0;

/// Calls that may begin now, before more do.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    /// Calls that could begin, when that was known; `None` for all.
    left: Option<(f64, Instant)>,
}

impl Beginnings {
    /// Calls that may begin at `now` on a machine that carries so many, of which this is a share of 0 to 1.
    pub fn left(&self, carried: f64, share: f64, now: Instant) -> f64 {
        let most = share * (AT_ONCE * carried).max(LEAST_AT_ONCE);
        let Some((before, at)) = self.left else { return most };
        let passed = now.saturating_duration_since(at).as_secs_f64() / FILLS.as_secs_f64();
        (before + passed * share * carried).min(most)
    }

    /// Counts a call that begins at `now`.
    pub fn take(&mut self, carried: f64, share: f64, now: Instant) {
        self.left = Some(((self.left(carried, share, now) - 1.0).max(0.0), now));
    }
}
