//! Figures of one call, for the line of its end in the log.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_protocol::response::ResponseStatus;

/// Number of answers whose waits are kept, the latest.
const WAITS: usize = 256;

/// Counts of a call, and the latest waits of its caller.
#[derive(Debug, Default)]
pub(super) struct CallSummary {
    /// Number of complete responses.
    pub answers: u32,
    /// Number of responses that the caller interrupted or a client cancelled.
    pub cancelled: u32,
    /// Number of error events.
    pub errors: u32,
    waits: VecDeque<Duration>,
}

impl CallSummary {
    /// Counts a response that ended.
    pub fn count_response(&mut self, status: ResponseStatus) {
        match status {
            ResponseStatus::Completed => self.answers += 1,
            ResponseStatus::Cancelled => self.cancelled += 1,
            _ => {}
        }
    }

    /// Adds the wait from the end of the caller's speech to the first sound.
    pub fn add_wait(&mut self, wait: Duration) {
        if self.waits.len() == WAITS {
            self.waits.pop_front();
        }
        self.waits.push_back(wait);
    }

    /// Returns the p95 of the waits; `None` without an answer.
    pub fn wait_p95(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.waits.iter().copied().collect();
        sorted.sort();
        sorted.get((sorted.len() * 95).div_ceil(100).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p95_is_of_the_latest_waits() {
        let mut summary = CallSummary::default();
        assert_eq!(summary.wait_p95(), None);
        summary.add_wait(Duration::from_millis(7));
        assert_eq!(summary.wait_p95(), Some(Duration::from_millis(7)));
        // Those before are dropped.
        (1..=WAITS as u64).rev().for_each(|ms| summary.add_wait(Duration::from_millis(ms)));
        assert_eq!(summary.wait_p95(), Some(Duration::from_millis(244)));
    }
}
