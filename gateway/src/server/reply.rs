//! Errors as HTTP answers, in the shape that clients of the OpenAI API know.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::protocol::error::Report;
use crate::protocol::{ErrorBody, ErrorKind};

/// A request that is not served.
#[derive(Debug)]
pub(super) struct Refusal(pub StatusCode, pub ErrorBody);

impl Refusal {
    pub fn not_found(message: &str) -> Self {
        Self(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::NotFound, message))
    }

    /// A failure of ours; `message` goes to the log alone.
    pub fn internal(message: &str) -> Self {
        tracing::error!(message, "a request failed");
        let body = ErrorBody::server(ErrorKind::Internal, "the server could not do this");
        Self(StatusCode::INTERNAL_SERVER_ERROR, body)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(Report { error: self.1 })).into_response()
    }
}
