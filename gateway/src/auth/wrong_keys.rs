//! Wrong keys: counted by address in a bounded table, slowed above a rate, and logged in samples.
//!
//! A right key is never refused for the wrong ones of its address, because many clients may share it.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::address_rate::{AddressRate, Scope};

/// Delay of an answer to a wrong key above the rate.
const DELAY: Duration = Duration::from_secs(1);
/// Maximum number of answers that are delayed at once. Further ones are given at once.
const DELAYED: usize = 64;
/// Least time between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Counts wrong keys by address.
#[derive(Debug)]
pub struct WrongKeys {
    rate: Mutex<AddressRate>,
    log: Mutex<LogSamples>,
    delays: Semaphore,
}

/// State of the log's samples.
#[derive(Debug, Default)]
struct LogSamples {
    last: Option<Instant>,
    /// Number of wrong keys since then.
    since: u64,
}

impl WrongKeys {
    /// Creates a table with a limit of `per_minute` for an address; 0 for no limit.
    pub fn new(per_minute: u32) -> Self {
        let rate = Mutex::new(AddressRate::new(per_minute, Scope::All));
        Self { rate, log: Mutex::default(), delays: Semaphore::new(DELAYED) }
    }

    /// Counts a wrong key. Above the rate it returns the time to wait before the next one.
    pub fn count(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        // A panic cannot leave the table half changed.
        let taken = self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(address, now);
        if let Some(count) = self.sample(now) {
            tracing::warn!(%address, count, "a wrong key; count is that of all addresses since the last line");
        }
        taken.err()
    }

    /// Returns the number of wrong keys since the last log line if another one is due.
    fn sample(&self, now: Instant) -> Option<u64> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.since += 1;
        if log.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY) {
            return None;
        }
        log.last = Some(now);
        Some(std::mem::take(&mut log.since))
    }

    /// Waits before the answer to a wrong key, unless many answers wait already.
    pub async fn delay(&self) {
        if let Ok(_permit) = self.delays.try_acquire() {
            tokio::time::sleep(DELAY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_are_logged_in_samples() {
        let wrong = WrongKeys::new(0);
        let start = Instant::now();
        let logged: Vec<u64> = (0..25).filter_map(|n| wrong.sample(start + Duration::from_millis(100) * n)).collect();
        assert_eq!(logged, [1, 10, 10]);
    }
}
