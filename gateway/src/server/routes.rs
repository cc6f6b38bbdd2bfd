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
pub(super) fn starting(keyless: Arc<LocalOnlyPolicy>, readiness: Arc<Readiness>, metrics: RequestMetrics) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/admin", get(page::admin))
        .route("/{file}", get(page_file))
        .fallback(refuse)
        .layer(middleware::from_fn_with_state(keyless, require_local))
        .with_state(metrics)
        .merge(health(readiness))
}

/// Builds the router of connections beyond the limit: health checks and a refusal.
pub(super) fn reserve(readiness: Arc<Readiness>) -> Router {
    let full = || async {
        let error = ErrorBody::server(ErrorKind::ConnectionLimit, "the server has reached its limit of connections");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(Duration::from_secs(1))
    };
    health(readiness).fallback(full)
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
