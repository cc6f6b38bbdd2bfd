//! Calls over WebRTC: the native caller against the real server.

use std::time::Duration;

use futures_util::future::join_all;
use repartee::config::{Secret, TurnServerConfig};
use repartee::transport::webrtc::{PeerEvent, PendingOffer, WebRtcCall, WebRtcSettings, offer};
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder};
use repartee_testkit::scripted::{Script, ScriptedResponse, VoiceTrace};
use repartee_testkit::session_description::faults;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};

use repartee_gateway_testkit::{PATIENCE, Running, find, kinds, question};

/// Native caller with its received audio.
pub(super) struct Caller {
    call: WebRtcCall,
    location: String,
    /// Its `session.created` event.
    created: Value,
    encoder: OpusEncoder,
    decoder: OpusDecoder,
    /// Audio received so far, at 24 kHz.
    received: Vec<f32>,
}

impl Caller {
    /// Dials and waits for `session.created`.
    pub(super) async fn dial(server: &Running) -> Self {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        Self::dial_with(server, "application/sdp", &sdp, dialing).await
    }

    /// As [`Self::dial`], with this body.
    async fn dial_with(server: &Running, kind: &str, body: &str, dialing: PendingOffer) -> Self {
        let (status, answer) = post(server, "/v1/realtime/calls", kind, body).await;
        assert_eq!(status, 201, "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/sdp"), "{head}");
        let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
        assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
        Self::of(dialing.accept(body).await.unwrap(), location).await
    }

    /// Waits for `session.created` of a call.
    async fn of(call: WebRtcCall, location: String) -> Self {
        let (encoder, decoder) = (OpusEncoder::new(24_000).unwrap(), OpusDecoder::new(24_000).unwrap());
        let mut caller = Self { call, location, created: Value::Null, encoder, decoder, received: Vec::new() };
        let mut created = caller.until("session.created").await;
        assert_eq!(created.len(), 1);
        caller.created = created.remove(0);
        caller
    }

    /// Sends speech in real time, 20 ms a packet.
    pub(super) async fn speak(&mut self, samples: &[f32]) {
        // At the pace of time: sound beyond the RTP time limit is dropped.
        let mut clock = tokio::time::interval(FRAME);
        for frame in samples.chunks_exact(480) {
            clock.tick().await;
            let packet = self.encoder.encode(frame).unwrap();
            self.call.send_audio(packet.payload, FRAME).await.unwrap();
        }
    }

    pub(super) async fn send(&self, event: Value) {
        self.call.send_message(&event.to_string()).await.unwrap();
    }

    /// Returns all events up to the next of this type; receives audio meanwhile.
    pub(super) async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = timeout(PATIENCE, self.call.events.recv()).await;
            match event.unwrap_or_else(|_| panic!("{kind} in time after {:?}", kinds(&events))).unwrap() {
                PeerEvent::Message(text) => events.push(serde_json::from_str::<Value>(&text).unwrap()),
                PeerEvent::Audio { payload, .. } => self.received.extend(self.decoder.decode(&payload).unwrap()),
                PeerEvent::Connected | PeerEvent::ChannelOpen => continue,
                PeerEvent::Closed => panic!("closed before {kind}, after {:?}", kinds(&events)),
            }
            if events.last().is_some_and(|event| event["type"] == kind) {
                return events;
            }
        }
    }

    /// Reads until this much audio has arrived.
    async fn listen(&mut self, duration: Duration) {
        let samples = duration.as_millis() as usize * 24;
        while self.received.len() < samples {
            let event = timeout(PATIENCE, self.call.events.recv()).await.expect("audio in time");
            if let PeerEvent::Audio { payload, .. } = event.unwrap() {
                self.received.extend(self.decoder.decode(&payload).unwrap());
            }
        }
    }

    /// Returns at the end of the call.
    async fn closed(&mut self) {
        while timeout(PATIENCE, self.call.events.recv()).await.expect("an end in time") != Some(PeerEvent::Closed) {}
    }
}

