//! Logs and metrics contain no caller data: secrets planted in every input of a caller must not appear in any line.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repartee::auth::KeySet;
use repartee::config::{Config, Secret};
use repartee::transport::webrtc::{PeerEvent, WebRtcCall, WebRtcSettings, offer};
use repartee_engine_api::SessionError;
use repartee_testkit::scripted::Script;
use serde_json::json;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{PATIENCE, Running, question};

const KEY: &str = "planted-key-of-the-house";
const WRONG_KEY: &str = "planted-key-of-a-stranger";
const TURN_SECRET: &str = "planted-turn-secret";
const INSTRUCTIONS: &str = "planted-instructions";
const WORD: &str = "planted-word";
const UNREADABLE: &str = "planted-nonsense";

/// Writer that captures the log.
#[derive(Clone, Default)]
struct CapturedLogs(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLogs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLogs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl CapturedLogs {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn secretive(config: &mut Config) {
    config.api_keys = KeySet::parse(KEY).unwrap();
    config.webrtc.turn.urls = vec!["turn:turn.example".into()];
    config.webrtc.turn.secret = Some(Secret::new(TURN_SECRET));
}

fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}

async fn websocket(server: &Running, key: &str) {
    let (name, value) = bearer(key);
    let mut client = server.dial_with(&[(name, &value)]).await.unwrap();
    client.expect("session.created").await;
    client.update(json!({"instructions": INSTRUCTIONS})).await;
    client.speak(&question(), 480).await;
    client.until("response.done").await;
    client.ask(WORD).await;
    for text in [UNREADABLE.to_owned(), json!({"type": UNREADABLE}).to_string()] {
        client.send_text(text).await;
        client.expect("error").await;
    }
    client.send(json!({"type": "session.update", "session": {"output_modalities": UNREADABLE}})).await;
    client.expect("error").await;
}

/// Makes a call over WebRTC; returns the secrets of its description.
async fn webrtc(server: &Running) -> Vec<String> {
    let (name, value) = bearer(KEY);
    let headers = [(name, &*value), ("content-type", "application/sdp")];
    let broken = format!("v=0\r\na=ice-pwd:{UNREADABLE}\r\n");
    assert_eq!(send(server.address, "POST", "/v1/realtime/calls", &headers, broken.as_bytes()).await.status, 400);
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let reply = send(server.address, "POST", "/v1/realtime/calls", &headers, sdp.as_bytes()).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let secrets = [&sdp, &reply.body].iter().flat_map(|sdp| secrets_of(sdp)).collect();
    let mut call = dialing.accept(&reply.body).await.unwrap();
    until(&mut call, "session.created").await;
    call.send_message(&json!({"type": "session.update", "session": {"instructions": INSTRUCTIONS}}).to_string())
        .await
        .unwrap();
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": WORD}]});
    for event in [json!({"type": "conversation.item.create", "item": item}), json!({"type": "response.create"})] {
        call.send_message(&event.to_string()).await.unwrap();
    }
    until(&mut call, "response.done").await;
    call.close().await;
    secrets
}

async fn until(call: &mut WebRtcCall, kind: &str) {
    loop {
        match tokio::time::timeout(PATIENCE, call.events.recv()).await.expect("an event in time").unwrap() {
            PeerEvent::Message(text) if text.contains(kind) => return,
            PeerEvent::Closed => panic!("closed before {kind}"),
            _ => {}
        }
    }
}

/// Secrets of the two ends: the ICE credentials and the fingerprint.
fn secrets_of(sdp: &str) -> Vec<String> {
    let lines = ["a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:"].map(|name| {
        let line = sdp.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {sdp}")).to_owned()
    });
    lines.into_iter().filter(|value| value.len() >= 8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_secrets_are_not_logged() {
    let log = CapturedLogs::default();
    let filter = EnvFilter::new("warn,repartee=trace,repartee_engine=trace");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(log.clone()).with_ansi(false).init();

    let mut server = Running::start_with(Script::default(), secretive).await;
    websocket(&server, KEY).await;
    let (name, value) = bearer(WRONG_KEY);
    server.dial_with(&[(name, &value)]).await.map(|_| ()).unwrap_err();
    let (name, value) = bearer(KEY);
    let session = json!({"session": {"instructions": INSTRUCTIONS}}).to_string();
    let headers = [(name, &*value)];
    let path = "/v1/realtime/client_secrets";
    let ephemeral = send(server.address, "POST", path, &headers, session.as_bytes()).await.json()["value"].clone();
    let ephemeral = ephemeral.as_str().unwrap().to_owned();
    websocket(&server, &ephemeral).await;
    let mut secrets = webrtc(&server).await;
    for body in [
        json!({"messages": [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": WORD}]}),
        json!({"messages": UNREADABLE}),
        json!({"messages": [{"role": UNREADABLE}]}),
    ] {
        let reply = send(server.address, "POST", "/v1/chat/completions", &headers, body.to_string().as_bytes()).await;
        assert!(matches!(reply.status, 200 | 400), "{reply:?}");
    }
    assert!(send(server.address, "GET", &format!("/v1/models/{UNREADABLE}"), &headers, b"").await.status == 404);
    server.sessions(0).await;
    let metrics = send(server.address, "GET", "/metrics", &headers, b"").await;
    assert!(metrics.status == 200 && metrics.body.contains("repartee_"), "{metrics:?}");
    server.stop();
    server.ended().await;

    // A failing engine logs most.
    let failure = Some(SessionError::NotFinite { stage: "talker" });
    let server = Running::start_with(Script { failure, ..Script::default() }, |config| {
        secretive(config);
        config.stalled_after = Duration::from_secs(1);
    })
    .await;
    let (name, value) = bearer(KEY);
    let mut client = server.dial_with(&[(name, &value)]).await.unwrap();
    client.send(json!({"type": "session.update", "session": {"instructions": INSTRUCTIONS}})).await;
    client.send(json!({"type": "response.create"})).await;
    client.until("error").await;
    server.sessions(0).await;

    let logged = log.text();
    assert!(logged.contains("a call ended"), "something is logged at all: {logged}");
    secrets.extend([KEY, WRONG_KEY, TURN_SECRET, INSTRUCTIONS, WORD, UNREADABLE, &ephemeral].map(str::to_owned));
    // The scripted model's words, which are its transcript.
    secrets.extend(["You wrote", "I heard"].map(str::to_owned));
    assert!(secrets.len() >= 12, "{secrets:?}");
    for secret in &secrets {
        assert!(!logged.contains(&**secret), "{secret} in {logged}");
        assert!(!metrics.body.contains(&**secret), "{secret} in {}", metrics.body);
    }
}
