//! Decides on a second attempt, and on the time before it.

use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;

use crate::failure::{ChatFailure, TimeLimit};

/// Attempts of a request. Only a failure before the first token leads to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts, 1 to 10.
    pub attempts: u32,
    /// Time before the second attempt; it doubles with every further one. Up to half of it is left out at random.
    pub backoff: Duration,
    /// Longest wait that the server may ask for with `Retry-After`; for a longer one there is no other attempt.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 2, backoff: Duration::from_millis(250), max_retry_after: Duration::from_secs(3) }
    }
}

impl RetryPolicy {
    /// Returns the time before the next attempt; `None` if there is none. `attempt` counts from 1, `random` is any number.
    pub(crate) fn delay(&self, attempt: u32, failure: &ChatFailure, random: u32) -> Option<Duration> {
        if attempt >= self.attempts || !is_temporary(failure) {
            return None;
        }
        let backoff = self.backoff.saturating_mul(1 << (attempt - 1).min(10));
        let backoff = backoff.mul_f64(1.0 - 0.5 * f64::from(random) / f64::from(u32::MAX));
        match failure {
            ChatFailure::RateLimited { retry_after: Some(wait), .. }
            | ChatFailure::ServerError { retry_after: Some(wait), .. } => {
                (*wait <= self.max_retry_after).then_some(backoff.max(*wait))
            }
            _ => Some(backoff),
        }
    }
}

/// True for a failure that another attempt may not have.
fn is_temporary(failure: &ChatFailure) -> bool {
    match failure {
        ChatFailure::UnknownHost { .. }
        | ChatFailure::Refused { .. }
        | ChatFailure::Unreachable { .. }
        | ChatFailure::Closed { .. }
        | ChatFailure::Torn { .. }
        | ChatFailure::IncompleteJson { .. }
        | ChatFailure::RateLimited { .. }
        | ChatFailure::Late { limit: TimeLimit::Connect, .. } => true,
        // 501 and 505 say that the server never will.
        ChatFailure::ServerError { status, .. } => !matches!(status, 501 | 505),
        ChatFailure::InStream { code, .. } => code.as_deref().is_some_and(|code| {
            matches!(code, "429" | "500" | "502" | "503" | "504" | "overloaded_error" | "server_error")
        }),
        _ => false,
    }
}

/// Reads `Retry-After`: seconds or a date; a date in the past is no wait.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn limited(seconds: u64) -> ChatFailure {
        ChatFailure::RateLimited { retry_after: Some(Duration::from_secs(seconds)), message: String::new() }
    }

    #[test]
    fn backoff_doubles_and_varies() {
        let policy = RetryPolicy { attempts: 4, ..RetryPolicy::default() };
        let failure = ChatFailure::Closed { reason: String::new() };
        let millis = |attempt, random| policy.delay(attempt, &failure, random).map(|delay| delay.as_millis());
        assert_eq!([1, 2, 3, 4].map(|attempt| millis(attempt, 0)), [Some(250), Some(500), Some(1_000), None]);
        assert_eq!(millis(1, u32::MAX), Some(125));
        let policy = RetryPolicy { attempts: u32::MAX, ..policy };
        assert_eq!(policy.delay(1_000_000, &failure, 0), Some(Duration::from_secs(256)));
    }

    #[test]
    fn retry_after_is_respected_up_to_a_bound() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, &limited(3), 0), Some(Duration::from_secs(3)));
        assert_eq!(policy.delay(1, &limited(0), 0), Some(Duration::from_millis(250)));
        assert_eq!(policy.delay(1, &limited(4), 0), None);
        let failure = ChatFailure::RateLimited { retry_after: None, message: String::new() };
        assert_eq!(policy.delay(1, &failure, 0), Some(Duration::from_millis(250)));
    }

    #[test]
    fn lasting_failures_are_not_retried() {
        let server = |status| ChatFailure::ServerError { status, retry_after: None, message: String::new() };
        let in_stream = |code: &str| ChatFailure::InStream { message: String::new(), code: Some(code.to_owned()) };
        let late = |limit| ChatFailure::Late { limit, after: Duration::ZERO };
        for failure in [server(500), server(503), server(408), in_stream("503"), late(TimeLimit::Connect)] {
            assert!(RetryPolicy::default().delay(1, &failure, 0).is_some(), "{failure}");
        }
        for failure in [
            server(501),
            in_stream("context_length_exceeded"),
            late(TimeLimit::FirstToken),
            late(TimeLimit::Whole),
            ChatFailure::Html,
            ChatFailure::Unauthorized { status: 401, key_sent: true, message: String::new() },
            ChatFailure::Rejected { status: 400, message: String::new() },
        ] {
            assert!(RetryPolicy::default().delay(1, &failure, 0).is_none(), "{failure}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Thu, 26 Nov 2026 10:00:00 GMT").unwrap();
        let read = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]), now)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(read("Thu, 26 Nov 2026 10:00:09 GMT"), Some(Duration::from_secs(9)));
        assert_eq!(read("Thu, 26 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        for value in ["-1", "NaN", "soon", "1e300", ""] {
            assert_eq!(read(value), None, "{value}");
        }
    }
}
