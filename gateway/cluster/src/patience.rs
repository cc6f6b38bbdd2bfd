//! Patience with a node that got a request and has not answered: it is asked now and then whether it lives, and waited for as
//! long as its work may take.

use std::time::{Duration, Instant};

/// Time after which a node is asked for the first time.
const FIRST_DOUBT: Duration = Duration::from_millis(150);
/// Time between two questions after that.
const NEXT_DOUBT: Duration = Duration::from_secs(1);
/// Longest wait for an answer that takes no model.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest wait for a voice, which a large model on a processor takes long to enrol, behind those of others.
const ENROLMENT: Duration = Duration::from_secs(300);

/// Waits for one answer.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    end: Instant,
    next: Duration,
}

impl Patience {
    /// Patience with the answer to a request that was sent now.
    pub fn new(method: &str, path: &str, now: Instant) -> Self {
        let enrols = method == "POST" && path == "/v1/audio/voices";
        Self { end: now + if enrols { ENROLMENT } else { ANSWER }, next: FIRST_DOUBT }
    }

    /// Time until the node is asked again whether it lives; `None` once it has had its time.
    pub fn next_wait(&mut self, now: Instant) -> Option<Duration> {
        let left = self.end.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some(std::mem::replace(&mut self.next, NEXT_DOUBT).min(left))
    }
}
