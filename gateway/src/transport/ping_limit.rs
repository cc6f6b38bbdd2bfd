//! Limit of a client's pings: the websocket library answers each one, and holds the answers until the client reads.

use std::time::Duration;

use tokio::time::Instant;

/// Pings that may come at once.
const BURST: u32 = 64;
/// Time after which one more may come.
const EACH: Duration = Duration::from_millis(100);

/// Bytes that the websocket library may hold for a client that does not read: more than the largest message, so that
/// only answers to pings can fill it.
pub const MAX_WRITE_BUFFER: usize = 32 << 20;

/// Pings and pongs of one connection.
#[derive(Debug)]
pub struct PingLimit {
    left: u32,
    counted: Instant,
}

impl PingLimit {
    /// Creates the limit of a new connection.
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, counted: now }
    }

    /// Counts a ping or a pong; false if there are too many.
    pub fn admit(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.counted).as_millis() / EACH.as_millis();
        if gained > 0 {
            self.left = u32::try_from(gained).unwrap_or(u32::MAX).saturating_add(self.left).min(BURST);
            self.counted = now;
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_come_in_bursts_or_slowly() {
        let mut now = Instant::now();
        let mut limit = PingLimit::new(now);
        assert!((0..BURST).all(|_| limit.admit(now)));
        assert!(!limit.admit(now), "the burst is over");
        for _ in 0..1_000 {
            now += EACH;
            assert!(limit.admit(now));
            assert!(!limit.admit(now));
        }
        now += Duration::from_secs(3_600);
        assert!((0..BURST).all(|_| limit.admit(now)));
        assert!(!limit.admit(now), "an hour of silence saves no more than a burst");
    }
}
