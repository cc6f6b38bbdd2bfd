//! Maximum sizes of what a server sends, and time limits.

use std::time::Duration;

/// Maximum sizes of a request and of what a server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// JSON of a request, in bytes.
    pub request: usize,
    /// A line of the event stream, in bytes.
    pub line: usize,
    /// The data of an event, in bytes.
    pub event: usize,
    /// A body of JSON in place of an event stream, and the list of models, in bytes.
    pub json: usize,
    /// All bytes of a response's body.
    pub body: usize,
    /// Text, reasoning and arguments of an answer, in bytes.
    pub text: usize,
    /// Number of calls in an answer.
    pub tool_calls: usize,
    /// Arguments of one call, in bytes.
    pub tool_call: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: 8 << 20,
            line: 1 << 20,
            event: 1 << 20,
            json: 4 << 20,
            body: 64 << 20,
            text: 4 << 20,
            tool_calls: 64,
            tool_call: 512 << 10,
        }
    }
}

/// Time limits of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// Opening a connection, with DNS, proxy and TLS.
    pub connect: Duration,
    /// From the sent request to the first token.
    pub first_token: Duration,
    /// From one token to the next. The time that the caller takes to read counts for nothing.
    pub between_tokens: Duration,
    /// From the reason of the end to the end of the stream, which then counts as ended.
    pub after_finish: Duration,
    /// The whole exchange, with all attempts and the caller's time.
    pub whole: Duration,
    /// An unused connection. Afterwards it is closed with the next request.
    pub idle_connection: Duration,
}

impl TimeLimits {
    /// Largest value of a limit.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Returns the name of a limit that is zero or over [`TimeLimits::MAX`].
    pub(crate) fn invalid(&self) -> Option<&'static str> {
        let limits = [
            ("connect", self.connect),
            ("first_token", self.first_token),
            ("between_tokens", self.between_tokens),
            ("after_finish", self.after_finish),
            ("whole", self.whole),
            ("idle_connection", self.idle_connection),
        ];
        limits.into_iter().find(|(_, limit)| limit.is_zero() || *limit > Self::MAX).map(|(name, _)| name)
    }
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_token: Duration::from_secs(20),
            between_tokens: Duration::from_secs(10),
            after_finish: Duration::from_secs(1),
            whole: Duration::from_secs(300),
            idle_connection: Duration::from_secs(30),
        }
    }
}
