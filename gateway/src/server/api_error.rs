//! Errors as HTTP responses, in the format of the OpenAI API.

use std::time::Duration;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use repartee_protocol::error::ErrorEvent;
use repartee_protocol::{ErrorBody, ErrorKind};

/// Error as an HTTP response: status, body and `Retry-After`.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: Box<ErrorBody>,
    /// Value of the header `Retry-After`.
    retry_after: Option<Duration>,
}

impl ApiError {
    pub fn new(status: StatusCode, error: ErrorBody) -> Self {
        Self { status, error: Box::new(error), retry_after: None }
    }

    pub fn bad_request(error: ErrorBody) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::NotFound, message))
    }

    /// Internal error, 500. `message` goes to the log only.
    pub fn internal(message: &str) -> Self {
        tracing::error!(message, "a request failed");
        let body = ErrorBody::server(ErrorKind::Internal, "the server failed to process this request");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, body)
    }

    /// Returns the error's body, for a response that has begun.
    pub fn into_error(self) -> ErrorBody {
        *self.error
    }

    /// Returns the error's code; empty if it has none.
    pub fn code(&self) -> &str {
        self.error.code.as_deref().unwrap_or_default()
    }

    /// True if the error is the server's fault.
    pub fn is_ours(&self) -> bool {
        self.error.is_server_error()
    }

    /// Returns the message for a person.
    #[cfg(feature = "phone")]
    pub fn message(&self) -> &str {
        &self.error.message
    }

    /// Returns the status of the response.
    #[cfg(feature = "phone")]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which the client may try again.
    #[cfg(feature = "phone")]
    pub fn retry_time(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Sets the header `Retry-After`.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}

/// Code of an error, as an extension of its response.
#[derive(Debug, Clone)]
pub(super) struct RefusalCode(pub String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = RefusalCode(self.code().to_owned());
        let mut response = (self.status, Json(ErrorEvent { error: *self.error })).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            // Rounded up to whole seconds.
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs() + u64::from(after.subsec_nanos() > 0)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
