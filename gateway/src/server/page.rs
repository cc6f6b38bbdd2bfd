//! The demo page and the admin page, embedded at build time.

use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse as _, Response};

use super::api_error::ApiError;

/// Files of `web/`: name and contents.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Content security policy: the page may load its own files and call its own server, and nobody may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn index() -> Response {
    serve("index.html")
}

/// Serves the admin page, which shows `/metrics` to people without a dashboard. The page needs no key; its figures may.
pub(super) async fn admin() -> Response {
    serve("admin.html")
}

pub(super) async fn file(Path(name): Path<String>) -> Response {
    serve(&name)
}

fn serve(name: &str) -> Response {
    find(name).unwrap_or_else(|| ApiError::not_found("there is no such file").into_response())
}

/// Returns the file of this name; `None` if there is none.
pub(super) fn find(name: &str) -> Option<Response> {
    let (name, contents) = FILES.iter().find(|(file, _)| *file == name)?;
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    // Never cached, because a new binary has new pages under the same names.
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    Some((headers, *contents).into_response())
}
