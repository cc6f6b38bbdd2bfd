//! The idle timeout.

use std::time::Duration;

use repartee_engine_api::Command;
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, PlayoutReport, SessionInput};
use super::Harness;

fn with_idle_timeout(delivery: Delivery) -> Harness {
    let mut harness = Harness::new(delivery);
    harness.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5_000}}}}));
    harness
}

#[test]
fn idle_timeout_fires_once() {
    let mut harness = with_idle_timeout(Delivery::Unpaced);
    harness.input_audio(10_000);
    assert_eq!(harness.last_respond(), None, "the timeout starts after a response");
    harness.whole_response("How are you?", 2_000);
    harness.clear();
    harness.input_audio(4_000);
    assert_eq!(harness.event_types(), [""; 0], "the client still plays");
    harness.now += Duration::from_secs(2);
    harness.input_audio(4_980);
    assert_eq!(harness.event_types(), [""; 0]);
    harness.input_audio(80);
    let triggered = harness.find("input_audio_buffer.timeout_triggered");
    assert_eq!((&triggered["audio_start_ms"], &triggered["audio_end_ms"]), (&json!(14_020), &json!(19_020)));
    let id = triggered["item_id"].clone();
    assert_eq!(harness.find("input_audio_buffer.committed")["item_id"], id);
    assert_eq!(harness.find("conversation.item.done")["item"]["id"], id);
    assert_eq!(harness.appended_samples(), 5_000 * 16);
    assert!(harness.commands.iter().any(|command| matches!(command, Command::Commit { .. })));
    assert!(harness.last_respond().is_some());
    harness.clear();
    harness.input_audio(20_000);
    assert_eq!(harness.event_types(), [""; 0], "the response is still active");
}

#[test]
fn idle_timeout_starts_after_playback() {
    let mut harness = with_idle_timeout(Delivery::Paced);
    let response = harness.whole_response("How are you?", 2_000);
    harness.input_audio(20_000);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.input(SessionInput::Playout(PlayoutReport::Drained { response }));
    harness.clear();
    harness.input_audio(4_000);
    assert_eq!(harness.event_types(), [""; 0]);
    harness.input_audio(1_200);
    harness.find("input_audio_buffer.timeout_triggered");
}

#[test]
fn speech_resets_the_idle_timeout() {
    let mut harness = with_idle_timeout(Delivery::Unpaced);
    harness.update(json!({"audio": {"input": {"turn_detection": {"create_response": false}}}}));
    harness.whole_response("How are you?", 20);
    harness.now += Duration::from_secs(2);
    harness.clear();
    harness.input_audio(3_000);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 2_000 }));
    harness.input_audio(4_000);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 7_000 }));
    harness.input_audio(10_000);
    assert!(!harness.event_types().contains(&"input_audio_buffer.timeout_triggered"));
}

#[test]
fn idle_timeout_is_clamped() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"audio": {"input": {"turn_detection": {"idle_timeout_ms": 1}}}}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["audio"]["input"]["turn_detection"]["idle_timeout_ms"], 5_000);
    assert_eq!(session["repartee"]["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn no_timeout_while_a_call_is_open() {
    let mut harness = with_idle_timeout(Delivery::Unpaced);
    harness.whole_response("Let me look.", 20);
    let call = json!({"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"});
    harness.client(json!({"type": "conversation.item.create", "item": call}));
    harness.now += Duration::from_secs(2);
    harness.clear();
    harness.input_audio(20_000);
    assert_eq!(harness.event_types(), [""; 0], "the output of the call is awaited");
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "4"});
    harness.client(json!({"type": "conversation.item.create", "item": output}));
    harness.input_audio(5_100);
    harness.find("input_audio_buffer.timeout_triggered");
}
