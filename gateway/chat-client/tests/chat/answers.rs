//! Requests as a server gets them, and answers that are as they should be.

use std::sync::Arc;

use repartee_chat_client::{
    ApiKey, ChatEvent, ChatRequest, FinishReason, FunctionTool, MaxTokensField, TokenUsage, ToolCall, ToolChoice,
};
use serde_json::json;
use tokio::sync::mpsc;

use repartee_chat_testkit::{
    BUFFER, LAST_CHUNK, ReceivedRequest, STREAM_HEAD, TestServer, answer, ask, chunk, config, config_for, event,
    finish_event, question, read, response, text_event,
};

fn text(text: &str) -> ChatEvent {
    ChatEvent::Text(text.to_owned())
}

/// Server that reports its requests and says hello.
fn reporting() -> (TestServer, mpsc::Receiver<ReceivedRequest>) {
    let (sender, requests) = mpsc::channel(8);
    let server = TestServer::new(move |_, mut peer| {
        let sender = sender.clone();
        async move {
            while let Some(request) = peer.try_request().await {
                sender.send(request).await.unwrap();
                peer.send(answer("hello")).await;
            }
        }
    });
    (server, requests)
}

#[tokio::test]
async fn request_has_head_and_body() {
    let (server, mut requests) = reporting();
    let mut config = config_for("http://llm.test:8000/api/v2?api-version=7");
    config.key = Some(ApiKey::parse("sk-abc123", "test").unwrap());
    config.max_tokens_field = MaxTokensField::MaxCompletionTokens;
    let tool = FunctionTool { name: "f".to_owned(), description: None, parameters: None, strict: None };
    let request = ChatRequest {
        tools: vec![tool],
        tool_choice: Some(ToolChoice::Required),
        max_tokens: Some(9),
        include_usage: true,
        extra: serde_json::from_value(json!({"top_k": 5})).unwrap(),
        ..question()
    };
    read(server.client_with(config).chat(request)).await.stats();
    let request = requests.recv().await.unwrap();
    assert_eq!(request.line(), "POST /api/v2/chat/completions?api-version=7");
    for (name, value) in [
        ("host", "llm.test:8000"),
        ("authorization", "Bearer sk-abc123"),
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json"),
        ("accept-encoding", "identity"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let expected = json!({
        "model": "small",
        "messages": [{"role": "user", "content": "Why is the sky blue?"}],
        "stream": true,
        "stream_options": {"include_usage": true},
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
        "max_completion_tokens": 9,
        "top_k": 5,
    });
    assert_eq!(request.json(), expected);
    assert_eq!(server.dialed(), ["llm.test:8000"]);
}

#[tokio::test]
async fn url_credentials_become_basic_authorization() {
    let (server, mut requests) = reporting();
    ask(&server.client_with(config_for("http://ada:secret@llm.test"))).await.stats();
    let request = requests.recv().await.unwrap();
    assert_eq!(request.header("authorization"), Some("Basic YWRhOnNlY3JldA=="));
    assert_eq!((request.header("host"), request.line()), (Some("llm.test"), "POST /v1/chat/completions"));
}

#[tokio::test]
async fn model_of_the_request_is_sent() {
    let (server, mut requests) = reporting();
    read(server.client().chat(ChatRequest { model: Some("large".to_owned()), ..question() })).await.stats();
    assert_eq!(requests.recv().await.unwrap().json()["model"], "large");
}

#[tokio::test]
async fn answer_streams_over_tcp() {
    let server = TestServer::answering(answer("Rayleigh scattering"));
    let address = server.listen().await;
    let config = config_for(&format!("http://{address}/v1"));
    let client = repartee_chat_client::ChatClient::new(config).unwrap();
    let found = ask(&client).await;
    assert_eq!(found.events, [text("Rayleigh scattering"), ChatEvent::Finish(FinishReason::Stop)]);
    let stats = found.stats();
    assert_eq!((stats.attempts, stats.connection_reused, stats.characters), (1, false, 19));
    assert!(stats.connect_time.is_some() && stats.time_to_first_token.is_some());
}

#[tokio::test]
async fn deltas_arrive_while_the_server_speaks() {
    let (go, gone) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (wait, said) = (go.clone(), gone.clone());
    let server = TestServer::new(move |_, mut peer| {
        let (wait, said) = (wait.clone(), said.clone());
        async move {
            peer.request().await;
            peer.send(STREAM_HEAD).await;
            for word in ["one ", "two ", "three"] {
                wait.acquire().await.unwrap().forget();
                peer.send(chunk(&text_event(word))).await;
            }
            said.add_permits(1);
            wait.acquire().await.unwrap().forget();
            peer.send(chunk(&event("[DONE]"))).await;
            peer.send(LAST_CHUNK).await;
        }
    });
    let mut stream = server.client().chat(question());
    for word in ["one ", "two ", "three"] {
        assert!(stream.try_next().is_pending(), "not before {word:?} is sent");
        go.add_permits(1);
        assert_eq!(stream.next().await.unwrap().unwrap(), text(word));
    }
    gone.acquire().await.unwrap().forget();
    go.add_permits(1);
    assert!(matches!(stream.next().await.unwrap().unwrap(), ChatEvent::End(_)));
}

#[tokio::test]
async fn parallel_calls_finish_and_usage_arrive() {
    let call = |delta: serde_json::Value| event(json!({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]}));
    let body = [
        event(json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": null}}]})),
        event(json!({"choices": [{"index": 0, "delta": {"reasoning_content": "two cities"}}]})),
        call(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "weather", "arguments": ""}})),
        call(json!({"index": 0, "function": {"arguments": "{\"city\": "}})),
        call(json!({"index": 1, "id": "b", "type": "function", "function": {"name": "weather", "arguments": ""}})),
        call(json!({"index": 1, "function": {"arguments": "{}"}})),
        call(json!({"index": 0, "function": {"arguments": "\"Ulm\"}"}})),
        finish_event("tool_calls"),
        event(json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}})),
        event("[DONE]"),
    ]
    .concat();
    let server = TestServer::answering(format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body)));
    let begin = |position, id: &str| ChatEvent::ToolCallBegin { position, id: id.into(), name: "weather".into() };
    let arguments = |position, delta: &str| ChatEvent::ToolCallArguments { position, delta: delta.into() };
    let whole = |position, id: &str, arguments: &str| ChatEvent::ToolCall {
        position,
        tool_call: ToolCall { id: id.into(), name: "weather".into(), arguments: arguments.into() },
    };
    let expected = [
        ChatEvent::Reasoning("two cities".into()),
        begin(0, "a"),
        arguments(0, "{\"city\": "),
        begin(1, "b"),
        arguments(1, "{}"),
        arguments(0, "\"Ulm\"}"),
        whole(0, "a", "{\"city\": \"Ulm\"}"),
        whole(1, "b", "{}"),
        ChatEvent::Finish(FinishReason::ToolCalls),
        ChatEvent::Usage(TokenUsage { prompt_tokens: 9, completion_tokens: 21, ..TokenUsage::default() }),
    ];
    assert_eq!(ask(&server.client()).await.events, expected);
}

