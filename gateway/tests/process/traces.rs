//! Spans of a call, its turns and their stages reach a collector, and contain neither words nor keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use repartee_engine_api::SessionError;
use repartee_testkit::scripted::{FRAME_SAMPLES, Script};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{PATIENCE, Running, own_address, question};

const INSTRUCTIONS: &str = "planted-instructions";
const WORD: &str = "planted-word";

/// A collector that stores the body of each request.
struct Collector {
    endpoint: String,
    bodies: mpsc::Receiver<Vec<u8>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, bodies) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                sender.send(collect(socket).await).await.unwrap();
            }
        });
        Self { endpoint, bodies }
    }

    /// Returns all received bodies, after the server's end.
    fn collected(&mut self) -> Collected {
        let (mut all, mut bytes) = (Vec::new(), Vec::new());
        while let Ok(body) = self.bodies.try_recv() {
            let request = ExportTraceServiceRequest::decode(&*body).unwrap();
            bytes.extend(body);
            for resource in request.resource_spans {
                let attributes = resource.resource.unwrap().attributes;
                let name = attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
                let value = name.value.clone().unwrap().value;
                assert_eq!(value, Some(Any::StringValue("repartee".to_owned())));
                all.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        Collected { all, bytes }
    }
}

/// Reads one request and answers with success.
async fn collect(mut socket: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        assert!(socket.read_buf(&mut bytes).await.unwrap() > 0, "a whole request");
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break (String::from_utf8(bytes[..at].to_vec()).unwrap().to_ascii_lowercase(), bytes.split_off(at + 4));
        }
    };
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = body;
    while body.len() < length {
        assert!(socket.read_buf(&mut body).await.unwrap() > 0, "a whole body");
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    body
}

struct Collected {
    all: Vec<Span>,
    bytes: Vec<u8>,
}

impl Collected {
    fn named(&self, name: &str) -> Vec<&Span> {
        self.all.iter().filter(|span| span.name == name).collect()
    }

    fn within(&self, parent: &Span) -> BTreeMap<&str, &Span> {
        let children = self.all.iter().filter(|span| span.parent_span_id == parent.span_id);
        children
            .map(|span| {
                assert_eq!(span.trace_id, parent.trace_id, "{span:?}");
                assert!(parent.start_time_unix_nano <= span.start_time_unix_nano, "{span:?} in {parent:?}");
                assert!(span.end_time_unix_nano <= parent.end_time_unix_nano, "{span:?} in {parent:?}");
                assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
                (span.name.as_str(), span)
            })
            .collect()
    }
}

fn attribute(span: &Span, key: &str) -> Option<Any> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.clone()?.value
}

