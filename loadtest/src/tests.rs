//! Callers against a scripted server whose times are known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::transport::webrtc::{Call, PeerEvent, UdpMux, WebRtcSettings, answer};
use repartee_media::opus::{FRAME, OpusEncoder};
use repartee_media::{pcm, wav};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::speech::{FRAME_SAMPLES, RATE, Utterance};
use crate::turn::CallLog;
use crate::{Plan, webrtc, websocket, wire};

/// From commit to first sound, as the scripted server answers.
const THINKING: Duration = Duration::from_millis(150);
/// What a machine under load may add.
const SLACK: Duration = Duration::from_millis(120);

fn tone() -> Vec<f32> {
    (0..FRAME_SAMPLES).map(|i| 0.3 * (i as f32 * 0.2).sin()).collect()
}

async fn plan(router: Router) -> Plan {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("question.wav");
    let question: Vec<f32> = (0..6_400).map(|i| 0.25 * (i as f32 * 0.1).sin()).collect();
    std::fs::write(&path, wav::encode(&question, 16_000).unwrap()).unwrap();
    Plan {
        server: wire::Server::new(&url, None).unwrap(),
        utterances: vec![Utterance::load(&path).unwrap()],
        turns: 2,
        pause: Duration::from_millis(50),
        interrupt_after: None,
        timeout: Duration::from_secs(10),
    }
}

/// Two turns, answered in the time of the script.
fn check(log: &CallLog) {
    assert_eq!(log.errors.len(), 0, "{:?}", log.errors);
    assert_eq!((log.turns.len(), log.setup.len()), (2, 1));
    for turn in &log.turns {
        assert!((THINKING..THINKING + SLACK).contains(&turn.from_commit), "{turn:?}");
        assert!(turn.from_speech_end >= turn.from_commit);
        assert_eq!(turn.underruns, 0, "{turn:?}");
    }
    // 400 ms of speech in each turn.
    assert!(log.lateness.len() >= 40);
}

