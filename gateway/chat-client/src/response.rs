//! Judges the head of a response, and the body of one that is no answer.

use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION, TRANSFER_ENCODING};
use hyper::http::response::Parts;
use serde_json::Value;

use crate::chunk::WireError;
use crate::connection::MAX_HEAD;
use crate::failure::{BoundedPart, ChatFailure, Peer, ProxyFailure};
use crate::quote::Quoter;
use crate::retry::retry_after;
use crate::url_parts::{UrlParts, format_authority};

/// Maximum bytes that are read of the body of an error.
const MAX_ERROR_BODY: usize = 16 << 10;

/// Kind of a body, by its content type or its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// An event stream.
    Events,
    /// A JSON object.
    Json,
    /// A web page.
    Html,
}

/// The request that a response belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    /// Path below the base URL.
    pub path: &'a str,
    /// Model; empty for the list of models.
    pub model: &'a str,
    /// True if the request had a key or credentials.
    pub key_sent: bool,
    /// Name of the proxy that forwards requests.
    pub proxy: Option<&'a str>,
}

/// Returns the failure that headers of a successful response show: compression, or a content type that is no answer.
pub(crate) fn check_head(head: &Parts, quoter: &Quoter) -> Result<(), ChatFailure> {
    let header = |name: HeaderName| head.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    if let Some(encoding) = header(CONTENT_ENCODING).filter(|it| !it.trim().eq_ignore_ascii_case("identity")) {
        return Err(ChatFailure::Compressed { encoding: quoter.quote(&encoding) });
    }
    let Some(content_type) = header(CONTENT_TYPE) else { return Ok(()) };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" | "application/json" | "" => Ok(()),
        "text/html" | "application/xhtml+xml" => Err(ChatFailure::Html),
        _ => Err(ChatFailure::ContentType { content_type: quoter.quote(&content_type) }),
    }
}

/// Returns the kind of a body from its first bytes; `None` while they are white space. Servers send JSON as an event stream
/// and an event stream as JSON; no event stream begins with `{` or `<`.
pub(crate) fn sniff(bytes: &[u8]) -> Option<BodyKind> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'{' | b'[' => Some(BodyKind::Json),
        b'<' => Some(BodyKind::Html),
        _ => Some(BodyKind::Events),
    }
}

/// True if the end of the body can be told from a broken connection.
pub(crate) fn has_length(head: &Parts) -> bool {
    head.headers.contains_key(CONTENT_LENGTH) || head.headers.contains_key(TRANSFER_ENCODING)
}

/// Reads the beginning of the body of an error into `bytes`. A body that breaks off is as good as a whole one.
pub(crate) async fn read_error_body(body: &mut Incoming, bytes: &mut Vec<u8>) {
    while bytes.len() < MAX_ERROR_BODY {
        let Some(Ok(frame)) = body.frame().await else { break };
        bytes.extend_from_slice(&frame.into_data().unwrap_or_else(|_| Bytes::new()));
    }
    bytes.truncate(MAX_ERROR_BODY);
}

/// Returns the failure of a response whose status is no success.
pub(crate) fn failure_of(head: &Parts, body: &[u8], context: RequestContext<'_>, quoter: &Quoter) -> ChatFailure {
    let status = head.status.as_u16();
    let (message, code) = server_message(body, quoter);
    let wait = || retry_after(&head.headers, SystemTime::now());
    match (status, context.proxy) {
        (300..=399, _) => {
            let location = head.headers.get(LOCATION).and_then(|value| value.to_str().ok());
            ChatFailure::Redirected { status, location: location.and_then(without_secrets) }
        }
        (401 | 403, _) => ChatFailure::Unauthorized { status, key_sent: context.key_sent, message },
        (404, _) if !context.model.is_empty() && names_model(&message, code.as_deref(), context.model) => {
            ChatFailure::UnknownModel { model: quoter.quote(context.model), message }
        }
        (404, _) => ChatFailure::UnknownPath { path: quoter.quote(context.path), message },
        (407, Some(proxy)) => {
            ChatFailure::Proxy { peer: Peer::Proxy(proxy.to_owned()), failure: ProxyFailure::Unauthorized }
        }
        (429, _) => ChatFailure::RateLimited { retry_after: wait(), message },
        (408 | 500..=599, _) => ChatFailure::ServerError { status, retry_after: wait(), message },
        _ => ChatFailure::Rejected { status, message },
    }
}

/// Returns the failure of a request that got no head.
pub(crate) fn failure_without_head(error: &hyper::Error) -> ChatFailure {
    let reason = chain(error);
    if error.is_parse_too_large() {
        ChatFailure::TooLarge { part: BoundedPart::Head, limit: MAX_HEAD }
    } else if error.is_parse() {
        ChatFailure::NotHttp { reason }
    } else {
        ChatFailure::Closed { reason }
    }
}

