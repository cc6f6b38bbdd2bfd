//! Answers that break off, are too large or no answers at all.

use repartee_chat_client::{BoundedPart, ChatClientConfig, ChatFailure, ChatRequest, Limits};
use serde_json::json;

use repartee_chat_testkit::{
    LAST_CHUNK, ReadAnswer, STREAM_HEAD, TestServer, ask, chunk, config, event, finish_event, read, response,
    text_event,
};

/// Streams a body to its end.
async fn streamed(body: &str) -> ReadAnswer {
    ask(&TestServer::answering(format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(body))).client()).await
}

/// Answers with a body of this content type.
async fn answered(headers: &str, body: &str) -> ReadAnswer {
    ask(&TestServer::answering(response("200 OK", headers, body)).client()).await
}

#[tokio::test]
async fn web_page_in_place_of_an_answer() {
    let page = "<!DOCTYPE html><title>Welcome</title>";
    for headers in ["Content-Type: text/html; charset=utf-8\r\n", "", "Content-Type: text/event-stream\r\n"] {
        let found = answered(headers, page).await;
        assert_eq!(found.failure("web page"), &ChatFailure::Html, "{headers}");
    }
}

#[tokio::test]
async fn half_an_event_is_typed() {
    let body = [&text_event("The sky"), "data: {\"choices\": [{\"delta\": {\"cont\n\n"].concat();
    let found = streamed(&body).await;
    assert!(matches!(found.failure("breaks off"), ChatFailure::IncompleteJson { .. }));
    assert_eq!((found.text().as_str(), found.error().stats.characters), ("The sky", 7));
    assert!(found.error().to_string().contains("7 characters"), "{}", found.error());
}

#[tokio::test]
async fn half_a_json_object_is_typed() {
    let found = answered("Content-Type: application/json\r\n", "{\"choices\": [{\"message\": {\"cont").await;
    assert!(matches!(found.failure("breaks off"), ChatFailure::IncompleteJson { .. }));
}

#[tokio::test]
async fn stream_torn_midway_tells_what_came() {
    for body in [chunk(&[text_event("The "), text_event("sky")].concat()), format!("ffff\r\n{}", text_event("The sky"))]
    {
        let server = TestServer::torn(format!("{STREAM_HEAD}{body}"));
        let found = ask(&server.client()).await;
        assert!(matches!(found.failure("broke off"), ChatFailure::Torn { .. }));
        assert_eq!((found.text().as_str(), found.error().stats.characters), ("The sky", 7));
        assert!(found.error().to_string().contains("7 characters"), "{}", found.error());
    }
}

#[tokio::test]
async fn body_shorter_than_its_length_is_torn() {
    let body = text_event("The sky");
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n", body.len() + 1);
    let found = ask(&TestServer::torn(format!("{head}{body}")).client()).await;
    assert!(matches!(found.failure("broke off"), ChatFailure::Torn { .. }));
    assert_eq!(found.text(), "The sky");
}

#[tokio::test]
async fn close_without_length_or_mark_is_torn() {
    let body = text_event("The sky");
    let found =
        ask(&TestServer::torn(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{body}")).client())
            .await;
    assert!(matches!(found.failure("broke off"), ChatFailure::Torn { .. }));
}

#[tokio::test]
async fn broken_chunk_length_is_torn() {
    let found = ask(&TestServer::torn(format!("{STREAM_HEAD}{}zz\r\n", chunk(&text_event("The sky")))).client()).await;
    assert!(matches!(found.failure("broke off"), ChatFailure::Torn { .. }));
    assert_eq!(found.text(), "The sky");
}

#[tokio::test]
async fn error_object_within_a_stream_is_typed() {
    let body = [text_event("The"), event(json!({"error": {"message": "out of memory", "code": "oom"}}))].concat();
    let found = streamed(&body).await;
    let expected = ChatFailure::InStream { message: "out of memory".to_owned(), code: Some("oom".to_owned()) };
    assert_eq!(found.failure("out of memory (oom)"), &expected);
    assert_eq!(found.text(), "The");
    let found = answered("Content-Type: application/json\r\n", "{\"error\": \"no such adapter\"}").await;
    assert!(matches!(found.failure("no such adapter"), ChatFailure::InStream { .. }));
}

#[tokio::test]
async fn data_that_are_no_json_are_typed() {
    let found = streamed("data: Internal Server Error\n\n").await;
    assert!(matches!(found.failure("no JSON"), ChatFailure::InvalidJson { .. }));
}

#[tokio::test]
async fn json_of_another_shape_is_typed() {
    let found = streamed(&event(json!({"choices": "none"}))).await;
    assert!(matches!(found.failure("no chat completion"), ChatFailure::InvalidShape { .. }));
    let found = answered("Content-Type: application/json\r\n", "{\"status\": \"ok\"}").await;
    assert!(matches!(found.failure("no choices"), ChatFailure::InvalidShape { .. }));
}

#[tokio::test]
async fn answers_without_content_are_typed() {
    for body in ["", ": keep-alive\n\n", "rubbish\n\n", "data: [DONE]\n\n"] {
        let found = streamed(body).await;
        assert_eq!(found.failure("empty"), &ChatFailure::Empty, "{body:?}");
    }
    let found = ask(&TestServer::answering("HTTP/1.1 204 No Content\r\n\r\n").client()).await;
    assert_eq!(found.failure("empty"), &ChatFailure::Empty);
}

#[tokio::test]
async fn answer_without_text_is_an_answer() {
    let found = streamed(&[finish_event("stop"), event("[DONE]")].concat()).await;
    assert_eq!(found.text(), "");
    assert!(found.stats().time_to_first_token.is_none());
}

#[tokio::test]
async fn unknown_content_type_is_named() {
    let found = answered("Content-Type: audio/wav\r\n", "RIFF").await;
    let expected = ChatFailure::ContentType { content_type: "audio/wav".to_owned() };
    assert_eq!(found.failure("audio/wav"), &expected);
}

#[tokio::test]
async fn compressed_body_is_refused() {
    let found = answered("Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n", "\u{1f}").await;
    assert_eq!(found.failure("gzip"), &ChatFailure::Compressed { encoding: "gzip".to_owned() });
    let headers = "Content-Type: text/event-stream\r\nContent-Encoding: identity\r\n";
    assert_eq!(answered(headers, &[text_event("hello"), event("[DONE]")].concat()).await.text(), "hello");
}

fn limited(limits: Limits) -> ChatClientConfig {
    ChatClientConfig { limits, ..config() }
}

/// Server that repeats a chunk until the client closes.
fn endless(piece: impl AsRef<str>) -> TestServer {
    let piece = chunk(piece.as_ref());
    TestServer::new(move |_, mut peer| {
        let piece = piece.clone();
        async move {
            peer.request().await;
            peer.send(STREAM_HEAD).await;
            // Fails once the client has closed.
            while tokio::io::AsyncWriteExt::write_all(&mut peer.stream, piece.as_bytes()).await.is_ok() {}
        }
    })
}

#[tokio::test]
async fn long_event_is_refused() {
    let body = [text_event("The"), text_event(&"x".repeat(600))].concat();
    let server = TestServer::answering(format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body)));
    let client = server.client_with(limited(Limits { event: 500, ..Limits::default() }));
    let found = ask(&client).await;
    assert_eq!(found.failure("event"), &ChatFailure::TooLarge { part: BoundedPart::Event, limit: 500 });
    assert_eq!(found.text(), "The", "what came before is kept");
}

