//! The body of `POST /v1/realtime/calls`: SDP, or a form with `sdp` and the session's configuration in `session`.

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use repartee_protocol::json::JsonBounds;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

use super::api_error::ApiError;
use super::form;

/// Maximum size of an offer, in bytes.
const MAX_SDP: usize = 64 << 10;
/// Maximum size of a session configuration, in bytes: instructions and tools.
const MAX_SESSION: usize = 1 << 20;
/// Maximum size of the body, in bytes.
pub(super) const MAX_BODY: usize = MAX_SDP + MAX_SESSION + (4 << 10);
/// Media type of offers and answers.
pub(super) const MEDIA_TYPE: &str = "application/sdp";

/// Parsed body of the request.
#[derive(Debug, PartialEq)]
pub(super) struct Offer {
    /// Session description of the offer.
    pub sdp: String,
    /// Patch of the session's configuration, as in `session.update`.
    pub session: Option<Value>,
}

/// Parses the body: plain SDP or a form.
pub(super) fn read_offer(headers: &HeaderMap, body: Bytes) -> Result<Offer, ApiError> {
    match form::media_type(headers).as_str() {
        MEDIA_TYPE => Ok(Offer { sdp: read_sdp(body)?, session: None }),
        form::MEDIA_TYPE => read_form(headers, body),
        _ => {
            let message =
                format!("send the offer as {MEDIA_TYPE}, or as {} with `sdp` and `session`", form::MEDIA_TYPE);
            let error = ErrorBody::invalid(ErrorKind::InvalidOffer, message);
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
        }
    }
}

fn read_form(headers: &HeaderMap, body: Bytes) -> Result<Offer, ApiError> {
    let fields = [("sdp", MAX_SDP), ("session", MAX_SESSION)];
    let mut form = form::read(headers, body, &fields, ErrorKind::InvalidOffer)?;
    let sdp = form.remove("sdp").ok_or_else(|| bad("the form has no `sdp`".into()))?;
    let session = form.remove("session").map(|session| read_session(&session)).transpose()?;
    Ok(Offer { sdp: read_sdp(sdp)?, session })
}

fn read_sdp(body: Bytes) -> Result<String, ApiError> {
    if body.len() > MAX_SDP {
        let message = format!("an offer holds at most {MAX_SDP} bytes, got {}", body.len());
        let body = ErrorBody::invalid(ErrorKind::TooLarge, message).with_param("sdp");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, body));
    }
    String::from_utf8(body.into()).map_err(|_| bad("the offer is not text".into()))
}

fn read_session(bytes: &[u8]) -> Result<Value, ApiError> {
    let refuse = |message: String| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("session"),
        )
    };
    JsonBounds::WIRE.check(bytes).map_err(|error| refuse(format!("`session`: {error}")))?;
    let session: Value =
        serde_json::from_slice(bytes).map_err(|error| refuse(format!("`session` is not JSON: {error}")))?;
    if session.is_object() { Ok(session) } else { Err(refuse("`session` is an object".into())) }
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, ErrorBody::invalid(ErrorKind::InvalidOffer, message))
}

#[cfg(test)]
#[path = "offer_tests.rs"]
mod tests;
