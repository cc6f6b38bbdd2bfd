//! The demo page, embedded at build time.

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};

use super::api_error::ApiError;

/// Every file of `web/`: name and contents.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

pub(super) async fn index() -> Response {
    serve("index.html")
}

pub(super) async fn file(Path(name): Path<String>) -> Response {
    serve(&name)
}

fn serve(name: &str) -> Response {
    let Some((name, contents)) = FILES.iter().find(|(file, _)| *file == name) else {
        return ApiError::not_found("there is no such file").into_response();
    };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    // A new binary has a new page under the same names.
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], *contents).into_response()
}
