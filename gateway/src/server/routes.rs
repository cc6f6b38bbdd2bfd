//! Routers of the server: pages and a refusal while the model loads, then all routes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use repartee_protocol::{ErrorBody, ErrorKind};

use super::api_error::ApiError;
use super::keyless::{LocalOnlyPolicy, require_local};
use super::page;
use super::readiness::{Readiness, STARTING_RETRY_S, health};
use super::request_log::{RequestLog, log_request};
use crate::metrics::RequestMetrics;

/// Router of a server; replaced once, when the model is loaded.
#[derive(Debug, Clone)]
pub(super) struct RouterSwitch {
    starting: Router,
    serving: Arc<OnceLock<Router>>,
}

impl RouterSwitch {
    /// Creates routes that use `starting` first.
    pub fn new(starting: Router) -> Self {
        Self { starting, serving: Arc::default() }
    }

    /// Switches to `serving` for all next requests, also on open connections.
    pub fn switch_to(&self, serving: Router) {
        // It is set once, because a server begins to serve once.
        let _ = self.serving.set(serving);
    }

    /// Returns the present router.
    pub fn current(&self) -> Router {
        self.serving.get().unwrap_or(&self.starting).clone()
    }
}

/// Builds the router for the time while the model loads: health checks, the pages, and a refusal of all other requests.
pub(super) fn starting(
    keyless: Arc<LocalOnlyPolicy>,
    readiness: Arc<Readiness>,
    metrics: RequestMetrics,
    log: Arc<RequestLog>,
) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/admin", get(page::admin))
        .route("/{file}", get(page_file))
        .fallback(refuse)
        .layer(middleware::from_fn_with_state(keyless, require_local))
        .layer(middleware::from_fn_with_state(log, log_request))
        .with_state(metrics)
        .merge(health(readiness))
}

/// Paths that the control thread answers on every listener.
const CONTROL_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// True if the first bytes of a connection are a request for a path of the control thread.
pub(super) fn names_control_path(start: &[u8]) -> bool {
    let path = start.strip_prefix(b"GET ").or_else(|| start.strip_prefix(b"HEAD "));
    let ends = |rest: &[u8]| matches!(rest.first(), Some(b' ' | b'?'));
    path.is_some_and(|path| CONTROL_PATHS.iter().any(|one| path.strip_prefix(one.as_bytes()).is_some_and(ends)))
}

/// True if more bytes after these, the first ones of a connection, may make a request for a path of the control thread.
pub(super) fn may_name_control_path(start: &[u8]) -> bool {
    // Every new connection comes here, so nothing is allocated.
    let begins = |method: &str, path: &str| {
        start.len() <= method.len() + path.len()
            && start.iter().copied().eq(method.bytes().chain(path.bytes()).take(start.len()))
    };
    !start.is_empty() && CONTROL_PATHS.iter().any(|path| begins("GET ", path) || begins("HEAD ", path))
}

/// Refusal of the control thread's other paths.
#[derive(Debug, Clone, Copy)]
pub(super) enum ControlRefusal {
    /// The connection is beyond the limit.
    Limit,
    /// The listener is for health checks.
    HealthOnly,
}

/// Builds the control thread's router: health checks, `metrics`, and a refusal of all other requests.
pub(super) fn control(readiness: Arc<Readiness>, metrics: Router, refusal: ControlRefusal) -> Router {
    let refuse = move || async move {
        match refusal {
            ControlRefusal::Limit => {
                let message = "the server has reached its limit of connections";
                let error = ErrorBody::server(ErrorKind::ConnectionLimit, message);
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(Duration::from_secs(1))
            }
            ControlRefusal::HealthOnly => {
                ApiError::not_found("this address serves /healthz, /readyz, /metrics and /v1/usage only")
            }
        }
    };
    health(readiness).merge(metrics).fallback(refuse)
}

/// Builds `/metrics` for the time while the model loads: a refusal.
pub(super) fn starting_metrics(keyless: Arc<LocalOnlyPolicy>, metrics: RequestMetrics) -> Router {
    Router::new()
        .route("/metrics", get(refuse))
        .layer(middleware::from_fn_with_state(keyless, require_local))
        .with_state(metrics)
}

/// Serves a file of the pages; refuses other names, which may be routes of the loaded server.
async fn page_file(metrics: State<RequestMetrics>, Path(name): Path<String>) -> Response {
    match page::find(&name) {
        Some(file) => file,
        None => refuse(metrics).await.into_response(),
    }
}

async fn refuse(State(metrics): State<RequestMetrics>) -> ApiError {
    metrics.refused.with_label_values(&["starting"]).inc();
    let message = "the server is loading its model: try again soon; GET /readyz reports the progress";
    let error = ErrorBody::server(ErrorKind::Starting, message);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(Duration::from_secs(STARTING_RETRY_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_control_paths_are_awaited() {
        for start in ["G", "GET ", "GET /heal", "HEAD /metrics", "GET /readyz"] {
            assert!(may_name_control_path(start.as_bytes()), "{start}");
        }
        for start in ["", "P", "GET /v", "GET /healthz ", "GET /healthz?", "GET /healthzz", "\u{16}"] {
            assert!(!may_name_control_path(start.as_bytes()), "{start}");
        }
    }

    #[test]
    fn control_paths_are_known_by_their_first_bytes() {
        for start in ["GET /healthz HTTP/1", "HEAD /metrics HT", "GET /readyz?x=1 H", "GET /metrics HTT"] {
            assert!(names_control_path(start.as_bytes()), "{start}");
        }
        for start in
            ["GET /healthzz HT", "GET /metric HTTP", "POST /metrics HT", "GET /v1/models H", "GET /healthz", ""]
        {
            assert!(!names_control_path(start.as_bytes()), "{start}");
        }
    }
}