/// Text of an error and of its sources.
pub(crate) fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Returns message and code of the body of an error.
fn server_message(body: &[u8], quoter: &Quoter) -> (String, Option<String>) {
    if let Some(error) = serde_json::from_slice(body).ok().and_then(|body: Value| WireError::of_body(&body)) {
        return (quoter.quote(&error.message), error.code);
    }
    match sniff(body) {
        Some(BodyKind::Html) => ("a web page".to_owned(), None),
        _ => (quoter.quote(&String::from_utf8_lossy(body)), None),
    }
}

/// True if the message of a 404 is about the model and not about the path.
fn names_model(message: &str, code: Option<&str>, model: &str) -> bool {
    code == Some("model_not_found") || message.contains(model) || message.to_ascii_lowercase().contains("model")
}

/// Returns a URL without credentials and query; `None` if it is none.
fn without_secrets(url: &str) -> Option<String> {
    if url.starts_with('/') {
        return url.split(['?', '#']).next().map(str::to_owned);
    }
    let parts = UrlParts::parse(url.split('#').next()?).ok()?;
    let authority = format_authority(&parts.host, parts.port.unwrap_or(0), 0);
    Some(format!("{}://{authority}{}", parts.scheme?, parts.path))
}

#[cfg(test)]
mod tests {
    use hyper::Response;

    use super::*;

    const CONTEXT: RequestContext<'_> =
        RequestContext { path: "/v1/chat/completions", model: "small", key_sent: true, proxy: None };

    fn head(status: u16, headers: &[(&str, &str)]) -> Parts {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    fn failure(status: u16, headers: &[(&str, &str)], body: &str) -> ChatFailure {
        failure_of(&head(status, headers), body.as_bytes(), CONTEXT, &Quoter::default())
    }

    #[test]
    fn content_types_are_judged() {
        let check = |value: &str| check_head(&head(200, &[("content-type", value)]), &Quoter::default());
        for value in ["text/event-stream", "Text/Event-Stream; charset=utf-8", "application/json", ""] {
            assert_eq!(check(value), Ok(()), "{value}");
        }
        assert_eq!(check_head(&head(200, &[]), &Quoter::default()), Ok(()));
        assert_eq!(check("text/html; charset=utf-8"), Err(ChatFailure::Html));
        let expected = ChatFailure::ContentType { content_type: "audio/wav".to_owned() };
        assert_eq!(check("audio/wav"), Err(expected));
    }

    #[test]
    fn body_kinds_are_sniffed() {
        assert_eq!(sniff(b" \r\n{\"a\""), Some(BodyKind::Json));
        assert_eq!(sniff(b"\n<!DOCTYPE html>"), Some(BodyKind::Html));
        assert_eq!(sniff(b"data: {}"), Some(BodyKind::Events));
        assert_eq!(sniff(b": comment"), Some(BodyKind::Events));
        assert_eq!(sniff("\u{feff}{".as_bytes()), Some(BodyKind::Json));
        assert_eq!(sniff(b" \n"), None);
    }

    #[test]
    fn not_found_is_model_or_path() {
        let message = r#"{"error": {"message": "The model `small` does not exist", "code": "model_not_found"}}"#;
        assert!(matches!(failure(404, &[], message), ChatFailure::UnknownModel { model, .. } if model == "small"));
        for body in ["", "{\"detail\": \"Not Found\"}", "<html>404</html>"] {
            let found = failure(404, &[], body);
            assert!(matches!(&found, ChatFailure::UnknownPath { path, .. } if path == CONTEXT.path), "{found}");
        }
    }

    #[test]
    fn redirect_hides_credentials() {
        let location = |value: &str| match failure(308, &[("location", value)], "") {
            ChatFailure::Redirected { location, .. } => location,
            other => panic!("{other}"),
        };
        assert_eq!(
            location("https://ada:secret@a.example:8443/v2?key=s").as_deref(),
            Some("https://a.example:8443/v2")
        );
        assert_eq!(location("/v2/chat?key=s").as_deref(), Some("/v2/chat"));
        assert_eq!(location("no url"), None);
    }

    #[test]
    fn proxy_credentials_are_asked_for_by_proxies() {
        let context = RequestContext { proxy: Some("p:3128"), ..CONTEXT };
        let found = failure_of(&head(407, &[]), b"", context, &Quoter::default());
        assert!(matches!(&found, ChatFailure::Proxy { .. }) && found.to_string().contains("p:3128"), "{found}");
        assert!(matches!(failure(407, &[], ""), ChatFailure::Rejected { status: 407, .. }));
    }
}
