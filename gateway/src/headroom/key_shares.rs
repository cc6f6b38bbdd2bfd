//! Shares of keys: where there are several, one takes at most half of the calls that begin within a time, and leaves a part
//! of the machine to the others once it has half of the calls that the machine carries.

use std::collections::BTreeMap;
use std::time::Instant;

use super::beginnings::Beginnings;

/// Share of the machine that a key may take whatever others do.
const SHARE: f64 = 0.5;
/// Share that a key beyond that leaves to the others.
pub(super) const LEFT_TO_OTHERS: f64 = 0.125;

/// Calls of one key.
#[derive(Debug, Default)]
struct KeyCalls {
    calls: u64,
    beginnings: Beginnings,
}

/// Calls of each of several keys.
#[derive(Debug, Default)]
pub(super) struct KeyShares {
    keys: BTreeMap<u64, KeyCalls>,
}

impl KeyShares {
    /// True if one call more of a key may begin on a machine that carries so many calls; `scarce` where little is left of it.
    pub fn admit(&self, key: u64, carried: f64, scarce: bool, now: Instant) -> bool {
        let (calls, left) = self
            .keys
            .get(&key)
            .map_or((0, f64::INFINITY), |of_key| (of_key.calls, of_key.beginnings.left(carried, SHARE, now)));
        let within = calls == 0 || (calls + 1) as f64 <= SHARE * carried;
        (within || !scarce) && left >= 1.0
    }

    /// Counts a call of a key that begins at `now`.
    pub fn begin(&mut self, key: u64, carried: f64, now: Instant) {
        let of_key = self.keys.entry(key).or_default();
        of_key.calls += 1;
        of_key.beginnings.take(carried, SHARE, now);
    }

    /// Ends a call of a key. Its beginnings stay known: a server has few keys.
    pub fn end(&mut self, key: u64) {
        if let Some(of_key) = self.keys.get_mut(&key) {
            of_key.calls = of_key.calls.saturating_sub(1);
        }
    }
}
