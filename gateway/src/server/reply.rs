//! Errors as HTTP answers, in the shape that clients of the OpenAI API know.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::protocol::error::Report;
use crate::protocol::{ErrorBody, ErrorKind};

/// A request that is not served.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: Box<ErrorBody>,
}

impl Refusal {
    pub fn new(status: StatusCode, error: ErrorBody) -> Self {
        Self { status, error: Box::new(error) }
    }

    pub fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::NotFound, message))
    }

    /// A failure of ours; `message` goes to the log alone.
    pub fn internal(message: &str) -> Self {
        tracing::error!(message, "a request failed");
        let body = ErrorBody::server(ErrorKind::Internal, "the server could not do this");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, body)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(Report { error: *self.error })).into_response()
    }
}
