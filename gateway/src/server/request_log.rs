//! Middleware of every request: its id, its line in the access log, and lines of a sample of the refusals.
//!
//! The id is the client's `x-request-id` if that is short and plain, otherwise a new one. The response has it too, and so has
//! every line about the request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use ipnet::IpNet;

use super::api_error::RefusalCode;
use super::client_addr::{ClientAddr, Peer};
use crate::config::Config;
use crate::ids;

/// Header of a request's id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id of a client that is taken over, in bytes.
const MAX_ID: usize = 128;
/// Maximum number of refusals that are logged in a minute.
const MAX_REFUSALS: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Id of a request, as an extension of it; empty if the operating system gave no random numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestId(pub Arc<str>);

/// Settings and state of the middleware.
#[derive(Debug)]
pub(super) struct RequestLog {
    /// True to log every request.
    access: bool,
    trusted: Vec<IpNet>,
    refusals: Mutex<RefusalSample>,
}

impl RequestLog {
    /// Creates it from the settings.
    pub fn new(config: &Config) -> Arc<Self> {
        let (access, trusted) = (config.log.access, config.proxy.trusted.clone());
        Arc::new(Self { access, trusted, refusals: Mutex::default() })
    }
}

/// Sample of the refusals: the first ones of each minute.
#[derive(Debug, Default)]
struct RefusalSample {
    /// Begin of the minute.
    since: Option<Instant>,
    /// Number of refusals in it.
    count: u32,
}

impl RefusalSample {
    /// Counts a refusal. Returns `None` if it is not to be logged, else the number of those before that were not.
    fn count(&mut self, now: Instant) -> Option<u32> {
        let mut unlogged = 0;
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= MINUTE) {
            unlogged = self.count.saturating_sub(MAX_REFUSALS);
            *self = Self { since: Some(now), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        (self.count <= MAX_REFUSALS).then_some(unlogged)
    }
}

/// Gives the request its id, and logs it.
pub(super) async fn log_request(State(log): State<Arc<RequestLog>>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let peer = request.extensions().get::<Peer>().copied();
    let address = peer.map(|peer| ClientAddr::new(peer, request.headers(), &log.trusted).address);
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    let status = response.status();
    if let Ok(value) = HeaderValue::from_str(&id.0)
        && !value.is_empty()
    {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let (status_code, request_id) = (status.as_u16(), &*id.0);
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    if log.access {
        let ms = begun.elapsed().as_millis() as u64;
        tracing::info!(%method, path, status = status_code, ms, address, request_id, "a request");
    }
    if let Some(RefusalCode(code)) = response.extensions().get::<RefusalCode>()
        && status != StatusCode::NOT_FOUND
    {
        let unlogged = log.refusals.lock().unwrap_or_else(PoisonError::into_inner).count(Instant::now());
        if let Some(unlogged) = unlogged {
            tracing::warn!(
                %method, path, status = status_code, code, address, request_id, unlogged, "a request was refused"
            );
        }
    }
    response
}

/// Returns the id of a request.
fn request_id(headers: &HeaderMap) -> RequestId {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| is_plain(id));
    RequestId(given.map_or_else(|| ids::request().unwrap_or_default().into(), Into::into))
}

/// True for an id that can stand in a header and in a log line.
fn is_plain(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_the_sample_are_counted() {
        let mut sample = RefusalSample::default();
        let begun = Instant::now();
        for _ in 0..MAX_REFUSALS {
            assert_eq!(sample.count(begun), Some(0));
        }
        assert_eq!((sample.count(begun), sample.count(begun + MINUTE / 2)), (None, None));
        assert_eq!(sample.count(begun + MINUTE), Some(2));
        assert_eq!(sample.count(begun + 3 * MINUTE), Some(0));
    }

    #[test]
    fn plain_ids_are_taken_over() {
        let header = |id: &str| HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(id).unwrap())]);
        assert_eq!(&*request_id(&header("trace-1:a/b+c=")).0, "trace-1:a/b+c=");
        for id in ["", "two words", "a\tb", "quote\"", &"a".repeat(MAX_ID + 1)] {
            let own = request_id(&header(id));
            assert!(own.0.starts_with("req_") && own.0.len() == 36, "{id:?}: {own:?}");
        }
    }
}
