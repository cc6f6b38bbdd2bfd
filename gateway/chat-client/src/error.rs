//! The error of an exchange: URL, failure and measurements.

use std::fmt;
use std::time::Duration;

use crate::base_url::BaseUrl;
use crate::event::ExchangeStats;
use crate::failure::ChatFailure;

/// Error of an exchange. Its text names the URL without credentials, the failure and a remedy.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatError {
    /// URL of the server, without credentials and query.
    pub url: String,
    /// The failure of the last attempt.
    pub failure: Box<ChatFailure>,
    /// Measurements up to the failure.
    pub stats: ExchangeStats,
}

impl ChatError {
    pub(crate) fn new(url: &BaseUrl, failure: ChatFailure, stats: ExchangeStats) -> Self {
        Self { url: url.to_string(), failure: Box::new(failure), stats }
    }

    /// Wait that the server asks for before another request.
    pub fn retry_after(&self) -> Option<Duration> {
        match &*self.failure {
            ChatFailure::RateLimited { retry_after, .. } | ChatFailure::ServerError { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for ChatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.failure)?;
        if self.stats.characters > 0 {
            write!(f, "; {} characters had come before", self.stats.characters)?;
        }
        if self.stats.attempts > 1 {
            write!(f, "; {} attempts failed", self.stats.attempts)?;
        }
        Ok(())
    }
}

impl std::error::Error for ChatError {}
