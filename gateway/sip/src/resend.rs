//! Times of retransmission (RFC 3261, 17).

use std::time::{Duration, Instant};

use crate::hop::SignalTransport;

/// First interval (T1).
pub(crate) const T1: Duration = Duration::from_millis(500);
/// Longest interval (T2).
const T2: Duration = Duration::from_secs(4);
/// End of a transaction that nobody answers (64 T1).
pub(crate) const GIVE_UP: Duration = Duration::from_secs(32);

/// Retransmissions of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resend {
    next: Instant,
    interval: Duration,
    end: Instant,
}

/// Step of a retransmission that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    Wait,
    /// Send the message again.
    Again,
    /// Nobody answers.
    GiveUp,
}

impl Resend {
    /// Begins with a message that is sent at `now`.
    pub fn new(now: Instant) -> Self {
        Self { next: now + T1, interval: T1, end: now + GIVE_UP }
    }

    /// Begins with a message that is sent at `now`, and never again over a transport that repeats by itself.
    pub fn over(transport: SignalTransport, now: Instant) -> Self {
        let begun = Self::new(now);
        Self { next: if transport.is_reliable() { begun.end } else { begun.next }, ..begun }
    }

    /// Returns the next time of [`Self::step`].
    pub fn at(&self) -> Instant {
        self.next.min(self.end)
    }

    /// Advances to `now`.
    pub fn step(&mut self, now: Instant) -> Due {
        if now >= self.end {
            return Due::GiveUp;
        }
        if now < self.next {
            return Due::Wait;
        }
        self.interval = (self.interval * 2).min(T2);
        self.next = now + self.interval;
        Due::Again
    }
}
