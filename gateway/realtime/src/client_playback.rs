//! Estimate of the playback by a client that has its own clock.

use std::time::{Duration, Instant};

/// Estimated end of playback on a client without our playout clock, if it plays immediately and without gaps.
#[derive(Debug, Default)]
pub(super) struct ClientPlayback(Option<Instant>);

impl ClientPlayback {
    /// Adds audio that was sent at `now`.
    pub fn extend(&mut self, samples: u64, rate: u32, now: Instant) {
        let from = self.0.map_or(now, |until| until.max(now));
        self.0 = Some(from + Duration::from_micros(samples * 1_000_000 / u64::from(rate.max(1))));
    }

    /// Ends the playback: the client drops unplayed audio.
    pub fn end(&mut self) {
        self.0 = None;
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.0.is_none_or(|until| until <= now)
    }
}
