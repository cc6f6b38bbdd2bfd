//! Backchannels and interruptions over the whole path of a call: the caller's speech, the sent audio and the client's
//! events, on a clock that stands still while any task is busy.

use bytes::Bytes;
use repartee_engine_api::SpeechEngine as _;
use repartee_media::opus::{OpusDecoder, OpusEncoder};
use repartee_media::sound_file;
use repartee_realtime::SessionSetup;
use repartee_testkit::scripted::{INPUT_RATE, OUTPUT_RATE, Script, ScriptedEngine, VoiceTrace};
use repartee_testkit::signal::level_db;
use serde_json::Value;

use super::*;
use crate::call::CallServices;

const TYPES: PayloadTypes = PayloadTypes { opus: 111, red: None, telephone_event: Some(110) };
const SETTINGS: TransportSettings = TransportSettings {
    input_rate: INPUT_RATE,
    output_rate: OUTPUT_RATE,
    stalled_after: Duration::from_secs(10),
    receiver_buffer: Duration::from_millis(60),
};
/// Longest wait of these tests, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Audio that the server sent, and events that the client got.
#[derive(Debug, Default)]
struct Report {
    events: Vec<Value>,
    /// The sent audio, with its gaps.
    sound: Vec<f32>,
}

impl Report {
    fn kinds(&self) -> Vec<&str> {
        self.events.iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    /// Duration of the sent voice, in ms: audio lost beside a pause would otherwise look like a shorter pause.
    fn spoken_ms(&self) -> f64 {
        let loud = self.sound.chunks(24).filter(|piece| level_db(piece) > -20.0);
        loud.count() as f64
    }
}

fn recording(name: &str) -> Vec<f32> {
    let path = format!("{}/../tests/interruptions/{name}", env!("CARGO_MANIFEST_DIR"));
    sound_file::read(&std::fs::read(path).unwrap(), INPUT_RATE, Duration::from_secs(60)).unwrap()
}

/// Requests an answer of four seconds, and speaks `said` once `after` of it was sent. Ends with the event `last`.
async fn over_an_answer(said: &[f32], after: Duration, last: &str) -> Report {
    let engine = ScriptedEngine::new(Script { frames: 50, ..Script::default() });
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let setup = SessionSetup {
        session_id: "sess_simulated".into(),
        stem: "simulated".into(),
        seed: 1,
        model: engine.info().clone(),
        delivery: Delivery::Paced,
        expires_at: None,
        configuration: None,
        warnings: Vec::new(),
    };
    let (to_transport, events) = mpsc::channel(256);
    let (outgoing, from_transport) = mpsc::channel(FRAME_QUEUE);
    let mut packets = PacketSource::new(PacketEncoder::new(OUTPUT_RATE, TYPES).unwrap(), from_transport);
    let (sent_events, mut told) = mpsc::channel(1_024);
    let transport =
        WebRtcTransport::with_queues(events, outgoing, TYPES, SETTINGS, metrics.clone(), |mut queue, _, publisher| {
            tokio::spawn(async move {
                while let Some(OutboundMessage::Event(kind, text)) = queue.recv().await {
                    publisher.publish(kind, &text);
                    sent_events.send(serde_json::from_str::<Value>(&text).unwrap()).await.unwrap();
                }
            });
        })
        .unwrap();
    let services = CallServices::new(metrics, None);
    let session = engine.open().unwrap();
    let never = std::future::pending::<()>();
    let call = tokio::spawn(crate::call::run(transport, session, setup, services, never, std::future::pending()));

    let create = r#"{"type": "response.create"}"#;
    to_transport.try_send(PeerEvent::Message(create.into())).unwrap();
    let mut report = Report::default();
    let (mut encoder, mut decoder) = (OpusEncoder::new(INPUT_RATE).unwrap(), OpusDecoder::new(OUTPUT_RATE).unwrap());
    let (mut sequence, mut spoken, mut begun) = (0_u16, 0, None::<Instant>);
    let mut clock = tokio::time::interval(FRAME);
    let begin = now();
    while report.events.last().is_none_or(|event| event["type"] != last) {
        assert!(now() - begin < PATIENCE, "{last} in {:?}", report.kinds());
        tokio::select! {
            biased;
            Some(event) = told.recv() => {
                assert_ne!(event["type"], "error", "{event}");
                if event["type"] == "output_audio_buffer.started" {
                    begun = Some(now());
                }
                report.events.push(event);
            }
            Some(OutputPacket { payload, gap, .. }) = packets.next(LinkQuality::default) => {
                report.sound.resize(report.sound.len() + gap.as_millis() as usize * 24, 0.0);
                report.sound.extend(decoder.decode(&payload).unwrap());
            }
            _ = clock.tick() => {
                let mut frame = vec![0.0; INPUT_RATE as usize / 50];
                if begun.is_some_and(|begun| now() - begun >= after) {
                    let rest = &said[said.len().min(spoken)..];
                    let length = rest.len().min(frame.len());
                    frame[..length].copy_from_slice(&rest[..length]);
                    spoken += frame.len();
                }
                let payload: Bytes = encoder.encode(&frame).unwrap().payload;
                let (timestamp, payload_type, arrival) = (u32::from(sequence) * 960, TYPES.opus, now());
                let (ssrc, marker) = (1, false);
                let audio = PeerEvent::Audio { ssrc, sequence, timestamp, marker, payload_type, payload, arrival };
                to_transport.try_send(audio).unwrap();
                sequence += 1;
            }
        }
    }
    drop(to_transport);
    call.await.unwrap();
    report
}

/// Asserts that the four seconds of an uninterrupted answer are whole, but for the codec's look-ahead.
fn assert_whole(report: &Report, trace: VoiceTrace) {
    assert!((3_985.0..=4_015.0).contains(&report.spoken_ms()), "{} ms of 4000", report.spoken_ms());
    assert!(trace.first_ms.abs() < 10.0 && trace.last_ms > 3_950.0 && trace.missing_ms < 10.0, "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn backchannels_delay_the_answer_alone() {
    for name in ["yeah-sarah.wav", "mhm-isabella.wav", "uh-huh-daniel.wav"] {
        let report =
            over_an_answer(&recording(name), Duration::from_millis(1_500), "output_audio_buffer.stopped").await;
        let trace = VoiceTrace::of(&report.sound).unwrap();
        assert_whole(&report, trace);
        // It was paused, but not longer than a decision takes.
        assert!((100.0..=520.0).contains(&trace.added_ms), "{name}: {trace:?}");
        let told = report.kinds();
        assert!(!told.iter().any(|kind| kind.starts_with("input_audio") || kind.ends_with("cleared")), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_callers_pause_nothing() {
    let report = over_an_answer(&[], Duration::from_millis(1_500), "output_audio_buffer.stopped").await;
    let trace = VoiceTrace::of(&report.sound).unwrap();
    assert_whole(&report, trace);
    assert!(trace.added_ms < 10.0, "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn interruptions_stop_the_answer_in_time() {
    let after = Duration::from_millis(1_500);
    let report = over_an_answer(&recording("caller-no.wav"), after, "conversation.item.truncated").await;
    let told = report.kinds();
    let place = |kind| told.iter().position(|told| *told == kind).unwrap_or_else(|| panic!("{kind} in {told:?}"));
    assert!(place("input_audio_buffer.speech_started") < place("output_audio_buffer.cleared"), "{told:?}");
    assert!(place("output_audio_buffer.cleared") < place("conversation.item.truncated"), "{told:?}");
    // All sent audio was heard, because the pause was longer than any packet's flight.
    let left_ms = VoiceTrace::of(&report.sound).unwrap().last_ms;
    let heard_ms = report.events.last().unwrap()["audio_end_ms"].as_f64().unwrap();
    assert!((left_ms - heard_ms).abs() < 30.0, "{heard_ms} ms of {left_ms}");
    assert!((1_500.0..1_750.0).contains(&left_ms), "{left_ms}");
    // The turn begins with the voice, not with its announcement.
    let started = &report.events[place("input_audio_buffer.speech_started")];
    assert!(started["audio_start_ms"].as_f64().unwrap() < 1_600.0, "{started}");
}
