//! Life of server and calls: admission, callers that vanish or stall, health, and shutdown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use repartee::config::{Config, ConfigError};
use repartee::server::{Server, ServerStartError};
use repartee::transport::webrtc::{PeerEvent, WebRtcSettings, offer};
use repartee_media::opus::OpusDecoder;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};

use repartee_gateway_testkit::{Running, find, question};

#[tokio::test]
async fn a_full_server_refuses_at_once() {
    let server = Running::start(Script { slots: 1, ..Script::default() }).await;
    let first = server.connect().await;
    let Err(Error::Http(response)) = server.dial().await else { panic!("a full server lets nobody in") };
    assert_eq!(response.status(), 503);
    let body: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "session_limit_reached");
    assert_eq!(body["error"]["type"], "server_error");
    drop(first);
    server.sessions(0).await;
    server.connect().await;
}

#[tokio::test]
async fn vanishing_within_a_response_frees_everything() {
    let gate = Arc::new(Semaphore::new(1));
    let server = Running::start(Script { gate: Some(gate), ..Script::default() }).await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    client.until("response.output_audio.delta").await;
    server.sessions(1).await;
    // No closing handshake: the socket is simply gone.
    drop(client);
    server.sessions(0).await;
}

#[tokio::test]
async fn calls_run_apart_from_requests() {
    let server = Running::start(Script::default()).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    // A request that is not complete stays with the threads of requests.
    let mut request = TcpStream::connect(server.address).await.unwrap();
    request
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n")
        .await
        .unwrap();
    request.write_all(b"content-type: application/json\r\ncontent-length: 9\r\n\r\n").await.unwrap();
    request.read_exact(&mut [0; 12]).await.unwrap();
    // The watchdog's probes are tasks for a moment; a connection's task would stay.
    let passed = async {
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), passed).await.expect("a request has threads of its own");
    // A task of the start may have ended meanwhile.
    let beside = tasks();
    let client = server.connect().await;
    assert!(tasks() > beside, "a call has the threads of this test");
    drop(client);
}

#[tokio::test]
async fn hanging_up_frees_everything() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.socket.close(None).await.unwrap();
    while client.socket.next().await.is_some() {}
    server.sessions(0).await;
}