async fn post(server: &Running, path: &str, kind: &str, body: &str) -> (u16, String) {
    let (address, length) = (server.address, body.len());
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
    server.request(&format!("{head}connection: close\r\n\r\n{body}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoken_question_is_answered_with_playout_events() {
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
    // 400 ms of the scripted voice arrived in order, but for the encoder's look-ahead of 6.5 ms.
    let trace = VoiceTrace::of(&caller.received).expect("the voice");
    assert!(trace.first_ms.abs() < 10.0 && (trace.last_ms - 393.5).abs() < 10.0, "{trace:?}");
    assert_eq!((trace.missing_ms, trace.added_ms), (0.0, 0.0));
    let (_, metrics) = server.get("/metrics").await;
    for stage in ["codec", "playout", "opus", "wire"] {
        assert!(metrics.contains(&format!("repartee_stage_seconds_count{{stage=\"{stage}\"}} 1")), "{metrics}");
    }
    assert!(metrics.contains("repartee_ttfp_seconds_count 1"), "{metrics}");
}

/// Inserts a section before or behind those of an offer.
fn with_section(sdp: &str, section: &str, first: bool) -> String {
    let at = if first { sdp.find("m=").unwrap() } else { sdp.len() };
    format!("{}{section}{}", &sdp[..at], &sdp[at..])
}

/// Removes a section of an answer that the caller's library did not offer.
fn without_section(answer: &str, mid: &str) -> String {
    let mut parts: Vec<_> = answer.split("m=").collect();
    let before = parts.len();
    parts.retain(|part| !part.contains(&format!("a=mid:{mid}\r\n")));
    assert_eq!(parts.len(), before - 1, "{answer}");
    parts.join("m=")
}

#[tokio::test(flavor = "multi_thread")]
async fn offers_of_every_form_are_served() {
    const REJECTED: &str = "m=video 0 UDP/TLS/RTP/SAVPF 100\r\nc=IN IP4 0.0.0.0\r\na=inactive\r\na=mid:x\r\n\
        a=ice-ufrag:OLD1\r\na=ice-pwd:OLDOLDOLDOLDOLDOLDOLDOLD\r\n";
    const SECOND: &str = "m=audio 9 UDP/TLS/RTP/SAVPF 120\r\nc=IN IP4 0.0.0.0\r\na=sendrecv\r\na=mid:x\r\n\
        a=rtcp-mux\r\na=rtpmap:120 opus/48000/2\r\na=setup:actpass\r\n";
    let server = Running::start(Script { slots: 6, ..Script::default() }).await;
    let bundle_only = |sdp: &str| sdp.replace("m=application 9", "m=application 0") + "a=bundle-only\r\n";
    let unnamed = |sdp: &str| -> String {
        let lines = sdp.lines().filter(|line| !line.starts_with("a=ssrc") && !line.starts_with("a=msid"));
        lines.flat_map(|line| [line, "\r\n"]).collect()
    };
    type Change<'a> = &'a dyn Fn(&str) -> String;
    let same: Change<'_> = &|answer| answer.to_owned();
    let dropped: Change<'_> = &|answer| without_section(answer, "x");
    let cases: [(&str, Change<'_>, Change<'_>); 6] = [
        ("bundle-only channel", &bundle_only, same),
        ("passive caller", &|sdp| sdp.replace("a=setup:actpass", "a=setup:passive"), same),
        ("rejected section first", &|sdp| with_section(sdp, REJECTED, true), dropped),
        ("second audio", &|sdp| with_section(sdp, SECOND, false), dropped),
        ("neither SSRC nor stream", &unnamed, same),
        ("wrong SSRC first", &|sdp| sdp.replacen("a=ssrc:", "a=ssrc:1000 cname:x\r\na=ssrc:", 1), same),
    ];
    let to = &server;
    let calls = cases.map(|(name, change, change_answer)| async move {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let changed = change(&sdp);
        assert_ne!(changed, sdp, "{name}");
        let (status, answer) = post(to, "/v1/realtime/calls", "application/sdp", &changed).await;
        assert_eq!(status, 201, "{name}: {answer}");
        let answer = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(faults(&changed, answer), [""; 0], "{changed}\n{answer}");
        let call = dialing.accept(&change_answer(answer)).await.unwrap();
        let mut caller = Caller::of(call, String::new()).await;
        caller.speak(&question()).await;
        caller.until("output_audio_buffer.stopped").await;
        assert!(VoiceTrace::of(&caller.received).is_some(), "{name}: the voice");
        caller.call.close().await;
    });
    join_all(calls).await;
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voice_of_any_rate_arrives_whole() {
    let server = Running::start(Script { output_rate: 44_100, ..Script::default() }).await;
    let mut caller = Caller::dial(&server).await;
    caller.send(json!({"type": "response.create"})).await;
    caller.until("output_audio_buffer.stopped").await;
    let trace = VoiceTrace::of(&caller.received).expect("the voice");
    assert!(trace.first_ms.abs() < 10.0 && (trace.last_ms - 393.5).abs() < 10.0, "{trace:?}");
    assert_eq!((trace.missing_ms, trace.added_ms), (0.0, 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_only_send_hear_nothing() {
    let server = Running::start(Script::default()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let sdp = sdp.replacen("a=sendrecv", "a=sendonly", 1);
    assert!(sdp.contains("a=sendonly"), "{sdp}");
    let mut caller = Caller::dial_with(&server, "application/sdp", &sdp, dialing).await;
    caller.speak(&question()).await;
    let events = caller.until("output_audio_buffer.stopped").await;
    assert!(kinds(&events).contains(&"response.output_audio_transcript.done"));
    assert!(caller.received.is_empty(), "{} samples", caller.received.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn speech_clears_unplayed_audio() {
    // Four seconds, generated at once.
    let server = Running::start(Script { frames: 50, ..Script::default() }).await;
    let mut caller = Caller::dial(&server).await;
    caller.speak(&question()).await;
    let first = caller.until("response.done").await;
    assert_eq!(find(&first, "response.done")["response"]["status"], "completed");
    caller.listen(Duration::from_millis(500)).await;
    caller.speak(&question()).await;
    let events = caller.until("conversation.item.truncated").await;
    let kinds = kinds(&events);
    let place = |kind| kinds.iter().position(|found| *found == kind).unwrap_or_else(|| panic!("{kind} in {kinds:?}"));
    assert!(place("input_audio_buffer.speech_started") < place("output_audio_buffer.cleared"));
    let heard_ms = find(&events, "conversation.item.truncated")["audio_end_ms"].as_u64().unwrap();
    // Half a second had arrived before the caller spoke, less the receiver's buffer; no more than arrived counts as
    // heard.
    let received_ms = (caller.received.len() / 24) as u64;
    assert!((400..=received_ms).contains(&heard_ms) && received_ms < 4_000, "{heard_ms} of {received_ms}");
    // The next turn is answered.
    caller.until("output_audio_buffer.started").await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_barge_in_seconds_count 1\n"), "{metrics}");
    // Not at once: this much voice is needed to pause the answer.
    let sum = metrics.lines().find_map(|line| line.strip_prefix("repartee_barge_in_seconds_sum ")).unwrap();
    assert!(sum.parse::<f64>().unwrap() > 0.01, "{sum}");
    assert!(!metrics.contains("repartee_rtf_ratio_count 0\n"), "{metrics}");
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
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_call_seconds_count{end=\"hangup\",transport=\"webrtc\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("end=\"shutdown\""), "{metrics}");
    // A second hang-up is no error, but an unknown call is.
    assert_eq!(post(&server, &path, "", "").await.0, 200);
    let (status, body) = post(&server, "/v1/realtime/calls/rtc_nobody/hangup", "", "").await;
    assert_eq!(status, 404);
    assert!(body.contains("\"code\":\"call_not_found\""), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_up_an_ended_call_is_no_error() {
    let server = Running::start(Script::default()).await;
    let caller = Caller::dial(&server).await;
    let path = format!("{}/hangup", caller.location);
    caller.call.close().await;
    server.sessions(0).await;
    assert_eq!(post(&server, &path, "", "").await.0, 200);
}

/// A form as stock clients send it.
fn form(parts: &[(&str, &str, &str)]) -> (String, String) {
    let parts = parts.iter().map(|(name, kind, body)| {
        format!("--fence\r\ncontent-disposition: form-data; name=\"{name}\"\r\ncontent-type: {kind}\r\n\r\n{body}\r\n")
    });
    ("multipart/form-data; boundary=fence".to_owned(), parts.collect::<String>() + "--fence--\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_configures_the_session() {
    let server = Running::start(Script::default()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let session = json!({"type": "realtime", "instructions": "Be brief.", "model": "gpt-realtime"}).to_string();
    let (kind, body) = form(&[("sdp", "application/sdp", &sdp), ("session", "application/json", &session)]);
    let mut caller = Caller::dial_with(&server, &kind, &body, dialing).await;
    assert_eq!(caller.created["session"]["instructions"], "Be brief.");
    caller.speak(&question()).await;
    caller.until("output_audio_buffer.stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcription_session_answers_nothing() {
    let server = Running::start(Script { has_transcription: true, ..Script::default() }).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let session = json!({"type": "transcription"}).to_string();
    let (kind, body) = form(&[("sdp", "application/sdp", &sdp), ("session", "application/json", &session)]);
    let mut caller = Caller::dial_with(&server, &kind, &body, dialing).await;
    assert_eq!(caller.created["session"]["type"], "transcription");
    for _ in 0..2 {
        caller.speak(&question()).await;
        let events = caller.until("conversation.item.input_audio_transcription.completed").await;
        assert!(kinds(&events).iter().all(|kind| !kind.starts_with("response.") && !kind.starts_with("output_")));
        assert!(events.last().unwrap()["transcript"].as_str().unwrap().starts_with("words of "));
    }
    let unable = Running::start(Script::default()).await;
    let (status, reply) = post(&unable, "/v1/realtime/calls", &kind, &body).await;
    assert!(status == 400 && reply.contains("transcription_not_available"), "{reply}");
    unable.sessions(0).await;
}

#[tokio::test]
async fn a_bad_form_is_refused_by_field() {
    let server = Running::start(Script::default()).await;
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let offer = ("sdp", "application/sdp", &*sdp);
    let long = format!("{{\"instructions\": \"{}\"}}", "x".repeat(1_100_000));
    for (parts, status, word) in [
        (&[][..], 400, "sdp"),
        (&[("session", "application/json", "{}")], 400, "sdp"),
        (&[offer, ("session", "application/json", "{")], 400, "session"),
        (&[offer, ("session", "application/json", "[]")], 400, "session"),
        (&[offer, ("session", "application/json", "{\"instructions\": 7}")], 400, "instructions"),
        (&[offer, offer], 400, "sdp"),
        (&[offer, ("file", "text/plain", "x")], 400, "file"),
        (&[("sdp", "application/sdp", "hello")], 400, "sdp"),
        (&[offer, ("session", "application/json", &long)], 413, "large"),
    ] {
        let (kind, body) = form(parts);
        let (got, reply) = post(&server, "/v1/realtime/calls", &kind, &body).await;
        assert_eq!(got, status, "{word}: {reply}");
        assert!(reply.split_once("\r\n\r\n").unwrap().1.contains(word), "{word}: {reply}");
    }
    let (got, _) = post(&server, "/v1/realtime/calls", "multipart/form-data", "x").await;
    assert_eq!(got, 400);
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sideband_receives_controls_and_leaves() {
    let server = Running::start(Script::default()).await;
    let mut caller = Caller::dial(&server).await;
    let id = caller.location.rsplit('/').next().unwrap().to_owned();
    let mut side = server.attach(&id).await.unwrap();
    let created = side.expect("session.created").await;
    assert_eq!(created, caller.created, "it is the same session");
    side.send(json!({"type": "session.update", "session": {"instructions": "From the side."}})).await;
    let updated = side.expect("session.updated").await;
    assert_eq!(updated["session"]["instructions"], "From the side.");
    assert_eq!(*caller.until("session.updated").await.last().unwrap(), updated);
    // A late client gets both.
    let mut late = server.attach(&id).await.unwrap();
    late.expect("session.created").await;
    assert_eq!(late.expect("session.updated").await, updated);
    // All three clients get the caller's events.
    caller.speak(&question()).await;
    let heard = caller.until("output_audio_buffer.stopped").await;
    assert_eq!(side.until("output_audio_buffer.stopped").await, heard);
    assert_eq!(late.until("output_audio_buffer.stopped").await, heard);
    drop(side);
    caller.speak(&question()).await;
    caller.until("output_audio_buffer.stopped").await;
    late.until("output_audio_buffer.stopped").await;
    caller.call.close().await;
    loop {
        match late.message().await.expect("a farewell") {
            Message::Close(frame) => break assert_eq!(u16::from(frame.unwrap().code), 1000),
            _ => continue,
        }
    }
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sideband_controls_a_call_without_data_channel() {
    let server = Running::start(Script::default()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let sdp = sdp[..sdp.find("m=application").unwrap()].replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 0");
    let (status, answer) = post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await;
    assert_eq!(status, 201, "{answer}");
    let location = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    let mut side = server.attach(location.rsplit('/').next().unwrap()).await.unwrap();
    side.expect("session.created").await;
    for event in side.ask("hello").await {
        assert_ne!(event["type"], "error", "{event}");
    }
    drop(dialing);
}

#[tokio::test(flavor = "multi_thread")]
async fn sidebands_are_served_before_the_media() {
    // More events than wait for a caller.
    const UPDATES: usize = 300;
    let server = Running::start(Script::default()).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (status, answer) = post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await;
    assert_eq!(status, 201, "{answer}");
    let (head, answer) = answer.split_once("\r\n\r\n").unwrap();
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    let mut side = server.attach(location.rsplit('/').next().unwrap()).await.unwrap();
    let created = side.expect("session.created").await;
    let mut updated = Value::Null;
    for number in 0..UPDATES {
        side.send(json!({"type": "session.update", "session": {"instructions": format!("Number {number}.")}})).await;
        updated = side.expect("session.updated").await;
    }
    // A greeting is generated, and waits for the caller's ear.
    side.send(json!({"type": "response.create"})).await;
    let made = side.until("response.done").await;
    assert!(!kinds(&made).contains(&"output_audio_buffer.started"), "{:?}", kinds(&made));
    let mut caller = Caller::of(dialing.accept(answer).await.unwrap(), location).await;
    assert_eq!(caller.created, created);
    let heard = caller.until("output_audio_buffer.stopped").await;
    assert_eq!(heard[0], updated, "the newest session alone");
    let kinds = kinds(&heard);
    assert!(kinds.contains(&"response.created") && kinds.contains(&"output_audio_buffer.started"), "{kinds:?}");
    // The first packets may overtake the end of the caller's handshake.
    let trace = VoiceTrace::of(&caller.received).expect("the voice");
    assert!(trace.first_ms < 100.0 && trace.last_ms > 380.0 && trace.missing_ms == 0.0, "{trace:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_message_limits_are_kept() {
    let server = Running::start(Script::default()).await;
    for limit in [Some(65_536), None] {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let line = sdp.lines().find(|line| line.starts_with("a=max-message-size")).unwrap();
        let changed = limit.map(|limit: u32| format!("a=max-message-size:{limit}")).unwrap_or_else(|| "a=x:y".into());
        let mut caller = Caller::dial_with(&server, "application/sdp", &sdp.replace(line, &changed), dialing).await;
        // The answer takes 262144 bytes, whatever the caller takes.
        let pad = "p".repeat(200_000);
        caller.send(json!({"type": "x", "event_id": "large", "pad": pad})).await;
        let refused = caller.until("error").await.pop().unwrap();
        assert_eq!(
            (&refused["error"]["code"], &refused["error"]["event_id"]),
            (&json!("unknown_event_type"), &json!("large"))
        );
        // The event about this is larger than what the caller takes.
        let session = json!({"type": "realtime", "instructions": "in ".repeat(21_766)});
        caller.send(json!({"type": "session.update", "session": session})).await;
        let error = caller.until("error").await.pop().unwrap();
        assert_eq!(error["error"]["code"], "message_too_large", "{error}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("session.updated") && message.contains("65536"), "{message}");
        caller.call.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_deltas_are_split() {
    // One word, so one delta.
    let text = "word".repeat(150);
    let spoken = ScriptedResponse { text: Some(text.clone()), frames: 2, ..ScriptedResponse::default() };
    let server = Running::start(Script { responses: vec![spoken], ..Script::default() }).await;
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let line = sdp.lines().find(|line| line.starts_with("a=max-message-size")).unwrap();
    let sdp = sdp.replace(line, "a=max-message-size:350");
    let (status, answer) = post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await;
    assert_eq!(status, 201, "{answer}");
    let mut call = dialing.accept(answer.split_once("\r\n\r\n").unwrap().1).await.unwrap();
    let (mut asked, mut said) = (false, String::new());
    while said.len() < text.len() {
        let event = timeout(PATIENCE, call.events.recv()).await.expect("an event in time").unwrap();
        if event == PeerEvent::ChannelOpen && !std::mem::replace(&mut asked, true) {
            call.send_message(r#"{"type": "response.create"}"#).await.unwrap();
        }
        let PeerEvent::Message(event) = event else { continue };
        assert!(event.len() <= 350, "{event}");
        let event: Value = serde_json::from_str(&event).unwrap();
        if event["type"] == "response.output_audio_transcript.delta" {
            said += event["delta"].as_str().unwrap();
        }
    }
    assert_eq!(said, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_callers_get_all_addresses() {
    let server = Running::start(Script::default()).await;
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (status, answer) = post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await;
    assert_eq!(status, 201, "{answer}");
    let candidates: Vec<Vec<_>> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("a=candidate:"))
        .map(|line| line.split(' ').skip(4).take(2).collect())
        .collect();
    let addresses: Vec<&str> = candidates.iter().map(|candidate| candidate[0]).collect();
    assert!(addresses.contains(&"127.0.0.1"), "{answer}");
    assert!(candidates.iter().all(|candidate| candidate[1] == candidates[0][1]), "one port: {answer}");
    // Some callers on this machine use no loopback address.
    let routed = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if routed.connect("192.0.2.1:9").is_ok() {
        let own = routed.local_addr().unwrap().ip().to_string();
        assert!(addresses.contains(&&*own), "{own} is missing: {answer}");
    } else {
        println!("skipped: this machine has no interface but loopback");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_calls_and_excess_sidebands_are_refused() {
    let server = Running::start(Script::default()).await;
    let refused = async |id: &str| match server.attach(id).await.unwrap_err() {
        Error::Http(response) => response.status().as_u16(),
        error => panic!("{error}"),
    };
    assert_eq!(refused("rtc_nobody").await, 404);
    let caller = Caller::dial(&server).await;
    let id = caller.location.rsplit('/').next().unwrap().to_owned();
    let mut sides = Vec::new();
    for _ in 0..4 {
        sides.push(server.attach(&id).await.unwrap());
    }
    assert_eq!(refused(&id).await, 429);
    caller.call.close().await;
    server.sessions(0).await;
    assert_eq!(refused(&id).await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unconnected_call_frees_its_slot() {
    let server = Running::start_with(Script { slots: 1, ..Script::default() }, |config| {
        config.webrtc.connect_within = Duration::from_millis(300);
    })
    .await;
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    assert_eq!(post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await.0, 201);
    server.sessions(0).await;
    Caller::dial(&server).await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_call_seconds_count{end=\"unconnected\",transport=\"webrtc\"} 1"), "{metrics}");
}

#[tokio::test]
async fn ice_servers_have_fresh_credentials() {
    let server = Running::start(Script::default()).await;
    let (status, reply) = server.get("/v1/realtime/ice_servers").await;
    assert_eq!(status, 200);
    assert!(reply.ends_with("{\"ice_servers\":[]}"), "{reply}");
    let turn = TurnServerConfig {
        urls: vec!["turn:turn.example.org:3478".into()],
        secret: Some(Secret::new("north")),
        ttl: Duration::from_secs(600),
    };
    let server = Running::start_with(Script::default(), |config| config.webrtc.turn = turn).await;
    let (_, reply) = server.get("/v1/realtime/ice_servers").await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("cache-control: no-store"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["expires_after"], 600);
    let listed = &body["ice_servers"][0];
    assert_eq!(listed["urls"][0], "turn:turn.example.org:3478");
    assert!(listed["credential"].as_str().is_some_and(|credential| credential.len() == 28));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let expires: u64 = listed["username"].as_str().unwrap().parse().unwrap();
    assert!((now + 590..=now + 610).contains(&expires), "{expires}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_up_frees_everything() {
    let server = Running::start(Script::default()).await;
    let caller = Caller::dial(&server).await;
    caller.call.close().await;
    server.sessions(0).await;
}

#[tokio::test]
async fn bad_offers_are_refused() {
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
async fn a_full_touses_calls_at_once() {
    let server = Running::start(Script { slots: 0, ..Script::default() }).await;
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (status, body) = post(&server, "/v1/realtime/calls", "application/sdp", &sdp).await;
    assert_eq!(status, 503);
    assert!(body.contains("session_limit_reached"), "{body}");
}
