//! Heap allocations of a packet's path through a call.

use std::future::pending;
use std::time::Duration;

use repartee_engine_api::{Event, ResponseId, SpeechEngine as _};
use repartee_media::opus::{OpusDecoder, OpusEncoder};
use repartee_protocol::session::AudioFormat;
use repartee_realtime::{Delivery, SessionInput};
use repartee_testkit::memory::{CountScope, counts};
use repartee_testkit::scripted::{Script, ScriptedEngine};
use repartee_testkit::signal::sine;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

/// Transport that plays nothing.
pub(super) struct Silent;

impl Transport for Silent {
    const DELIVERY: Delivery = Delivery::Paced;
    const NAME: &'static str = "test";

    async fn next(&mut self, _: bool) -> TransportEvent {
        pending().await
    }

    fn outbound(&self) -> mpsc::Sender<OutboundMessage> {
        mpsc::channel(1).0
    }

    fn begin_audio(&mut self, _: ResponseId, _: AudioFormat) -> Result<(), TransportError> {
        Ok(())
    }

    fn push_audio(&mut self, _: ResponseId, _: &[f32]) -> Result<Vec<u8>, TransportError> {
        Ok(Vec::new())
    }

    fn end_audio(&mut self, _: ResponseId) -> Result<Vec<u8>, TransportError> {
        Ok(Vec::new())
    }

    fn clear_audio(&mut self) {}

    fn has_capacity(&self) -> bool {
        true
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        None
    }

    fn last_input(&self) -> Option<Instant> {
        None
    }
}

/// Creates a call over [`Silent`] without turn detection.
fn call() -> CallTask {
    let model = ScriptedEngine::new(Script::default()).info().clone();
    let (session_id, stem, delivery) = ("sess_1".into(), "s".into(), Delivery::Paced);
    let setup = SessionSetup {
        session_id,
        stem,
        seed: 1,
        model,
        delivery,
        expires_at: None,
        configuration: None,
        warnings: Vec::new(),
    };
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let (mut call, effects) = CallTask::new(setup, CallServices::new(metrics, None));
    call.apply(effects, &mut Silent);
    let update = json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": null}}}});
    call.on_event(TransportEvent::Event(update.to_string()), &mut Silent);
    call
}

/// Returns the mean allocations of `step` over `count` runs, after as many warm-up runs.
fn allocations(count: u64, mut step: impl FnMut()) -> f64 {
    (0..count).for_each(|_| step());
    let before = counts(CountScope::Thread).allocations;
    (0..count).for_each(|_| step());
    (counts(CountScope::Thread).allocations - before) as f64 / count as f64
}

/// Allocations for 20 ms of the caller's speech, as a packet decoded at `rate`.
fn for_input(rate: u32) -> f64 {
    let mut encoder = OpusEncoder::new(rate).unwrap();
    let packet = encoder.encode(&sine(440.0, rate, rate as usize / 50)).unwrap().payload;
    let (mut call, mut decoder) = (call(), OpusDecoder::new(rate).unwrap());
    allocations(200, || {
        let samples = decoder.decode(&packet).unwrap();
        call.on_event(TransportEvent::Audio { samples, rate }, &mut Silent);
        while call.input_pipeline.has_more() {
            call.process_input(&mut Silent);
        }
        call.commands.clear();
        call.outbound.clear();
    })
}

#[test]
fn input_packet_takes_few_allocations() {
    // One for the decoded samples; every 80 ms a slice for the engine with the lists that hold it.
    let at_the_models_rate = for_input(16_000);
    assert!(at_the_models_rate <= 2.0, "{at_the_models_rate} allocations a packet");
    // One more for the resampled samples.
    let at_another_rate = for_input(24_000);
    assert!(at_another_rate <= 3.0, "{at_another_rate} allocations a packet");
}

#[test]
fn output_frame_takes_few_allocations() {
    let mut call = call();
    call.on_event(TransportEvent::Event(json!({"type": "response.create"}).to_string()), &mut Silent);
    let response = call.commands.iter().find_map(|command| match command {
        Command::Respond(respond) => Some(respond.response),
        _ => None,
    });
    let response = response.expect("a response is started");
    let frame = allocations(200, || {
        let samples = vec![0.1; 1_920];
        let event = Event::Audio { response, frame: 0, samples, stamps: None };
        call.input(SessionInput::Engine(event), &mut Silent);
        call.commands.clear();
        call.outbound.clear();
    });
    assert!(frame <= 7.0, "{frame} allocations a codec frame");
}
