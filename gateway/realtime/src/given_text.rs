//! Given text of a response: its length, its end, its deadline.

use std::time::{Duration, Instant};

/// Maximum length of the given text of one response, in bytes.
pub(super) const MAX_TEXT: usize = 64 << 10;
/// Time without new text after which the text ends, so that a response does not wait forever.
pub(super) const TEXT_TIMEOUT: Duration = Duration::from_secs(30);

/// Given text of a response: its length so far and its state.
#[derive(Debug)]
pub(super) struct GivenText {
    bytes: usize,
    ended: bool,
    /// Time of the last append.
    since: Instant,
}

impl GivenText {
    /// Creates an empty text that starts at `now`.
    pub fn new(now: Instant) -> Self {
        Self { bytes: 0, ended: false, since: now }
    }

    /// Counts `bytes` of text that came at `now`.
    ///
    /// # Errors
    /// The text has ended, or would become too long; the message is for the client.
    pub fn append(&mut self, bytes: usize, now: Instant) -> Result<(), &'static str> {
        if self.ended {
            return Err("the text of this response has ended");
        }
        if self.bytes + bytes > MAX_TEXT {
            return Err("a response takes at most 64 KiB of text: end this text, and create another response");
        }
        self.bytes += bytes;
        self.since = now;
        Ok(())
    }

    /// Ends the text; returns true if it had ended before.
    pub fn end(&mut self) -> bool {
        std::mem::replace(&mut self.ended, true)
    }

    /// Time at which the text ends without further client events; `None` if it has ended.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.ended).then_some(self.since + TEXT_TIMEOUT)
    }
}
