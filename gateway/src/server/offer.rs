//! The body of `POST /v1/realtime/calls`: SDP, or a form with `sdp` and the session's configuration in `session`.

use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use multer::{Constraints, Multipart, SizeLimit, parse_boundary};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

use super::api_error::ApiError;

/// The longest offer, in bytes.
const MAX_SDP: usize = 64 << 10;
/// The longest session configuration, in bytes: instructions and tools.
const MAX_SESSION: usize = 1 << 20;
/// The longest body.
pub(super) const MAX_BODY: usize = MAX_SDP + MAX_SESSION + (4 << 10);
/// The media type of offers and answers.
pub(super) const MEDIA_TYPE: &str = "application/sdp";

/// A parsed body.
#[derive(Debug, PartialEq)]
pub(super) struct Offer {
    /// The session description.
    pub sdp: String,
    /// A patch of the session's configuration, as in `session.update`.
    pub session: Option<Value>,
}

/// Reads the body of a call.
pub(super) async fn read_offer(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Offer, ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let body = body.map_err(|rejection| ApiError::unreadable(&rejection))?;
    let is = |wanted: &str| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted));
    if is(MEDIA_TYPE) {
        Ok(Offer { sdp: read_sdp(body)?, session: None })
    } else if is("multipart/form-data") {
        read_form(kind, body).await
    } else {
        let message = format!("send the offer as {MEDIA_TYPE}, or as multipart/form-data with `sdp` and `session`");
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorBody::invalid(ErrorKind::InvalidOffer, message)))
    }
}

async fn read_form(kind: &str, body: Bytes) -> Result<Offer, ApiError> {
    let boundary = parse_boundary(kind).map_err(|error| bad(format!("the form has no boundary: {error}")))?;
    let limits = SizeLimit::new()
        .whole_stream(MAX_BODY as u64)
        .for_field("sdp", MAX_SDP as u64)
        .for_field("session", MAX_SESSION as u64)
        .per_field(0);
    let whole = stream::iter([Ok::<_, std::io::Error>(body)]);
    let constraints = Constraints::new().allowed_fields(vec!["sdp", "session"]).size_limit(limits);
    let mut form = Multipart::with_constraints(whole, boundary, constraints);
    let (mut sdp, mut session) = (None, None);
    while let Some(field) = form.next_field().await.map_err(unreadable)? {
        let name = field.name().unwrap_or("").to_owned();
        let bytes = field.bytes().await.map_err(unreadable)?;
        let is_duplicate = match name.as_str() {
            "sdp" => sdp.replace(read_sdp(bytes)?).is_some(),
            _ => session.replace(read_session(&bytes)?).is_some(),
        };
        if is_duplicate {
            return Err(bad(format!("the form has `{name}` twice")));
        }
    }
    let sdp = sdp.ok_or_else(|| bad("the form has no `sdp`".into()))?;
    Ok(Offer { sdp, session })
}

fn read_sdp(body: Bytes) -> Result<String, ApiError> {
    if body.len() > MAX_SDP {
        let message = format!("an offer holds at most {MAX_SDP} bytes, got {}", body.len());
        let body = ErrorBody::invalid(ErrorKind::TooLarge, message).at("sdp");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, body));
    }
    String::from_utf8(body.into()).map_err(|_| bad("the offer is not text".into()))
}

fn read_session(bytes: &[u8]) -> Result<Value, ApiError> {
    let refuse = |message: String| {
        ApiError::new(StatusCode::BAD_REQUEST, ErrorBody::invalid(ErrorKind::InvalidValue, message).at("session"))
    };
    let session: Value =
        serde_json::from_slice(bytes).map_err(|error| refuse(format!("`session` is not JSON: {error}")))?;
    if session.is_object() { Ok(session) } else { Err(refuse("`session` is an object".into())) }
}

fn unreadable(error: multer::Error) -> ApiError {
    use multer::Error::{FieldSizeExceeded, StreamSizeExceeded, UnknownField};
    match error {
        FieldSizeExceeded { .. } | StreamSizeExceeded { .. } => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            ErrorBody::invalid(ErrorKind::TooLarge, format!("the form is too large: {error}")),
        ),
        UnknownField { .. } => bad(format!("the form holds `sdp` and `session`: {error}")),
        error => bad(format!("the form cannot be read: {error}")),
    }
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, ErrorBody::invalid(ErrorKind::InvalidOffer, message))
}

#[cfg(test)]
#[path = "offer_tests.rs"]
mod tests;