#[tokio::test]
async fn a_stalled_caller_is_closed() {
    // More sound than any socket buffer holds, for a client that never reads it.
    let script = Script { frames: 20_000, ..Script::default() };
    let server = Running::start_with(script, |config| config.stalled_after = Duration::from_millis(300)).await;
    let mut stalled = server.connect().await;
    let mut other = server.connect().await;
    let content = json!([{"type": "input_text", "text": "talk"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    stalled.send(json!({"type": "conversation.item.create", "item": item})).await;
    stalled.send(json!({"type": "response.create"})).await;
    server.sessions(1).await;
    other.update(json!({"output_modalities": ["text"]})).await;
    let events = other.ask("are you there?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn an_engine_failure_closes_one_session() {
    let failure = repartee_engine_api::SessionError::NotFinite { stage: "talker" };
    let server = Running::start(Script { failure: Some(failure), ..Script::default() }).await;
    let mut client = server.connect().await;
    let mut other = server.connect().await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("error").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "failed");
    assert_eq!(find(&events, "error")["error"]["type"], "server_error");
    let Some(Message::Close(Some(frame))) = client.message().await else { panic!("a farewell") };
    assert_eq!(u16::from(frame.code), 1011);
    other.update(json!({})).await;
    server.sessions(1).await;
}

#[tokio::test]
async fn shutdown_closes_every_call() {
    let mut server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    server.stop();
    let Some(Message::Close(Some(frame))) = client.message().await else { panic!("a farewell") };
    assert_eq!(u16::from(frame.code), 1001);
    server.sessions(0).await;
    server.ended().await;
}

/// A server in the middle of an answer, its caller, and the semaphore that lets the answer go on.
async fn in_the_middle_of_an_answer(drain: Duration) -> (Running, repartee_gateway_testkit::Client, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(1));
    let script = Script { gate: Some(gate.clone()), ..Script::default() };
    let server = Running::start_with(script, |config| config.drain = drain).await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    client.until("response.output_audio.delta").await;
    (server, client, gate)
}

#[tokio::test]
async fn draining_ends_turns_and_refuses_calls() {
    let (mut server, mut client, gate) = in_the_middle_of_an_answer(repartee_gateway_testkit::PATIENCE).await;
    let mut idle = server.connect().await;
    server.stop();
    // An idle caller gets the closing message at once; from then on the server is not ready.
    let Some(Message::Close(Some(frame))) = idle.message().await else { panic!("a farewell") };
    assert_eq!(u16::from(frame.code), 1001);
    assert_eq!(server.get("/readyz").await.0, 503);
    assert_eq!(server.get("/healthz").await.0, 200);
    let Err(Error::Http(response)) = server.dial().await else { panic!("there are no new calls") };
    assert_eq!(response.status(), 503);
    let body: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "shutting_down");
    gate.add_permits(100);
    let events = client.until("response.done").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    let Some(Message::Close(Some(frame))) = client.message().await else { panic!("a farewell") };
    assert_eq!(u16::from(frame.code), 1001);
    server.ended().await;
}

#[tokio::test]
async fn draining_may_wait_for_calls() {
    let mut server = Running::start_with(Script::default(), |config| {
        (config.drain, config.drain_calls) = (repartee_gateway_testkit::PATIENCE, true);
    })
    .await;
    let mut client = server.connect().await;
    server.stop();
    while server.get("/readyz").await.0 != 503 {}
    // An idle call goes on, and new ones are refused.
    let Err(Error::Http(response)) = server.dial().await else { panic!("there are no new calls") };
    assert_eq!(response.status(), 503);
    let events = client.ask("Hello?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    drop(client);
    server.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_plays_a_response_out() {
    let mut server = Running::start(Script::default()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let headers = [("content-type", "application/sdp")];
    let answer =
        repartee_gateway_testkit::http::send(server.address, "POST", "/v1/realtime/calls", &headers, sdp.as_bytes())
            .await;
    let mut call = dialing.accept(&answer.body).await.unwrap();
    let content = json!([{"type": "input_text", "text": "hello"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    let (mut decoder, mut heard) = (OpusDecoder::new(24_000).unwrap(), Vec::new());
    loop {
        let event = timeout(repartee_gateway_testkit::PATIENCE, call.events.recv()).await.expect("an event in time");
        let event: Value = match event.unwrap() {
            PeerEvent::Message(text) => serde_json::from_str(&text).unwrap(),
            PeerEvent::Audio { payload, .. } => {
                heard.extend(decoder.decode(&payload).unwrap());
                continue;
            }
            PeerEvent::Closed => break,
            _ => continue,
        };
        match event["type"].as_str().unwrap() {
            "session.created" => {
                for event in
                    [json!({"type": "conversation.item.create", "item": item}), json!({"type": "response.create"})]
                {
                    call.send_message(&event.to_string()).await.unwrap();
                }
            }
            // Generated, and hardly played.
            "response.done" => server.stop(),
            _ => {}
        }
    }
    // All of its 400 ms.
    let loud = heard.chunks(480).filter(|frame| frame.iter().any(|sample: &f32| sample.abs() > 0.2)).count();
    assert!((18..=22).contains(&loud), "{loud} frames of 20 ms");
    server.ended().await;
}

#[tokio::test]
async fn draining_has_a_deadline() {
    let (mut server, mut client, _gate) = in_the_middle_of_an_answer(Duration::from_millis(100)).await;
    server.stop();
    let farewell = loop {
        match client.message().await {
            Some(Message::Close(frame)) => break frame.unwrap(),
            Some(_) => {}
            None => panic!("a farewell"),
        }
    };
    assert_eq!(u16::from(farewell.code), 1001);
    server.ended().await;
}

#[tokio::test]
async fn readiness_follows_the_engine() {
    let server = Running::start(Script::default()).await;
    server.engine.set_ready(false);
    assert_eq!(server.get("/readyz").await.0, 503);
    assert_eq!(server.get("/healthz").await.0, 200);
    server.engine.set_ready(true);
    assert_eq!(server.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn health_metrics_and_the_page_are_served() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    client.until("response.done").await;
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(server.get("/readyz").await.0, 200);
    let (status, metrics) = server.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "repartee_ttfp_seconds_count 1",
        "repartee_active_sessions 1",
        "repartee_turns_total{status=\"completed\"} 1",
        "repartee_stage_seconds_count{stage=\"endpointing\"} 1",
        "repartee_stage_seconds_count{stage=\"slice_wait\"} 1",
        "repartee_stage_seconds_count{stage=\"wire\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("sess_"), "no session has a label");
    let (status, page) = server.get("/").await;
    assert_eq!(status, 200);
    assert!(page.contains("<!doctype html>") || page.contains("<!DOCTYPE html>"));
    let (status, missing) = server.get("/v1/nothing").await;
    assert_eq!(status, 404);
    assert!(missing.contains("\"code\":\"not_found\""));
    assert_eq!(server.get("/v1/realtime").await.0, 426);
}

#[tokio::test]
async fn pages_load_own_files_and_refuse_framing() {
    let server = Running::start(Script::default()).await;
    for path in ["/", "/admin", "/app.js", "/style.css"] {
        let (status, reply) = server.get(path).await;
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert_eq!(status, 200, "{path}");
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
        for rule in
            ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(policy.split("; ").any(|part| part == rule), "{rule} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(head.contains("x-content-type-options: nosniff") && head.contains("x-frame-options: DENY"), "{head}");
        // The policy would block these.
        assert!(!body.contains("<style") && !body.contains(" style=") && !body.contains("<script>"), "{path}");
    }
}

#[tokio::test]
async fn a_public_address_is_refused() {
    let config = Config { listen: ([0, 0, 0, 0], 0).into(), ..Config::default() };
    let error = Server::bind(config, ScriptedEngine::new(Script::default())).await.unwrap_err();
    assert!(matches!(error, ServerStartError::Config(ConfigError::Public(_))));
    assert!(error.to_string().contains("no keys"));
}
