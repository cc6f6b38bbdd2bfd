//! What answers requests: first the pages and a refusal, everything once the model is loaded.

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

/// The routes of a server, which grow once.
#[derive(Debug, Clone)]
pub(super) struct RouterSwitch {
    starting: Router,
    serving: Arc<OnceLock<Router>>,
}

impl RouterSwitch {
    /// Answers with `starting` until there is more.
    pub fn new(starting: Router) -> Self {
        Self { starting, serving: Arc::default() }
    }

    /// Answers the next requests with `serving`, also on connections that are open.
    pub fn switch_to(&self, serving: Router) {
        // A server begins to serve once.
        let _ = self.serving.set(serving);
    }

    /// What answers now.
    pub fn current(&self) -> Router {
        self.serving.get().unwrap_or(&self.starting).clone()
    }
}

/// Routes while the model loads: health, the pages, which wait, and a refusal of everything else.
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

/// What connections beyond the limit get.
pub(super) fn reserve(readiness: Arc<Readiness>) -> Router {
    let full = || async {
        let error = ErrorBody::server(ErrorKind::ConnectionLimit, "the server has as many connections as it takes");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(Duration::from_secs(1))
    };
    health(readiness).fallback(full)
}

/// A file of the pages; other names belong to routes that are not there yet.
async fn page_file(metrics: State<RequestMetrics>, Path(name): Path<String>) -> Response {
    match page::find(&name) {
        Some(file) => file,
        None => refuse(metrics).await.into_response(),
    }
}

async fn refuse(State(metrics): State<RequestMetrics>) -> ApiError {
    metrics.refused.with_label_values(&["starting"]).inc();
    let message = "the server is loading its model: try again soon; GET /readyz says how far it is";
    let error = ErrorBody::server(ErrorKind::Starting, message);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(Duration::from_secs(STARTING_RETRY_S))
}