async fn traced(script: Script, endpoint: &str) -> Running {
    Running::start_with(script, |config| config.telemetry.otlp_endpoint = Some(endpoint.to_owned())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_call_turn_and_stages() {
    let mut collector = Collector::start().await;
    let mut server = traced(Script::default(), &collector.endpoint).await;
    let mut client = server.dial().await.unwrap();
    let created = client.expect("session.created").await;
    client.update(json!({"instructions": INSTRUCTIONS})).await;
    client.speak(&question(), 480).await;
    client.until("response.done").await;
    client.ask(WORD).await;
    drop(client);
    server.sessions(0).await;
    server.stop();
    // Waiting spans are sent before the end.
    server.ended().await;

    let collected = collector.collected();
    let calls = collected.named("call");
    let [call] = calls[..] else { panic!("{:?}", collected.all) };
    let id = Any::StringValue(created["session"]["id"].as_str().unwrap().to_owned());
    assert_eq!(attribute(call, "repartee.call.id"), Some(id));
    assert_eq!(attribute(call, "repartee.call.end"), Some(Any::StringValue("hangup".to_owned())));
    assert_eq!(attribute(call, "repartee.call.transport"), Some(Any::StringValue("websocket".to_owned())));
    assert!(call.parent_span_id.is_empty());
    let turns = collected.named("turn");
    assert_eq!(turns.len(), 2, "{:?}", collected.all);
    assert_eq!(collected.within(call).len(), 1, "all turns are the call's");
    for turn in &turns {
        assert_eq!(turn.parent_span_id, call.span_id);
        assert_eq!(attribute(turn, "repartee.turn.answered"), Some(Any::BoolValue(true)));
    }
    let order = ["slice_wait", "encoder", "prefill", "first_token", "first_frame", "codec", "wire"];
    let spoken = collected.within(turns[0]);
    assert!(spoken.contains_key("endpointing") && !collected.within(turns[1]).contains_key("endpointing"));
    for turn in turns {
        let stages = collected.within(turn);
        let stages = order.map(|name| stages[name]);
        for pair in stages.windows(2) {
            assert_eq!(pair[0].end_time_unix_nano, pair[1].start_time_unix_nano, "{pair:?}");
        }
        assert_eq!(stages[order.len() - 1].end_time_unix_nano, turn.end_time_unix_nano);
    }
    let bytes = String::from_utf8_lossy(&collected.bytes);
    for secret in [INSTRUCTIONS, WORD, "I heard", "You wrote"] {
        assert!(!bytes.contains(secret), "{secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_completion_is_a_one_turn_call() {
    let mut collector = Collector::start().await;
    let mut server = traced(Script::default(), &collector.endpoint).await;
    let request = json!({
        "model": "gpt-audio",
        "modalities": ["text", "audio"],
        "audio": {"voice": "bob", "format": "wav"},
        "messages": [{"role": "user", "content": WORD}],
    });
    let headers = [("content-type", "application/json")];
    let body = request.to_string();
    let reply = send(server.address, "POST", "/v1/chat/completions", &headers, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let completion = reply.json();
    server.sessions(0).await;
    server.stop();
    server.ended().await;
    let collected = collector.collected();
    let (calls, turns) = (collected.named("call"), collected.named("turn"));
    let ([call], [turn]) = (&calls[..], &turns[..]) else { panic!("{:?}", collected.all) };
    let text = |value: &str| Some(Any::StringValue(value.to_owned()));
    assert_eq!(attribute(call, "repartee.call.id"), text(completion["id"].as_str().unwrap()));
    assert_eq!(attribute(call, "repartee.call.transport"), text("http"));
    assert_eq!((attribute(call, "repartee.call.end"), attribute(call, "error.type")), (text("completed"), None));
    assert_eq!(attribute(turn, "repartee.turn.answered"), Some(Any::BoolValue(true)));
    let stages = collected.within(turn);
    assert!(stages.contains_key("prefill") && stages.contains_key("codec"), "{stages:?}");
    assert!(!String::from_utf8_lossy(&collected.bytes).contains(WORD));
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_a_streamed_text_is_a_hangup() {
    let mut collector = Collector::start().await;
    // The first sentence is spoken to its end, the second one is not.
    let gate = Some(Arc::new(Semaphore::new(4)));
    let mut server = traced(Script { gate, ..Script::default() }, &collector.endpoint).await;
    let body = json!({"model": "any", "input": "One two three. Four five!", "response_format": "pcm"}).to_string();
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /v1/audio/speech HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let (mut read, mut bytes) = (0, vec![0; 4_096]);
    while read < 4 * FRAME_SAMPLES * 2 {
        read += timeout(PATIENCE, socket.read(&mut bytes)).await.expect("the sound so far").unwrap();
    }
    drop(socket);
    server.sessions(0).await;
    server.stop();
    server.ended().await;
    let collected = collector.collected();
    let [call] = collected.named("call")[..] else { panic!("{:?}", collected.all) };
    assert_eq!(attribute(call, "repartee.call.end"), Some(Any::StringValue("hangup".to_owned())));
    assert_eq!(attribute(collected.named("turn")[0], "repartee.turn.answered"), Some(Any::BoolValue(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_sound_is_unanswered() {
    let mut collector = Collector::start().await;
    let failure = Some(SessionError::NotFinite { stage: "talker" });
    let mut server = traced(Script { failure, ..Script::default() }, &collector.endpoint).await;
    let mut client = server.dial().await.unwrap();
    client.expect("session.created").await;
    client.send(json!({"type": "response.create"})).await;
    client.until("error").await;
    server.sessions(0).await;
    server.stop();
    server.ended().await;
    let collected = collector.collected();
    let turns = collected.named("turn");
    let [turn] = turns[..] else { panic!("{:?}", collected.all) };
    assert_eq!(attribute(turn, "repartee.turn.answered"), Some(Any::BoolValue(false)));
    assert!(collected.within(turn).is_empty());
}

/// Runs a speech request that ends with an error; returns its span, and the count of the error's code.
async fn failed_reading(failure: Option<SessionError>, text: &str, code: &str) -> (Span, String) {
    let mut collector = Collector::start().await;
    let mut server = traced(Script { failure, ..Script::default() }, &collector.endpoint).await;
    let path = "/v1/audio/speech?response_format=pcm";
    let reply = send(server.address, "POST", path, &[("content-type", "text/plain")], text.as_bytes()).await;
    assert_eq!(reply.code(), code, "{reply:?}");
    server.sessions(0).await;
    let metrics = send(server.address, "GET", "/metrics", &[], b"").await.body;
    let counted =
        metrics.lines().find_map(|line| line.strip_prefix(&format!("repartee_errors_total{{code=\"{code}\"}} ")));
    let counted = counted.unwrap_or("0").to_owned();
    server.stop();
    server.ended().await;
    let collected = collector.collected();
    let [call] = collected.named("call")[..] else { panic!("{:?}", collected.all) };
    (call.clone(), counted)
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_request_are_not_ours() {
    let full = SessionError::ContextFull { tokens: 9, limit: 8 };
    let broken = SessionError::NotFinite { stage: "talker" };
    for (failure, text, code, end, ours) in [
        (Some(full), "Hello.", "conversation_too_large", "refused", false),
        (None, "...", "invalid_value", "refused", false),
        (Some(broken), "Hello.", "internal_error", "failed", true),
    ] {
        let (call, counted) = failed_reading(failure, text, code).await;
        let text = |value: &str| Some(Any::StringValue(value.to_owned()));
        assert_eq!(attribute(&call, "repartee.call.end"), text(end));
        assert_eq!(attribute(&call, "error.type"), text(code));
        let status = call.status.unwrap_or_default().code();
        assert_eq!(status, if ours { StatusCode::Error } else { StatusCode::Unset }, "{code}");
        assert_eq!(counted, "1", "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_holds_up_nobody() {
    let gone = own_address();
    let mut server = traced(Script::default(), &format!("http://{gone}/")).await;
    let mut client = server.connect().await;
    client.ask("hello").await;
    server.stop();
    server.ended().await;
}
