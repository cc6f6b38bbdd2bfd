//! Figures of one call, for the line of its end in the log and for the list of calls.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use repartee_protocol::response::ResponseStatus;

/// Number of answers whose waits are kept, the latest.
const WAITS: usize = 256;

/// Figures of a call; the call writes them, and the list of calls reads them meanwhile.
#[derive(Debug, Default)]
pub struct CallSummary(Mutex<Figures>);

/// Counts of a call, and the latest waits of its caller.
#[derive(Debug, Default)]
struct Figures {
    counts: CallCounts,
    waits: VecDeque<Duration>,
}

/// Counts of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Number of complete responses.
    pub answers: u32,
    /// Number of responses that the caller interrupted or a client cancelled.
    pub cancelled: u32,
    /// Number of error events.
    pub errors: u32,
}

impl CallSummary {
    /// Counts a response that ended.
    pub(super) fn count_response(&self, status: ResponseStatus) {
        let counts = &mut self.figures().counts;
        match status {
            ResponseStatus::Completed => counts.answers += 1,
            ResponseStatus::Cancelled => counts.cancelled += 1,
            _ => {}
        }
    }

    /// Counts an error event.
    pub(super) fn count_error(&self) {
        self.figures().counts.errors += 1;
    }

    /// Adds the wait from the end of the caller's speech to the first sound.
    pub(super) fn add_wait(&self, wait: Duration) {
        let waits = &mut self.figures().waits;
        if waits.len() == WAITS {
            waits.pop_front();
        }
        waits.push_back(wait);
    }

    /// Returns the counts.
    pub fn counts(&self) -> CallCounts {
        self.figures().counts
    }

    /// Returns the p95 of the waits; `None` without an answer.
    pub fn wait_p95(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.figures().waits.iter().copied().collect();
        sorted.sort();
        sorted.get((sorted.len() * 95).div_ceil(100).checked_sub(1)?).copied()
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        // Counts have no invariant that a panic could break.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p95_is_of_the_latest_waits() {
        let summary = CallSummary::default();
        assert_eq!(summary.wait_p95(), None);
        summary.add_wait(Duration::from_millis(7));
        assert_eq!(summary.wait_p95(), Some(Duration::from_millis(7)));
        // Those before are dropped.
        (1..=WAITS as u64).rev().for_each(|ms| summary.add_wait(Duration::from_millis(ms)));
        assert_eq!(summary.wait_p95(), Some(Duration::from_millis(244)));
    }
}
