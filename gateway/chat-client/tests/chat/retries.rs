//! Attempts after failures before the first token.

use std::time::Duration;

use repartee_chat_client::{ChatClientConfig, ChatEvent, ChatFailure};
use tokio::time::Instant;

use repartee_chat_testkit::{STREAM_HEAD, TestServer, answer, ask, chunk, config, response, text_event};

fn retrying(attempts: u32) -> ChatClientConfig {
    let mut config = config();
    config.retry.attempts = attempts;
    config
}

/// Server that sends these responses, one over each connection, and then answers.
fn failing(responses: &[String]) -> TestServer {
    let responses = responses.to_vec();
    TestServer::new(move |number, mut peer| {
        let response = responses.get(number).cloned().unwrap_or_else(|| answer("hello"));
        async move {
            peer.request().await;
            peer.send(response).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn failures_before_the_first_token_are_retried() {
    let in_stream = "data: {\"error\": {\"message\": \"overloaded\", \"code\": 503}}\n\n";
    for failure in [
        response("503 Service Unavailable", "", ""),
        response("429 Too Many Requests", "", ""),
        String::new(),
        STREAM_HEAD.to_owned(),
        format!("{STREAM_HEAD}{}", chunk(": keep-alive\n\n")),
        format!("{STREAM_HEAD}{}", chunk(in_stream)),
    ] {
        let server = failing(std::slice::from_ref(&failure));
        let begin = Instant::now();
        let found = ask(&server.client_with(retrying(2))).await;
        assert_eq!(found.text(), "hello", "{failure:?}");
        let stats = found.stats();
        assert_eq!((stats.attempts, server.connections()), (2, 2));
        let ChatEvent::Retry { attempt: 1, delay, .. } = found.events[0] else { panic!("{:?}", found.events) };
        assert!((Duration::from_millis(125)..=Duration::from_millis(250)).contains(&delay), "{delay:?}");
        assert!(begin.elapsed() >= delay && stats.time_to_first_token >= Some(delay));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded() {
    let server = failing(&[(); 9].map(|()| response("500 Oops", "", "")));
    let found = ask(&server.client_with(retrying(3))).await;
    assert!(matches!(found.failure("3 attempts failed"), ChatFailure::ServerError { .. }));
    assert_eq!((found.events.len(), server.connections(), found.error().stats.attempts), (2, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn no_retry_after_the_first_token() {
    let server = failing(&[format!("{STREAM_HEAD}{}", chunk(&text_event("The sky")))]);
    let found = ask(&server.client_with(retrying(5))).await;
    assert!(matches!(found.failure("broke off"), ChatFailure::Torn { .. }));
    assert_eq!((found.text().as_str(), server.connections()), ("The sky", 1));
}

#[tokio::test(start_paused = true)]
async fn no_retry_of_a_lasting_failure() {
    let server = failing(&[response("400 Bad Request", "", "")]);
    let found = ask(&server.client_with(retrying(5))).await;
    assert!(matches!(found.failure("status 400"), ChatFailure::Rejected { .. }));
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_waits_as_the_server_asks() {
    let server = failing(&[response("429 Too Many Requests", "Retry-After: 2\r\n", "")]);
    let begin = Instant::now();
    let found = ask(&server.client_with(retrying(2))).await;
    assert_eq!(found.text(), "hello");
    assert!(matches!(found.events[0], ChatEvent::Retry { delay, .. } if delay == Duration::from_secs(2)));
    assert!(begin.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn long_retry_after_is_an_error_at_once() {
    let server = failing(&[response("503 Service Unavailable", "Retry-After: 60\r\n", "")]);
    let begin = Instant::now();
    let found = ask(&server.client_with(retrying(2))).await;
    assert_eq!(found.error().retry_after(), Some(Duration::from_secs(60)));
    assert_eq!((server.connections(), begin.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn retry_stays_within_the_whole_limit() {
    let mut config = retrying(2);
    config.times.whole = Duration::from_secs(1);
    let server = failing(&[response("429 Too Many Requests", "Retry-After: 2\r\n", "")]);
    let begin = Instant::now();
    let found = ask(&server.client_with(config)).await;
    assert!(matches!(found.failure("429"), ChatFailure::RateLimited { .. }));
    assert_eq!((server.connections(), begin.elapsed()), (1, Duration::ZERO));
}
