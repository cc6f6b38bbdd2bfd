//! Idle timeout: a caller who is silent for the configured time after a response gets another response. The timeout counts
//! received audio from the end of the response's playback.

/// Timer of the silence after a response.
#[derive(Debug, Default)]
pub(super) struct IdleTimeout {
    /// True from the end of a response until the caller speaks.
    armed: bool,
    /// Start of the silence in ms of received audio; `None` while the response still plays.
    since_ms: Option<u64>,
}

impl IdleTimeout {
    /// Starts the timer at the end of a response.
    pub fn arm(&mut self) {
        *self = Self { armed: true, since_ms: None };
    }

    /// Stops the timer when the caller speaks.
    pub fn disarm(&mut self) {
        *self = Self::default();
    }

    /// True from the end of a response until the caller speaks.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Stops counting: something sounds, or is about to.
    pub fn restart(&mut self) {
        self.since_ms = None;
    }

    /// Counts received audio up to `received_ms`; returns the start of the silence once it lasts `timeout_ms`.
    pub fn count(&mut self, received_ms: u64, timeout_ms: u64) -> Option<u64> {
        let since_ms = *self.since_ms.get_or_insert(received_ms);
        (received_ms - since_ms >= timeout_ms).then_some(since_ms)
    }
}