async fn serve_socket(mut socket: WebSocket) {
    let event = |value: Value| Message::text(value.to_string());
    socket.send(event(json!({"type": "session.created"}))).await.unwrap();
    let mut heard = 0;
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Text(text) = message else { continue };
        let value: Value = serde_json::from_str(&text).unwrap();
        match value["type"].as_str().unwrap() {
            "session.update" => {
                assert!(value["session"]["audio"]["input"]["turn_detection"].is_null());
                socket.send(event(json!({"type": "session.updated"}))).await.unwrap();
            }
            "input_audio_buffer.append" => heard += STANDARD.decode(value["audio"].as_str().unwrap()).unwrap().len(),
            "input_audio_buffer.commit" => {
                assert_eq!(heard, 9_600 * 2, "400 ms of 16-bit samples at 24 kHz");
                heard = 0;
            }
            "response.create" => {
                tokio::time::sleep(THINKING).await;
                for sound in [vec![0.0; FRAME_SAMPLES], tone(), tone()] {
                    let delta = STANDARD.encode(pcm::encode_i16le(&sound));
                    socket.send(event(json!({"type": "response.output_audio.delta", "delta": delta}))).await.unwrap();
                }
                let done = json!({"type": "response.done", "response": {"status": "completed"}});
                socket.send(event(done)).await.unwrap();
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_websocket_caller_measures_from_its_own_commit() {
    let route = get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(serve_socket) });
    let plan = plan(Router::new().route("/v1/realtime", route)).await;
    let mut log = CallLog::default();
    websocket::call(&plan, 0, &mut log).await.unwrap();
    check(&log);
}

/// Commits 200 ms after the first packets of a turn have stopped being loud, and answers.
async fn serve_call(mut call: Call) {
    let mut encoder = OpusEncoder::new(RATE).unwrap();
    let mut decoder = repartee_media::opus::OpusDecoder::new(RATE).unwrap();
    let mut last_voice = None::<Instant>;
    while let Some(event) = call.events.recv().await {
        let PeerEvent::Audio { payload, arrival, .. } = event else { continue };
        if decoder.decode(&payload).unwrap().iter().any(|sample| sample.abs() > 0.05) {
            last_voice = Some(arrival);
        }
        if last_voice.is_none_or(|voice| arrival - voice < Duration::from_millis(200)) {
            continue;
        }
        last_voice = None;
        call.send_message(r#"{"type": "input_audio_buffer.committed", "item_id": "x"}"#).await.unwrap();
        tokio::time::sleep(THINKING).await;
        let mut ticks = tokio::time::interval(FRAME);
        for _ in 0..20 {
            ticks.tick().await;
            call.send_audio(encoder.encode(&tone()).unwrap().payload, FRAME).await.unwrap();
        }
        call.send_message(r#"{"type": "output_audio_buffer.stopped", "response_id": "x"}"#).await.unwrap();
    }
}

#[tokio::test]
async fn a_webrtc_caller_measures_from_the_servers_commit() {
    let port = Arc::new(UdpMux::bind(WebRtcSettings::default()).unwrap());
    let route = post(move |offer: String| async move {
        let (sdp, call) = answer(&offer, &port, None).await.unwrap();
        tokio::spawn(serve_call(call));
        (StatusCode::CREATED, sdp)
    });
    let plan = plan(Router::new().route("/v1/realtime/calls", route)).await;
    let mut log = CallLog::default();
    webrtc::call(&plan, 0, &mut log).await.unwrap();
    check(&log);
    assert!(log.turns.iter().all(|turn| turn.from_speech_end > THINKING + Duration::from_millis(150)));
}

/// Speaks without end, once asked, until somebody speaks into it; then answers that and is done.
async fn serve_patient_call(mut call: Call) {
    let mut encoder = OpusEncoder::new(RATE).unwrap();
    let mut decoder = repartee_media::opus::OpusDecoder::new(RATE).unwrap();
    let (mut last_voice, mut speaking, mut interrupted) = (None::<Instant>, false, false);
    let mut ticks = tokio::time::interval(FRAME);
    let mut left = usize::MAX;
    loop {
        tokio::select! {
            _ = ticks.tick() => if speaking {
                call.send_audio(encoder.encode(&tone()).unwrap().payload, FRAME).await.unwrap();
                left -= 1;
                if left == 0 {
                    call.send_message(r#"{"type": "output_audio_buffer.stopped", "response_id": "x"}"#).await.unwrap();
                    (speaking, interrupted, left) = (false, false, usize::MAX);
                }
            },
            event = call.events.recv() => {
                let Some(event) = event else { return };
                let PeerEvent::Audio { payload, arrival, .. } = event else { continue };
                if decoder.decode(&payload).unwrap().iter().any(|sample| sample.abs() > 0.05) {
                    last_voice = Some(arrival);
                    if std::mem::take(&mut speaking) {
                        interrupted = true;
                        let cleared = r#"{"type": "output_audio_buffer.cleared", "response_id": "x"}"#;
                        call.send_message(cleared).await.unwrap();
                    }
                }
                if last_voice.is_some_and(|voice| arrival - voice >= Duration::from_millis(200)) {
                    last_voice = None;
                    call.send_message(r#"{"type": "input_audio_buffer.committed", "item_id": "x"}"#).await.unwrap();
                    speaking = true;
                    left = if interrupted { 10 } else { usize::MAX };
                }
            }
        }
    }
}

#[tokio::test]
async fn barge_in_measures_time_to_silence() {
    let port = Arc::new(UdpMux::bind(WebRtcSettings::default()).unwrap());
    let route = post(move |offer: String| async move {
        let (sdp, call) = answer(&offer, &port, None).await.unwrap();
        tokio::spawn(serve_patient_call(call));
        (StatusCode::CREATED, sdp)
    });
    let mut plan = plan(Router::new().route("/v1/realtime/calls", route)).await;
    plan.interrupt_after = Some(Duration::from_millis(300));
    let mut log = CallLog::default();
    webrtc::call(&plan, 0, &mut log).await.unwrap();
    assert_eq!(log.errors.len(), 0, "{:?}", log.errors);
    assert_eq!((log.turns.len(), log.barge_ins.len()), (2, 2));
    assert!(log.barge_ins.iter().all(|after| *after < SLACK), "{:?}", log.barge_ins);
}

#[tokio::test]
async fn a_refusal_is_an_error_with_its_code() {
    let refuse = || async {
        let error = json!({"error": {"code": "session_limit_reached", "message": "all slots are taken"}});
        (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
    };
    let plan = Arc::new(plan(Router::new().route("/v1/realtime/calls", post(refuse))).await);
    let error = webrtc::call(&plan, 0, &mut CallLog::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "the call was refused: 503 Service Unavailable session_limit_reached");
}
