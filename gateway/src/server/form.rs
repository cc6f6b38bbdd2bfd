//! Bodies of the type `multipart/form-data`: known fields, each at most once and of bounded size. A list, whose name ends in
//! `[]`, may come several times.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use multer::{Constraints, Multipart, SizeLimit, parse_boundary};
use repartee_protocol::{ErrorBody, ErrorKind};

use super::api_error::ApiError;

/// Allowed field of a form: its name and its maximum bytes.
pub(super) type Field = (&'static str, usize);

/// Largest number of entries of a list.
const MAX_ENTRIES: usize = 16;

/// Media type of forms.
pub(super) const MEDIA_TYPE: &str = "multipart/form-data";

/// Returns the media type of a body, in lower case and without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let kind = content_type(headers);
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("")
}

/// Refuses a body that is no form.
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    if media_type(headers) == MEDIA_TYPE {
        return Ok(());
    }
    let error = ErrorBody::invalid(ErrorKind::InvalidValue, format!("send the fields as {MEDIA_TYPE}"));
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
}

/// Reads a form of these fields, in time linear in its size; the entries of a list are lines. `kind` is the error kind of a form that cannot be read.
pub(super) fn read(
    headers: &HeaderMap,
    body: Bytes,
    fields: &[Field],
    kind: ErrorKind,
) -> Result<BTreeMap<String, Bytes>, ApiError> {
    // The whole body is there: nothing waits.
    let read = read_fields(headers, body, fields, kind).now_or_never();
    read.unwrap_or_else(|| Err(ApiError::internal("the parser of a form waits for more than its body")))
}

async fn read_fields(
    headers: &HeaderMap,
    body: Bytes,
    fields: &[Field],
    kind: ErrorKind,
) -> Result<BTreeMap<String, Bytes>, ApiError> {
    let bad = |message| ApiError::bad_request(ErrorBody::invalid(kind, message));
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let unreadable = |error: multer::Error| unreadable(&error, &names, kind);
    let boundary =
        parse_boundary(content_type(headers)).map_err(|error| bad(format!("the form has no boundary: {error}")))?;
    let limits =
        fields.iter().fold(SizeLimit::new().per_field(0), |limits, (name, most)| limits.for_field(*name, *most as u64));
    let whole = stream::iter([Ok::<_, std::io::Error>(body)]);
    let constraints = Constraints::new().allowed_fields(names.clone()).size_limit(limits);
    let mut form = Multipart::with_constraints(whole, boundary, constraints);
    let mut found: BTreeMap<String, Bytes> = BTreeMap::new();
    let mut entries = 0;
    while let Some(field) = form.next_field().await.map_err(unreadable)? {
        let name = field.name().unwrap_or("").to_owned();
        let bytes = field.bytes().await.map_err(unreadable)?;
        let Some(before) = found.get(&name) else {
            found.insert(name, bytes);
            continue;
        };
        entries += 1;
        if !name.ends_with("[]") {
            return Err(bad(format!("the form has `{name}` twice")));
        }
        if entries >= MAX_ENTRIES {
            return Err(bad(format!("the lists of a form have at most {MAX_ENTRIES} entries")));
        }
        let joined = [&before[..], b"\n", &bytes[..]].concat();
        found.insert(name, joined.into());
    }
    Ok(found)
}

fn unreadable(error: &multer::Error, names: &[&str], kind: ErrorKind) -> ApiError {
    use multer::Error::{FieldSizeExceeded, StreamSizeExceeded, UnknownField};
    let names = || names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match error {
        FieldSizeExceeded { .. } | StreamSizeExceeded { .. } => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            ErrorBody::invalid(ErrorKind::TooLarge, format!("the form is too large: {error}")),
        ),
        UnknownField { .. } => {
            ApiError::bad_request(ErrorBody::invalid(kind, format!("the form holds {}: {error}", names())))
        }
        error => ApiError::bad_request(ErrorBody::invalid(kind, format!("the form cannot be read: {error}"))),
    }
}