#[tokio::test]
async fn json_in_place_of_events_is_served() {
    let body = json!({
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    })
    .to_string();
    for headers in ["Content-Type: application/json\r\n", "", "Content-Type: text/event-stream\r\n"] {
        let server = TestServer::answering(response("200 OK", headers, &body));
        let found = ask(&server.client()).await;
        assert_eq!((found.text().as_str(), found.events.len()), ("hello", 3), "{headers}");
        assert!(found.stats().time_to_first_token.is_some());
    }
}

#[tokio::test]
async fn event_stream_called_json_is_served() {
    let body = [text_event("hello"), event("[DONE]")].concat();
    let server = TestServer::answering(response("200 OK", "Content-Type: application/json\r\n", &body));
    assert_eq!(ask(&server.client()).await.text(), "hello");
}

#[tokio::test]
async fn stream_without_done_ends_with_its_body() {
    let body = [text_event("hello"), finish_event("stop")].concat();
    let server = TestServer::answering(format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body)));
    let found = ask(&server.client()).await;
    assert_eq!(found.events, [text("hello"), ChatEvent::Finish(FinishReason::Stop)]);
    found.stats();
    let server = TestServer::torn(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{body}"));
    let found = ask(&server.client()).await;
    assert_eq!(found.events.len(), 2);
    found.stats();
}

#[tokio::test]
async fn tear_after_the_finish_reason_loses_nothing() {
    let body = [text_event("hello"), finish_event("length")].concat();
    let server = TestServer::torn(format!("{STREAM_HEAD}{}", chunk(&body)));
    let found = ask(&server.client()).await;
    assert_eq!(found.events, [text("hello"), ChatEvent::Finish(FinishReason::Length)]);
    found.stats();
}

#[tokio::test]
async fn any_transport_split_gives_the_same_answer() {
    let whole = answer("The sky is blue \u{20ac}").into_bytes();
    for size in [1, 2, 3, 7, 64] {
        let bytes = whole.clone();
        let server = TestServer::new(move |_, mut peer| {
            let bytes = bytes.clone();
            async move {
                peer.request().await;
                for piece in bytes.chunks(size) {
                    peer.send(piece).await;
                    tokio::task::yield_now().await;
                }
                peer.closed().await;
            }
        });
        let found = ask(&server.client()).await;
        assert_eq!(found.text(), "The sky is blue \u{20ac}", "pieces of {size}");
        found.stats();
    }
}

#[tokio::test(start_paused = true)]
async fn unread_events_stop_the_server() {
    let (sender, mut sent) = mpsc::channel(1);
    let server = TestServer::new(move |_, mut peer| {
        let sender = sender.clone();
        async move {
            peer.request().await;
            peer.send(STREAM_HEAD).await;
            for _ in 0..4_000 {
                peer.send(chunk(&text_event(&"x".repeat(1_000)))).await;
            }
            sender.send(()).await.unwrap();
            peer.send(chunk(&event("[DONE]"))).await;
            peer.send(LAST_CHUNK).await;
        }
    });
    let mut config = config();
    config.queue = 2;
    config.limits.text = 16 << 20;
    let mut stream = server.client_with(config).chat(question());
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first, text(&"x".repeat(1_000)));
    // The virtual clock only moves once nothing can go on.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(sent.try_recv().is_err(), "4 MB wait in buffers of {BUFFER}");
    let rest = read(stream).await;
    assert_eq!(rest.text().len(), 3_999 * 1_000);
    rest.stats();
    sent.recv().await.unwrap();
}
