//! Backchannels, interruptions and echoes over the whole path of a call: the caller's speech, the sent audio and the client's
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
async fn over_an_answer(said: &[f32], after: Duration, last: &str, cancels_echo: bool) -> Report {
    let mut spoken = 0;
    let microphone = |_: &[f32], begun: Option<Duration>| {
        let mut frame = vec![0.0; INPUT_RATE as usize / 50];
        if begun.is_some_and(|begun| begun >= after) {
            let rest = &said[said.len().min(spoken)..];
            let length = rest.len().min(frame.len());
            frame[..length].copy_from_slice(&rest[..length]);
            spoken += frame.len();
        }
        frame
    };
    listen(Script { frames: 50, ..Script::default() }, cancels_echo, &[last], microphone).await
}

/// Requests an answer. `microphone` returns the next 20 ms; it gets the sound that was sent by now, at its time, and the time since the
/// answer began. Ends with one of the events `last`.
async fn listen(
    script: Script,
    cancels_echo: bool,
    last: &[&str],
    mut microphone: impl FnMut(&[f32], Option<Duration>) -> Vec<f32>,
) -> Report {
    let rate = script.output_rate;
    let engine = ScriptedEngine::new(script);
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
    let mut packets = PacketSource::new(PacketEncoder::new(rate, TYPES).unwrap(), from_transport);
    let (sent_events, mut told) = mpsc::channel(1_024);
    let settings = TransportSettings { output_rate: rate, ..SETTINGS };
    let transport =
        WebRtcTransport::with_queues(events, outgoing, TYPES, settings, metrics.clone(), |mut queue, _, publisher| {
            tokio::spawn(async move {
                while let Some(OutboundMessage::Event(kind, text)) = queue.recv().await {
                    publisher.publish(kind, &text);
                    sent_events.send(serde_json::from_str::<Value>(&text).unwrap()).await.unwrap();
                }
            });
        })
        .unwrap();
    let services = CallServices { cancels_echo, ..CallServices::new(metrics, None) };
    let session = engine.open().unwrap();
    let never = std::future::pending::<()>();
    let call = tokio::spawn(crate::call::run(transport, session, setup, services, never, std::future::pending()));

    let create = r#"{"type": "response.create"}"#;
    to_transport.try_send(PeerEvent::Message(create.into())).unwrap();
    let mut report = Report::default();
    let (mut encoder, mut decoder) = (OpusEncoder::new(INPUT_RATE).unwrap(), OpusDecoder::new(rate).unwrap());
    let (mut sequence, mut aired, mut begun) = (0_u16, Vec::new(), None::<Instant>);
    let mut clock = tokio::time::interval(FRAME);
    let begin = now();
    while report.events.last().is_none_or(|event| !last.contains(&event["type"].as_str().unwrap())) {
        assert!(now() - begin < PATIENCE, "{last:?} in {:?}", report.kinds());
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
                let samples = decoder.decode(&payload).unwrap();
                let at = (now() - begin).as_millis() as usize * rate as usize / 1_000;
                aired.resize(at.max(aired.len()), 0.0);
                aired.extend_from_slice(&samples);
                report.sound.extend(samples);
            }
            _ = clock.tick() => {
                let frame = microphone(&aired, begun.map(|begun| now() - begun));
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
        // The canceller takes the softest of them for an echo of so loud a tone: then nothing pauses.
        let after = Duration::from_millis(1_500);
        let report = over_an_answer(&recording(name), after, "output_audio_buffer.stopped", false).await;
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
    let report = over_an_answer(&[], Duration::from_millis(1_500), "output_audio_buffer.stopped", true).await;
    let trace = VoiceTrace::of(&report.sound).unwrap();
    assert_whole(&report, trace);
    assert!(trace.added_ms < 10.0, "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn interruptions_stop_the_answer_in_time() {
    let after = Duration::from_millis(1_500);
    let report = over_an_answer(&recording("caller-no.wav"), after, "conversation.item.truncated", true).await;
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

/// Plays an answer of eight seconds beside the microphone, which hears it `delay_ms` later and 10 dB softer in a small room. `caller`
/// speaks 2.5 s after its beginning. Returns true if the answer was interrupted.
async fn is_interrupted(delay_ms: usize, caller: &[f32], cancels_echo: bool) -> bool {
    let levelled = |samples: &[f32]| -> Vec<f32> {
        let level = 10_f32.powf(level_db(samples) / 20.0);
        samples.iter().map(|sample| 0.1 * sample / level).collect()
    };
    let answer = Arc::new(levelled(&recording("answer-harbour.wav")));
    let caller = if caller.is_empty() { Vec::new() } else { levelled(caller) };
    let script = Script { frames: 100, output_rate: INPUT_RATE, sound: Some(answer), ..Script::default() };
    let mut at = 0;
    let microphone = |aired: &[f32], begun: Option<Duration>| {
        let said = begun.and_then(|begun| begun.checked_sub(Duration::from_millis(2_500)));
        let said = said.map(|said| said.as_millis() as usize * 16);
        let frame = (at..at + INPUT_RATE as usize / 50).map(|now| {
            let heard = [(0, 0.8), (9, 0.4), (37, 0.3), (90, 0.2)]
                .into_iter()
                .filter_map(|(ms, gain)| Some(gain * aired.get(now.checked_sub((delay_ms + ms) * 16)?)?));
            let voice = said.and_then(|said| caller.get(said + now - at)).unwrap_or(&0.0);
            0.316 * heard.sum::<f32>() + voice + if now % 2 == 0 { 3e-4 } else { -3e-4 }
        });
        let frame = frame.collect();
        at += INPUT_RATE as usize / 50;
        frame
    };
    let last = ["output_audio_buffer.stopped", "output_audio_buffer.cleared"];
    let report = listen(script, cancels_echo, &last, microphone).await;
    report.kinds().contains(&"output_audio_buffer.cleared")
}

#[tokio::test(start_paused = true)]
async fn its_own_echo_interrupts_no_first_answer() {
    for delay_ms in [60, 150, 300, 500, 700] {
        assert!(!is_interrupted(delay_ms, &[], true).await, "{delay_ms} ms");
    }
    assert!(is_interrupted(500, &[], false).await, "the echo tells nothing");
}

#[tokio::test(start_paused = true)]
async fn callers_interrupt_over_an_echo() {
    for delay_ms in [150, 500] {
        for caller in ["caller-else.wav", "caller-wait.wav"] {
            assert!(is_interrupted(delay_ms, &recording(caller), true).await, "{caller}, {delay_ms} ms");
        }
    }
}