#[tokio::test]
async fn line_without_end_is_refused() {
    let client = endless("x".repeat(1_000)).client_with(limited(Limits { line: 5_000, ..Limits::default() }));
    let found = ask(&client).await;
    assert_eq!(found.failure("line"), &ChatFailure::TooLarge { part: BoundedPart::Line, limit: 5_000 });
}

#[tokio::test]
async fn endless_text_is_refused() {
    let client = endless(text_event("more")).client_with(limited(Limits { text: 4_000, ..Limits::default() }));
    let found = ask(&client).await;
    assert_eq!(found.failure("text"), &ChatFailure::TooLarge { part: BoundedPart::Text, limit: 4_000 });
    assert_eq!(found.text().len(), 4_000);
}

#[tokio::test]
async fn endless_comments_are_refused() {
    let client = endless(": keep-alive\n\n").client_with(limited(Limits { body: 100_000, ..Limits::default() }));
    let found = ask(&client).await;
    assert_eq!(found.failure("response"), &ChatFailure::TooLarge { part: BoundedPart::Body, limit: 100_000 });
}

#[tokio::test]
async fn endless_json_is_refused() {
    let server = TestServer::answering(response("200 OK", "", &format!("{{\"x\": \"{}", "y".repeat(9_000))));
    let found = ask(&server.client_with(limited(Limits { json: 8_000, ..Limits::default() }))).await;
    assert_eq!(found.failure("JSON"), &ChatFailure::TooLarge { part: BoundedPart::Json, limit: 8_000 });
}

#[tokio::test]
async fn too_many_calls_are_refused() {
    let calls: Vec<_> =
        (0..9).map(|index| json!({"index": index, "function": {"name": "f", "arguments": "{}"}})).collect();
    let body = event(json!({"choices": [{"delta": {"tool_calls": calls}}]}));
    let server = TestServer::answering(format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body)));
    let found = ask(&server.client_with(limited(Limits { tool_calls: 8, ..Limits::default() }))).await;
    assert_eq!(found.failure("8 calls"), &ChatFailure::TooLarge { part: BoundedPart::ToolCalls, limit: 8 });
}

#[tokio::test]
async fn long_arguments_are_refused() {
    let call = json!({"index": 0, "function": {"name": "f", "arguments": "x".repeat(300)}});
    let body = event(json!({"choices": [{"delta": {"tool_calls": [call]}}]})).repeat(2);
    let server = TestServer::answering(format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body)));
    let found = ask(&server.client_with(limited(Limits { tool_call: 500, ..Limits::default() }))).await;
    assert_eq!(found.failure("function call"), &ChatFailure::TooLarge { part: BoundedPart::ToolCall, limit: 500 });
}

#[tokio::test]
async fn long_head_is_refused() {
    let server = TestServer::answering(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000)));
    let found = ask(&server.client()).await;
    assert!(matches!(found.failure("head"), ChatFailure::TooLarge { part: BoundedPart::Head, .. }));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200));
    assert!(matches!(ask(&TestServer::answering(many).client()).await.failure("head"), ChatFailure::TooLarge { .. }));
}

#[tokio::test]
async fn unusable_requests_are_not_sent() {
    let server = TestServer::answering("");
    let found = ask(&server.client_with(limited(Limits { request: 50, ..Limits::default() }))).await;
    assert!(matches!(found.failure("over the limit of 50"), ChatFailure::Request(_)));
    let found = read(server.client().chat(ChatRequest::default())).await;
    assert!(matches!(found.failure("no messages"), ChatFailure::Request(_)));
    assert_eq!(server.connections(), 0);
}
