//! Which web pages may call: without keys, only those that this server itself delivered. Programs that are not browsers
//! send no `Origin`, and are let in.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};

use super::reply::Refusal;
use crate::protocol::{ErrorBody, ErrorKind};

/// Refuses a call that a page of another site makes.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let own = headers.get(HOST).and_then(|host| host.to_str().ok());
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    if own.is_some() && own == page {
        return Ok(());
    }
    let message = "pages of other sites may not call this server";
    Err(Refusal::new(StatusCode::FORBIDDEN, ErrorBody::invalid(ErrorKind::ForeignOrigin, message)))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn checked(origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("127.0.0.1:8080"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
        }
        check(&headers).is_ok()
    }

    #[test]
    fn only_its_own_page_and_programs_may_call() {
        assert!(checked(None));
        assert!(checked(Some("http://127.0.0.1:8080")));
        assert!(!checked(Some("http://127.0.0.1:9090")));
        assert!(!checked(Some("https://evil.example")));
        assert!(!checked(Some("null")));
    }
}
