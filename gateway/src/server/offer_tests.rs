use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use repartee_testkit::fuzz::fuzz;

use super::*;
use crate::testdata::offers;

fn headers(kind: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(CONTENT_TYPE, kind);
    }
    headers
}

fn read(kind: &str, body: &[u8]) -> Result<Offer, ApiError> {
    read_offer(&headers(kind), Bytes::copy_from_slice(body))
}

/// Returns the status of a refused body.
fn status(refused: Result<Offer, ApiError>) -> StatusCode {
    refused.unwrap_err().into_response().status()
}

/// Encodes a form like a browser.
fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend(format!("--fence\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").bytes());
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--fence--\r\n");
    body
}

const FORM: &str = "multipart/form-data; boundary=fence";

#[test]
fn offers_are_read_plain_and_from_forms() {
    assert_eq!(read("application/sdp", b"v=0").unwrap(), Offer { sdp: "v=0".into(), session: None });
    assert_eq!(read("Application/SDP; charset=utf-8", b"v=0").unwrap().sdp, "v=0");
    let both = form(&[("session", br#"{"type":"realtime"}"#), ("sdp", b"v=0\r\n")]);
    let offer = read(FORM, &both).unwrap();
    assert_eq!(offer.sdp, "v=0\r\n");
    assert_eq!(offer.session, Some(serde_json::json!({"type": "realtime"})));
    assert_eq!(read(FORM, &form(&[("sdp", b"v=0")])).unwrap().session, None);
}

#[test]
fn fields_that_are_too_long_are_refused() {
    let long = vec![b'x'; MAX_SDP + 1];
    for (kind, body) in [("application/sdp", long.clone()), (FORM, form(&[("sdp", &long)]))] {
        assert_eq!(status(read(kind, &body)), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let session = format!("{{\"instructions\":\"{}\"}}", "x".repeat(MAX_SESSION));
    let form = form(&[("sdp", b"v=0"), ("session", session.as_bytes())]);
    assert_eq!(status(read(FORM, &form)), StatusCode::PAYLOAD_TOO_LARGE);
}

fn fuzz_forms(count: usize, seed: u64) {
    let session = br#"{"type":"realtime","model":"gpt-realtime","audio":{"output":{"voice":"marin"}},"tools":[]}"#;
    let mut corpus: Vec<Vec<u8>> = offers().iter().map(|offer| form(&[("sdp", offer), ("session", session)])).collect();
    corpus.push(form(&[("sdp", b"v=0")]));
    corpus.push(form(&[("session", b"{}"), ("sdp", b""), ("file", b"x")]));
    corpus.push(b"--fence--".to_vec());
    let mut whole = 0;
    fuzz(&corpus, count, seed, |input| {
        if let Ok(offer) = read(FORM, input) {
            assert!(offer.sdp.len() <= MAX_SDP && offer.session.is_none_or(|session| session.is_object()));
            whole += 1;
        }
        // The boundary is also the caller's, so it is mutated too.
        let kind = format!("multipart/form-data; boundary={}", String::from_utf8_lossy(&input[..input.len().min(80)]));
        let _ = read(&kind, input);
    });
    assert!(whole > count / 10, "{whole} of {count} forms could be read");
}

#[test]
fn mutated_forms_neither_panic_nor_grow() {
    fuzz_forms(10_000, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn a_million_forms_neither_panic_nor_grow() {
    fuzz_forms(1_000_000, 0xfeed);
}
