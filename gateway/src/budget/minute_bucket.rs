//! A quantity in a minute, paid afterwards: what is used is known only when it was used.

use std::time::{Duration, Instant};

/// Token bucket that may go below zero. Nothing more is allowed until it is above zero again.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinuteBucket {
    /// Most in a minute; 0 for no limit.
    limit: u32,
    left: f64,
    at: Option<Instant>,
}

impl MinuteBucket {
    /// Creates a full bucket of `limit` in a minute; 0 for no limit.
    pub fn new(limit: u32) -> Self {
        Self { limit, left: f64::from(limit), at: None }
    }

    /// Most in a minute; 0 for no limit.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes a used quantity.
    pub fn charge(&mut self, used: f64, now: Instant) {
        self.refill(now);
        self.left -= used;
    }

    /// Rest at `now`, at least 0, and the time until the bucket is full.
    pub fn state(&mut self, now: Instant) -> (f64, Duration) {
        self.refill(now);
        let missing = f64::from(self.limit) - self.left;
        (self.left.max(0.0), self.time(missing))
    }

    /// Time until something is left; `None` if something is, or without a limit.
    pub fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        // A little more than nothing, so that the end of the wait is not refused.
        (self.limit > 0 && self.left <= 0.0).then(|| self.time(-self.left) + Duration::from_millis(1))
    }

    fn refill(&mut self, now: Instant) {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let limit = f64::from(self.limit);
        self.left = (self.left + since.as_secs_f64() * limit / 60.0).min(limit);
        self.at = Some(now);
    }

    fn time(&self, missing: f64) -> Duration {
        let seconds = missing.max(0.0) * 60.0 / f64::from(self.limit.max(1));
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}
