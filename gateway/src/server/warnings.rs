//! Response header with the differences between a request and what was made of it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Name of the header.
pub(super) const WARNINGS: HeaderName = HeaderName::from_static("repartee-warnings");

/// Adds warnings, if there are any. Those that are no valid header value are left out.
pub(super) fn warn(headers: &mut HeaderMap, warnings: &str) {
    if let Ok(warnings) = HeaderValue::from_str(warnings)
        && !warnings.is_empty()
    {
        headers.insert(WARNINGS, warnings);
    }
}
