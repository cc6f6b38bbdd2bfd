//! Errors as HTTP answers, in the shape that clients of the OpenAI API know.

use std::time::Duration;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use repartee_protocol::error::Report;
use repartee_protocol::{ErrorBody, ErrorKind};

/// A request that is not served.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: Box<ErrorBody>,
    /// When it makes sense to ask again.
    retry_after: Option<Duration>,
}

impl Refusal {
    pub fn new(status: StatusCode, error: ErrorBody) -> Self {
        Self { status, error: Box::new(error), retry_after: None }
    }

    pub fn bad_request(error: ErrorBody) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
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

    /// The error alone, where the answer has begun already.
    pub fn into_error(self) -> ErrorBody {
        *self.error
    }

    /// Asking again makes sense after this.
    pub fn again_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Report { error: *self.error })).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            // Whole seconds, and never too early.
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
