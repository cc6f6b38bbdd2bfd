//! Calls over WebRTC: the native caller against the real server.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, Running, find, kinds, question};
use repartee::media::opus::{FRAME, OpusDecoder, OpusEncoder};
use repartee::testing::Script;
use repartee::transport::webrtc::{Call, CallEvent, WebRtcSettings, offer};
use serde_json::{Value, json};
use tokio::time::timeout;

/// A caller.
struct Caller {
    call: Call,
    location: String,
    encoder: OpusEncoder,
    decoder: OpusDecoder,
    /// What was heard so far, at 24 kHz.
    heard: Vec<f32>,
}

impl Caller {
    /// Calls and waits for `session.created`.
    async fn dial(server: &Running) -> Self {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let (status, answer) = post(server, "/v1/realtime/calls", "application/sdp", &sdp).await;
        assert_eq!(status, 201, "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
        assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
        let call = dialing.accept(body).await.unwrap();
        let (encoder, decoder) = (OpusEncoder::new(24_000).unwrap(), OpusDecoder::new(24_000).unwrap());
        let mut caller = Self { call, location, encoder, decoder, heard: Vec::new() };
        let created = caller.until("session.created").await;
        assert_eq!(created.len(), 1);
        caller
    }

    /// Speaks ten times faster than people do.
    async fn speak(&mut self, samples: &[f32]) {
        let mut clock = tokio::time::interval(FRAME / 10);
        for frame in samples.chunks_exact(480) {
            clock.tick().await;
            let packet = self.encoder.encode(frame).unwrap();
            self.call.send_audio(packet.payload, FRAME).await.unwrap();
        }
    }

    async fn send(&self, event: Value) {
        self.call.send_message(&event.to_string()).await.unwrap();
    }

    /// All events up to the next of this type; listens meanwhile.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = timeout(PATIENCE, self.call.events.recv()).await;
            match event.unwrap_or_else(|_| panic!("{kind} in time after {:?}", kinds(&events))).unwrap() {
                CallEvent::Message(text) => events.push(serde_json::from_str::<Value>(&text).unwrap()),
                CallEvent::Audio { payload, .. } => self.heard.extend(self.decoder.decode(&payload).unwrap()),
                CallEvent::Connected | CallEvent::ChannelOpen => continue,
                CallEvent::Closed => panic!("closed before {kind}, after {:?}", kinds(&events)),
            }
            if events.last().is_some_and(|event| event["type"] == kind) {
                return events;
            }
        }
    }

    /// Waits for the end of the call.
    async fn closed(&mut self) {
        while timeout(PATIENCE, self.call.events.recv()).await.expect("an end in time") != Some(CallEvent::Closed) {}
    }
}

async fn post(server: &Running, path: &str, kind: &str, body: &str) -> (u16, String) {
    let (address, length) = (server.address, body.len());
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
    server.request(&format!("{head}connection: close\r\n\r\n{body}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_aloud_and_the_clock_reports() {
    let server = Running::start(Script::default()).await;
    let mut caller = Caller::dial(&server).await;
    caller.speak(&question()).await;
    let events = caller.until("output_audio_buffer.stopped").await;
    let kinds = kinds(&events);
    assert!(!kinds.contains(&"response.output_audio.delta"), "sound is on the track");
    let place = |kind| kinds.iter().position(|found| *found == kind).unwrap_or_else(|| panic!("{kind} in {kinds:?}"));
    assert!(place("input_audio_buffer.speech_started") < place("input_audio_buffer.committed"));
    assert!(place("response.created") < place("output_audio_buffer.started"));
    let answer = &find(&events, "response.done")["response"];
    assert_eq!(answer["status"], "completed");
    for kind in ["output_audio_buffer.started", "output_audio_buffer.stopped"] {
        assert_eq!(find(&events, kind)["response_id"], answer["id"]);
    }
    // 400 ms of the scripted tone came through.
    let loud = caller.heard.chunks(480).filter(|frame| frame.iter().any(|sample| sample.abs() > 0.2)).count();
    assert!((18..=22).contains(&loud), "{loud} frames of 20 ms");
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_ttfp_seconds_count 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn speech_clears_what_was_made_but_not_played() {
    // Four seconds, made at once.
    let server = Running::start(Script { frames: 50, ..Script::default() }).await;
    let mut caller = Caller::dial(&server).await;
    caller.speak(&question()).await;
    let first = caller.until("response.done").await;
    assert_eq!(find(&first, "response.done")["response"]["status"], "completed");
    let started = Instant::now();
    caller.speak(&question()).await;
    let events = caller.until("conversation.item.truncated").await;
    let kinds = kinds(&events);
    let place = |kind| kinds.iter().position(|found| *found == kind).unwrap_or_else(|| panic!("{kind} in {kinds:?}"));
    assert!(place("input_audio_buffer.speech_started") < place("output_audio_buffer.cleared"));
    let heard_ms = find(&events, "conversation.item.truncated")["audio_end_ms"].as_u64().unwrap();
    let most = started.elapsed() + Duration::from_secs(1);
    assert!(u128::from(heard_ms) <= most.as_millis() && heard_ms < 4_000, "{heard_ms}");
    // The next turn is answered.
    caller.until("output_audio_buffer.started").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_hung_up_by_request() {
    let server = Running::start(Script::default()).await;
    let mut caller = Caller::dial(&server).await;
    caller.send(json!({"type": "session.update", "session": {}})).await;
    caller.until("session.updated").await;
    let path = format!("{}/hangup", caller.location);
    assert_eq!(post(&server, &path, "", "").await.0, 200);
    server.sessions(0).await;
    caller.closed().await;
    let (status, body) = post(&server, &path, "", "").await;
    assert_eq!(status, 404);
    assert!(body.contains("\"code\":\"call_not_found\""), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_hangs_up_frees_everything() {
    let server = Running::start(Script::default()).await;
    let caller = Caller::dial(&server).await;
    caller.call.close().await;
    server.sessions(0).await;
}

#[tokio::test]
async fn what_is_no_offer_is_refused() {
    let server = Running::start(Script::default()).await;
    let without_audio = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
    for (kind, body, status) in [
        ("application/sdp", "hello", 400),
        ("application/sdp", without_audio, 400),
        ("application/json", "{}", 415),
        ("application/sdp", &"x".repeat(100_000), 413),
    ] {
        let (got, reply) = post(&server, "/v1/realtime/calls", kind, body).await;
        assert_eq!(got, status, "{reply}");
        let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert!(body["error"]["message"].is_string() && body["error"]["code"].is_string());
    }
    server.sessions(0).await;
}

#[tokio::test]
async fn a_full_server_refuses_calls_at_once() {
    let server = Running::start(Script { slots: 0, ..Script::default() }).await;
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (status, body) = post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await;
    assert_eq!(status, 503);
    assert!(body.contains("session_limit_reached"), "{body}");
}
