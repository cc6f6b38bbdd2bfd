//! Ways in over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::transport::webrtc::{PeerEvent, WebRtcSettings, offer};
use repartee_gateway_testkit::http::{send, send_form};
use repartee_gateway_testkit::{Client, PATIENCE};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::connect_async;

use super::{Doors, Mood, SAID, SORRY, heard, message, refused};

pub(super) async fn models(doors: &Doors) {
    let before = doors.count();
    let list = send(doors.address(), "GET", "/v1/models", &[], b"").await.json();
    let parts = &list["data"][0]["repartee"];
    for (capability, expected) in
        [("hears", true), ("transcription", true), ("answers", true), ("tools", true), ("audio_output", true)]
    {
        assert_eq!(parts[capability], expected, "{capability}: {parts}");
    }
    assert_eq!(parts["default_voice"], "ada", "{parts}");
    assert_eq!(doors.count(), before, "the server is not asked");
}

pub(super) async fn transcription_session(doors: &Doors) {
    let before = doors.count();
    let url = format!("ws://{}/v1/realtime?intent=transcription", doors.address());
    let mut caller = Client { socket: connect_async(url).await.unwrap().0 };
    caller.expect("session.created").await;
    caller.send(json!({"type": "session.update", "session": {"type": "transcription", "audio": {"input": {"turn_detection": null}}}})).await;
    caller.until("session.updated").await;
    assert!(!heard(&mut caller).await.1.trim().is_empty());
    let error = refused(&mut caller, json!({"type": "response.create"})).await;
    assert_eq!(error["code"], "not_in_transcription_session", "{error}");
    assert_eq!(doors.count(), before, "nothing is asked");
}

pub(super) async fn chat(doors: &Doors) {
    let audio = STANDARD.encode(include_bytes!("../../../testdata/question.wav"));
    let heard = json!([{"type": "input_audio", "input_audio": {"data": audio, "format": "wav"}}]);
    for content in [json!("the lazy dog"), heard] {
        let mut body = json!({"messages": [{"role": "user", "content": content}]});
        let reply = doors.post("/v1/chat/completions", &body).await;
        assert_eq!(reply.json()["choices"][0]["message"]["content"], SAID, "{reply:?}");
        assert!(!doors.asked()[0]["content"].as_str().unwrap().trim().is_empty(), "{:?}", doors.asked());
        doors.set(Mood::Fails);
        let reply = doors.post("/v1/chat/completions", &body).await;
        assert_eq!((reply.status, &*reply.code()), (502, "language_model_failed"));
        (body["modalities"], body["audio"]) = (json!(["text", "audio"]), json!({"voice": "ada", "format": "pcm16"}));
        let reply = doors.post("/v1/chat/completions", &body).await;
        assert_eq!(reply.json()["choices"][0]["message"]["audio"]["transcript"], SORRY, "{reply:?}");
        doors.set(Mood::Answers);
    }
}

pub(super) async fn speech(doors: &Doors) {
    let before = doors.count();
    doors.set(Mood::Fails);
    let body = json!({"model": "any", "voice": "grace", "input": "The dog.", "response_format": "pcm"});
    let reply = doors.post("/v1/audio/speech", &body).await;
    assert!(reply.status == 200 && reply.complete && reply.bytes.len() > 480, "{:?}", reply.head);
    assert_eq!(doors.count(), before, "nothing is asked");
    let reply = doors.post("/v1/audio/speech", &json!({"input": "", "voice": "grace", "model": "any"})).await;
    assert_eq!((reply.status, reply.json()["error"]["param"].clone()), (400, json!("input")), "{reply:?}");
}

pub(super) async fn files(doors: &Doors) {
    let before = doors.count();
    let file = include_bytes!("../../../testdata/question.wav");
    for path in ["/v1/audio/transcriptions", "/v1/audio/translations"] {
        let reply = send_form(doors.address(), path, &[("file", file), ("model", b"any")]).await;
        assert!(reply.status == 200 && !reply.json()["text"].as_str().unwrap().is_empty(), "{path}: {reply:?}");
        let reply = send_form(doors.address(), path, &[("file", b""), ("model", b"any")]).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_audio"), "{path}: {reply:?}");
    }
    assert_eq!(doors.count(), before, "nothing is asked");
}

pub(super) async fn client_secrets(doors: &Doors) {
    let reply = doors
        .post("/v1/realtime/client_secrets", &json!({"session": {"type": "realtime", "instructions": "be brief"}}))
        .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let wrong = json!({"session": {"type": "realtime", "max_output_tokens": -1}});
    let reply = doors.post("/v1/realtime/client_secrets", &wrong).await;
    assert_eq!((reply.status, reply.json()["error"]["param"].clone()), (400, json!("session.max_output_tokens")));
}

pub(super) async fn webrtc(doors: &Doors) {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let headers = [("content-type", "application/sdp")];
    let reply = send(doors.address(), "POST", "/v1/realtime/calls", &headers, sdp.as_bytes()).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let mut call = dialing.accept(&reply.body).await.unwrap();
    for (mood, said) in [(Mood::Answers, SAID), (Mood::Fails, SORRY)] {
        doors.set(mood);
        let (mut packets, mut written) = (0, None);
        let mut asked = mood == Mood::Fails;
        if asked {
            call.send_message(&message("Hello?").to_string()).await.unwrap();
            call.send_message(r#"{"type": "response.create"}"#).await.unwrap();
        }
        loop {
            let event = timeout(PATIENCE, call.events.recv()).await.expect("an event in time").unwrap();
            let PeerEvent::Message(text) = event else {
                packets += usize::from(matches!(event, PeerEvent::Audio { .. }));
                continue;
            };
            let event: Value = serde_json::from_str(&text).unwrap();
            if event["type"] == "session.created" && !asked {
                asked = true;
                call.send_message(&message("Hello?").to_string()).await.unwrap();
                call.send_message(r#"{"type": "response.create"}"#).await.unwrap();
            }
            if event["type"] == "response.output_audio_transcript.done" {
                written = Some(event["transcript"].clone());
            }
            if event["type"] == "output_audio_buffer.stopped" {
                break;
            }
        }
        assert!(packets > 0 && written == Some(json!(said)), "{packets} packets, {written:?}");
    }
}
