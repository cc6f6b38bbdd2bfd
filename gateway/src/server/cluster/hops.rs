//! Requests that another node has forwarded: their header is checked, and their client is the one that the header names.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use repartee_cluster::HOP_HEADER;
use repartee_protocol::{ErrorBody, ErrorKind};

use super::super::api_error::{ApiError, RefusalCode};
use super::super::app::AppState;
use super::super::client_addr::Peer;

/// Value of [`HOP_HEADER`] in the response of a node that has no slot for a call.
pub(super) const FULL: &str = "full";

/// Seconds since 1970.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Path and query of a request, as both nodes sign them.
pub(super) fn signed_path(uri: &axum::http::Uri) -> &str {
    uri.path_and_query().map_or(uri.path(), |path| path.as_str())
}

/// True if the response says that this node has no slot for a call.
pub(super) fn is_full(response: &Response) -> bool {
    let codes = [ErrorKind::SessionLimit, ErrorKind::ShuttingDown, ErrorKind::Starting].map(ErrorKind::code);
    response.status() == StatusCode::SERVICE_UNAVAILABLE
        && response.extensions().get::<RefusalCode>().is_some_and(|code| codes.contains(&&*code.0))
}

/// Checks the header of a forwarded request. It comes before the check of the client's address and key.
pub(in crate::server) async fn accept_hop(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(cluster) = app.cluster.get() else { return next.run(request).await };
    let Some(header) = request.headers_mut().remove(HOP_HEADER) else { return next.run(request).await };
    let (method, path) = (request.method().as_str(), signed_path(request.uri()));
    let hop = match cluster.hops.verify(header.to_str().unwrap_or_default(), method, path, unix_now()) {
        Ok(hop) => hop,
        Err(error) => {
            app.metrics.requests.refused.with_label_values(&["hop"]).inc();
            let error = ErrorBody::invalid(ErrorKind::InvalidKey, error.to_string()).with_param(HOP_HEADER);
            return ApiError::new(StatusCode::FORBIDDEN, error).into_response();
        }
    };
    let tls = request.extensions().get::<Peer>().is_some_and(|peer| peer.tls);
    request.extensions_mut().insert(Peer { address: SocketAddr::new(hop.client, 0), tls });
    request.extensions_mut().insert(hop);
    let mut response = next.run(request).await;
    if is_full(&response) {
        response.headers_mut().insert(HOP_HEADER, HeaderValue::from_static(FULL));
    }
    response
}
