//! Extractors whose refusals are errors of the API, and what requests say in headers.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, SEC_WEBSOCKET_PROTOCOL};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use repartee_protocol::beta::HEADER_WARNING;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::de::DeserializeOwned;

use super::api_error::ApiError;

/// Header of clients of the beta interface.
const BETA_HEADER: &str = "openai-beta";
/// Subprotocol of browsers in place of that header.
const BETA_PROTOCOL: &str = "openai-beta.realtime-v1";

/// Query parameters as `T`.
#[derive(Debug)]
pub(super) struct UrlQuery<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for UrlQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Query::try_from_uri(&parts.uri).map(|Query(query)| Self(query)).map_err(|rejection| bad_query(&rejection))
    }
}

/// Error of a query that cannot be read.
pub(super) fn bad_query(rejection: &QueryRejection) -> ApiError {
    let text = rejection.body_text();
    let reason = text.rsplit_once(": ").map_or(text.as_str(), |(_, reason)| reason);
    let error = ErrorBody::invalid(ErrorKind::InvalidValue, format!("the query cannot be read: {reason}"));
    // The reason names a duplicate or missing parameter.
    ApiError::bad_request(match reason.split('`').nth(1) {
        Some(name) => error.with_param(name),
        None => error,
    })
}

/// The name in a path such as `/v1/models/{id}`.
#[derive(Debug)]
pub(super) struct UrlName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for UrlName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Path::from_request_parts(parts, state).await.map(|Path(name)| Self(name)).map_err(|rejection| {
            ApiError::bad_request(ErrorBody::invalid(ErrorKind::InvalidValue, rejection.body_text()))
        })
    }
}

/// Refuses compressed bodies, which no route reads.
pub(super) async fn refuse_compressed(request: Request, next: Next) -> Response {
    let plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if request.headers().get_all(CONTENT_ENCODING).iter().all(plain) {
        return next.run(request).await;
    }
    let message = "bodies are read uncompressed: send this one without `Content-Encoding`";
    let error = ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("Content-Encoding");
    let mut response = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error).into_response();
    response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

/// Subprotocols that a websocket client offers.
pub(super) fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim)
}

/// Warnings about what the headers ask for.
pub(super) fn header_warnings(headers: &HeaderMap) -> Vec<String> {
    let beta = headers.contains_key(BETA_HEADER) || subprotocols(headers).any(|offered| offered == BETA_PROTOCOL);
    if beta { vec![HEADER_WARNING.to_owned()] } else { Vec::new() }
}
