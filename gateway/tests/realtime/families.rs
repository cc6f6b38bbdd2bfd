//! The families that speak, one a row: each one's small checkpoint answers over both transports, with both ways of handing
//! items from stage to stage.

use std::net::SocketAddr;

use repartee::transport::webrtc::{PeerEvent, WebRtcCall, WebRtcSettings, offer};
use repartee_engine::{Engine, EngineConfig, HandOff};
use repartee_gateway_testkit::{PATIENCE, connect, find, fixture, http, serve_engine, sound};
use repartee_media::opus::OpusDecoder;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Families, and the fixtures whose checkpoints are served.
const FAMILIES: [(&str, &str); 12] = [
    ("Qwen3-Omni", "dense"),
    ("Qwen2.5-Omni", "omni25"),
    ("Qwen3-TTS", "tts_custom"),
    ("LFM2.5-Audio", "lfm2_audio"),
    ("LFM2-Audio", "lfm2_mimi"),
    ("CosyVoice3", "cosyvoice3"),
    ("MiMo-Audio", "mimo_audio"),
    ("Fun-Audio-Chat", "fun_audio_chat"),
    ("Ming-omni-tts", "ming_tts"),
    ("Ming-flash-omni's talker", "ming_flash"),
    ("Covo-Audio", "covo_audio"),
    ("Dynin-Omni", "dynin_omni"),
];

/// Question of a caller, as text, so that families without audio input have a row too.
const QUESTION: &str = "the quick brown fox";
/// Most tokens of an answer: random weights seldom end one.
const MAX_TOKENS: u32 = 8;

/// Times that the question is asked: random weights end some answers before their first sound, so one of these has to have
/// some.
const ASKED: usize = 4;
/// Least sample that is no silence: what a decoder makes of it is below.
const SOUND: f32 = 1e-3;

/// Events that ask the question.
fn question() -> [Value; 2] {
    let content = json!([{"type": "input_text", "text": QUESTION}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    let response = json!({"type": "response.create", "response": {"max_output_tokens": MAX_TOKENS}});
    [json!({"type": "conversation.item.create", "item": item}), response]
}

/// Samples of the answers over a websocket.
async fn over_websocket(address: SocketAddr) -> usize {
    let mut client = connect(address).await;
    let mut samples = 0;
    for _ in 0..ASKED {
        for event in question() {
            client.send(event).await;
        }
        let events = client.until("response.done").await;
        let status = &find(&events, "response.done")["response"]["status"];
        assert!(["completed", "incomplete"].contains(&status.as_str().unwrap()), "{status}");
        samples += sound(&events).len();
    }
    samples
}

/// Samples of the answers over WebRTC that are no silence.
async fn over_webrtc(address: SocketAddr) -> usize {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let headers = [("content-type", "application/sdp")];
    let answer = http::send(address, "POST", "/v1/realtime/calls", &headers, sdp.as_bytes()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let call = dialing.accept(&answer.body).await.unwrap();
    let mut caller = Caller { call, decoder: OpusDecoder::new(24_000).unwrap(), samples: 0, stopped: false };
    caller.hear_until("session.created").await;
    for _ in 0..ASKED {
        for event in question() {
            caller.call.send_message(&event.to_string()).await.unwrap();
        }
        caller.hear_until("response.done").await;
    }
    if !caller.stopped {
        caller.hear_until("output_audio_buffer.stopped").await;
    }
    caller.samples
}

struct Caller {
    call: WebRtcCall,
    decoder: OpusDecoder,
    /// Samples so far that are no silence.
    samples: usize,
    /// True once an answer has been played to its end.
    stopped: bool,
}

impl Caller {
    /// Receives up to an event of this type.
    async fn hear_until(&mut self, kind: &str) {
        loop {
            match timeout(PATIENCE, self.call.events.recv()).await.expect(kind).expect(kind) {
                PeerEvent::Message(text) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    assert_ne!(event["type"], "error", "{event}");
                    self.stopped |= event["type"] == "output_audio_buffer.stopped";
                    if event["type"] == kind {
                        return;
                    }
                }
                PeerEvent::Audio { payload, .. } => {
                    let decoded = self.decoder.decode(&payload).unwrap();
                    self.samples += decoded.iter().filter(|sample| sample.abs() > SOUND).count();
                }
                PeerEvent::Connected | PeerEvent::ChannelOpen => {}
                PeerEvent::Closed => panic!("closed before {kind}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_family_answers_over_both_transports() {
    for (name, checkpoint) in FAMILIES {
        for hand_off in [HandOff::AsyncChunk, HandOff::FullPayload] {
            let mut config = EngineConfig { hand_off, session_tokens: 512, ..EngineConfig::default() };
            config.accept_licence.extend((checkpoint == "covo_audio").then(|| "covo-audio".to_owned()));
            let (address, server) = serve_engine(Engine::start(fixture(checkpoint), &config).unwrap()).await;
            assert!(over_websocket(address).await > 0, "{name}, {hand_off:?}: no sound over a websocket");
            assert!(over_webrtc(address).await > 0, "{name}, {hand_off:?}: no sound over WebRTC");
            server.abort();
        }
    }
}
