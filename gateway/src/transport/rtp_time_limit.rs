//! Limit on the audio that a caller's packets declare.

use std::time::{Duration, Instant};

/// Maximum lead of the packets' total duration over the time passed. A packet of two bytes may declare 120 ms.
pub const MAX_AHEAD: Duration = Duration::from_secs(1);
/// Tolerance of the sender's clock: it may be fast by one part in this number.
const CLOCK_ERROR: u32 = 1_000;

/// Limit on the total duration that a caller's packets declare. Time that has passed without packets is no such claim: on a network
/// that delivers in clumps they still come.
#[derive(Debug, Default)]
pub struct RtpTimeLimit {
    begun: Option<Instant>,
    /// Duration of packets, and of losses between them.
    claimed: Duration,
    /// Silence that timestamps claim. It never costs a packet its place.
    silence: Duration,
}

impl RtpTimeLimit {
    /// Admits `duration` more of sound at `now`; false if the packets are too far ahead of time.
    pub fn admit(&mut self, duration: Duration, now: Instant) -> bool {
        let admitted = self.claimed + duration <= self.allowed(now);
        self.claimed += if admitted { duration } else { Duration::ZERO };
        admitted
    }

    /// Admits `duration` more of silence that timestamps claim.
    pub fn admit_silence(&mut self, duration: Duration, now: Instant) -> bool {
        let admitted = self.claimed + self.silence + duration <= self.allowed(now);
        self.silence += if admitted { duration } else { Duration::ZERO };
        admitted
    }

    fn allowed(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(*self.begun.get_or_insert(now));
        passed + passed / CLOCK_ERROR + MAX_AHEAD
    }
}
