//! Responses with a status that is no success.

use std::time::Duration;

use repartee_chat_client::{ApiKey, ChatFailure};

use tokio::time::Instant;

use repartee_chat_testkit::{ReadAnswer, TestServer, ask, config, config_for, response};

async fn refused(status: &str, headers: &str, body: &str) -> ReadAnswer {
    ask(&TestServer::answering(response(status, headers, body)).client()).await
}

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test]
async fn missing_key_is_asked_for() {
    let found = refused("401 Unauthorized", JSON, "{\"error\": {\"message\": \"no key\"}}").await;
    let expected = ChatFailure::Unauthorized { status: 401, key_sent: false, message: "no key".to_owned() };
    assert_eq!(found.failure("give a key"), &expected);
}

#[tokio::test]
async fn wrong_key_is_never_repeated() {
    let mut config = config();
    config.key = Some(ApiKey::parse("sk-abc123", "test").unwrap());
    assert!(!format!("{config:?}").contains("sk-abc123"));
    let body = "{\"error\": {\"message\": \"Incorrect API key provided: sk-abc123.\"}}";
    let client = TestServer::answering(response("403 Forbidden", JSON, body)).client_with(config);
    let found = ask(&client).await;
    assert!(matches!(found.failure("check the key"), ChatFailure::Unauthorized { status: 403, key_sent: true, .. }));
    let shown = format!("{client:?} {} {:?}", found.error(), found.error());
    assert!(shown.contains("[secret]") && !shown.contains("sk-abc123"), "{shown}");
}

#[tokio::test]
async fn url_secrets_are_never_repeated() {
    let server = TestServer::answering(response("500 Oops", "", ""));
    let config = config_for("http://ada:secret@llm.test/v1?key=hidden");
    let shown = format!("{config:?}");
    let found = ask(&server.client_with(config)).await;
    let shown = format!("{shown} {} {:?}", found.error(), found.error());
    assert!(shown.contains("http://llm.test/v1") && !shown.contains("secret") && !shown.contains("hidden"), "{shown}");
}

#[tokio::test]
async fn unknown_model_is_named() {
    let body = "{\"object\": \"error\", \"message\": \"The model `small` does not exist.\", \"code\": 404}";
    let found = refused("404 Not Found", JSON, body).await;
    assert!(matches!(found.failure("no model \"small\""), ChatFailure::UnknownModel { .. }));
}

#[tokio::test]
async fn unknown_path_is_named() {
    let found = refused("404 Not Found", JSON, "{\"detail\": \"Not Found\"}").await;
    assert!(matches!(found.failure("no /v1/chat/completions"), ChatFailure::UnknownPath { .. }));
    let found = refused("404 Not Found", "Content-Type: text/html\r\n", "<html>nginx</html>").await;
    assert!(matches!(found.failure("a web page"), ChatFailure::UnknownPath { .. }));
}

#[tokio::test]
async fn rate_limit_tells_its_wait() {
    let found =
        refused("429 Too Many Requests", "Retry-After: 17\r\n", "{\"error\": {\"message\": \"slow down\"}}").await;
    let expected =
        ChatFailure::RateLimited { retry_after: Some(Duration::from_secs(17)), message: "slow down".to_owned() };
    assert_eq!(found.failure("for 17 s"), &expected);
    assert_eq!(found.error().retry_after(), Some(Duration::from_secs(17)));
}

#[tokio::test]
async fn server_errors_have_status_and_message() {
    let found = refused("500 Internal Server Error", "", "CUDA error:\n\u{7}device-side assert").await;
    let message = "CUDA error: device-side assert".to_owned();
    assert_eq!(found.failure("status 500"), &ChatFailure::ServerError { status: 500, retry_after: None, message });
    let found = refused("502 Bad Gateway", "Content-Type: text/html\r\n", "<html>nginx</html>").await;
    assert!(matches!(found.failure("status 502"), ChatFailure::ServerError { status: 502, .. }));
}

#[tokio::test]
async fn rejected_request_has_the_reason() {
    let found = refused("400 Bad Request", JSON, "{\"error\": {\"message\": \"context length exceeded\"}}").await;
    assert!(matches!(found.failure("context length exceeded"), ChatFailure::Rejected { status: 400, .. }));
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let server = TestServer::answering(response("307 Temporary Redirect", "Location: https://b.test/v1?key=x\r\n", ""));
    let found = ask(&server.client()).await;
    let expected = ChatFailure::Redirected { status: 307, location: Some("https://b.test/v1".to_owned()) };
    assert_eq!(found.failure("https://b.test/v1 (status 307)"), &expected);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn endless_error_body_is_cut() {
    let server = TestServer::new(|_, mut peer| async move {
        peer.request().await;
        peer.send("HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while tokio::io::AsyncWriteExt::write_all(&mut peer.stream, b"5\r\nword \r\n").await.is_ok() {}
    });
    let found = ask(&server.client()).await;
    let text = found.failure("word word").to_string();
    assert!(text.len() < 500, "{text}");
}

#[tokio::test(start_paused = true)]
async fn silent_error_body_is_left_out() {
    let server = TestServer::new(|_, mut peer| async move {
        peer.request().await;
        peer.send("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nout of mem").await;
        peer.closed().await;
    });
    let begin = Instant::now();
    let found = ask(&server.client()).await;
    assert!(matches!(found.failure("out of mem"), ChatFailure::ServerError { status: 500, .. }));
    assert_eq!(begin.elapsed(), Duration::from_secs(2));
}
