//! The caller's turns.

use repartee_engine_api::{Command, Event, SessionError};
use repartee_media::decision::{Decision, DecisionKind, DecisionReason};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Effect, SessionInput};
use super::Harness;

#[test]
fn turn_keeps_one_id_and_its_prefix() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.input_audio(1_000);
    assert_eq!(harness.commands, []);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 600 }));
    harness.input_audio(500);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_490 }));
    assert_eq!(harness.appended_samples(), 890 * 16);
    let id = harness.find("input_audio_buffer.speech_started")["item_id"].clone();
    assert_eq!(harness.find("input_audio_buffer.speech_stopped")["item_id"], id);
    assert_eq!(harness.find("input_audio_buffer.committed")["item_id"], id);
    assert_eq!(harness.find("conversation.item.added")["item"]["id"], id);
    assert_eq!(harness.event_types()[harness.events.len() - 2..], ["response.created", "rate_limits.updated"]);
}

#[test]
fn create_response_false_starts_no_response() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": false}}}}));
    harness.input_audio(1_000);
    harness.turn(0, 1_000);
    assert_eq!(harness.last_respond(), None);
    harness.create_response();
}

#[test]
fn commit_needs_100_ms_of_audio() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.push_to_talk();
    for ms in [0, 80] {
        harness.input_audio(ms);
        harness.client(json!({"type": "input_audio_buffer.commit"}));
        assert_eq!(harness.error_code(), "input_audio_buffer_commit_empty");
    }
    harness.input_audio(20);
    harness.client(json!({"type": "input_audio_buffer.commit"}));
    harness.find("input_audio_buffer.committed");
    harness.client(json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(harness.error_code(), "input_audio_buffer_commit_empty");
    assert_eq!(harness.last_respond(), None, "a commit starts no response");
}

#[test]
fn cleared_buffer_is_empty() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.push_to_talk();
    harness.input_audio(1_000);
    harness.client(json!({"type": "input_audio_buffer.clear"}));
    assert_eq!(harness.event_types(), ["input_audio_buffer.cleared"]);
    assert_eq!(harness.commands.last(), Some(&Command::Clear));
    assert!(harness.other_effects.contains(&Effect::ResetTurnDetector));
    harness.client(json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(harness.error_code(), "input_audio_buffer_commit_empty");
}

#[test]
fn refused_turn_is_reported_once() {
    for (error, code) in [
        (SessionError::AudioTooLong { limit_s: 30 }, "input_audio_too_long"),
        // Each slice is refused.
        (SessionError::NoAudioInput, "invalid_value"),
    ] {
        let mut harness = Harness::new(Delivery::Unpaced);
        harness.push_to_talk();
        harness.input_audio(200);
        for _ in 0..3 {
            harness.input(SessionInput::Engine(Event::Failed { response: None, error: error.clone() }));
        }
        assert_eq!(harness.event_types(), ["error"]);
        assert_eq!(harness.error_code(), code);
    }
}

#[test]
fn telephone_keys_are_reported_alone() {
    let mut harness = Harness::new(Delivery::Paced);
    harness.clear();
    harness.input(SessionInput::Key { key: '#', received_at: 1_790_000_000 });
    assert_eq!(harness.event_types(), ["input_audio_buffer.dtmf_event_received"]);
    let event = harness.find("input_audio_buffer.dtmf_event_received");
    assert_eq!((&event["event"], &event["received_at"]), (&json!("#"), &json!(1_790_000_000)));
    assert_eq!(harness.commands, []);
}

#[test]
fn decisions_are_events_where_asked_for() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let decision = Decision::new(DecisionKind::VoiceDismissed, DecisionReason::VoiceEnded, 1_250);
    harness.clear();
    harness.input(SessionInput::Decision(decision));
    assert_eq!(harness.event_types(), [""; 0]);
    harness.update(json!({"repartee": {"decisions": true}}));
    assert_eq!(harness.find("session.updated")["session"]["repartee"]["decisions"], true);
    harness.clear();
    harness.input(SessionInput::Decision(decision.with_probability(Some(0.12345))));
    let event = harness.find("repartee.decision");
    assert_eq!((&event["decision"], &event["reason"]), (&json!("voice_dismissed"), &json!("voice_ended")));
    assert!((event["probability"].as_f64().unwrap() - 0.123).abs() < 1e-6, "{event}");
    assert_eq!((&event["audio_ms"], event.get("voice_ms")), (&json!(1_250), None));
}
