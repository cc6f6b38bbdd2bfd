//! Speculation.

use std::time::Duration;

use repartee_engine_api::{Command, Event, FinishReason, SessionError};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, SessionInput};
use super::Harness;

/// Session in which the caller pauses after a turn from 0 to 1000 ms.
fn pausing() -> Harness {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.input_audio(400);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    harness.input_audio(600);
    harness.clear_events();
    harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: 1_000 }));
    harness
}

#[test]
fn speculation_is_invisible_until_committed() {
    let mut harness = pausing();
    let response = harness.last_respond().unwrap().response;
    assert!(matches!(harness.commands.last(), Some(Command::BeginSpeculation { .. })));
    assert_eq!(harness.appended_samples(), 16_000, "all of the turn, and nothing else");
    harness.engine_text(response, "Yes.");
    harness.engine_audio(response, 80);
    harness.engine_finished(response, FinishReason::Stop);
    harness.input_audio(300);
    assert_eq!(harness.event_types(), [""; 0]);
    assert_eq!(harness.appended_samples(), 16_000, "the silence after the pause is not submitted");
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_300 }));
    assert_eq!(harness.commands.last(), Some(&Command::CommitSpeculation { response }));
    let expected = [
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "rate_limits.updated",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
    ];
    assert_eq!(harness.event_types()[..expected.len()], expected);
    assert_eq!(harness.find("response.done")["response"]["status"], "completed");
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::Commit { .. } | Command::Respond(_))));
}

#[test]
fn resumed_speech_aborts_the_speculation() {
    let mut harness = pausing();
    let response = harness.last_respond().unwrap().response;
    harness.engine_text(response, "Yes.");
    harness.input_audio(100);
    harness.input(SessionInput::Turn(TurnEvent::Resumed { audio_ms: 1_080 }));
    assert!(harness.commands.contains(&Command::AbortSpeculation { response }));
    harness.engine_finished(response, FinishReason::Cancelled);
    harness.input_audio(400);
    assert_eq!(harness.event_types(), [""; 0]);
    // The same again, but the turn ends.
    harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: 1_500 }));
    let second = harness.last_respond().unwrap().response;
    assert_ne!(second, response);
    harness.input_audio(300);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_800 }));
    assert_eq!(harness.appended_samples(), 24_000, "no audio is lost");
    harness.engine_text(second, "No.");
    harness.engine_finished(second, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["response"]["output"][0]["content"][0]["transcript"], "No.");
}

#[test]
fn failed_speculation_falls_back_to_commit() {
    let mut harness = pausing();
    let response = harness.last_respond().unwrap().response;
    harness.input(SessionInput::Engine(Event::Failed { response: Some(response), error: SessionError::Busy("x") }));
    harness.input_audio(300);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_300 }));
    assert_eq!(harness.appended_samples(), 1_300 * 16);
    assert!(harness.commands.iter().any(|command| matches!(command, Command::Commit { .. })));
    assert_ne!(harness.last_respond().unwrap().response, response);
    assert!(!harness.event_types().contains(&"error"));
}

#[test]
fn speculation_is_aborted_at_its_deadline() {
    let mut harness = pausing();
    let response = harness.last_respond().unwrap().response;
    let deadline = harness.core.deadline().unwrap();
    assert_eq!(deadline, harness.now + Duration::from_secs(10));
    harness.now = deadline;
    harness.input(SessionInput::DeadlineReached);
    assert_eq!(harness.commands.last(), Some(&Command::AbortSpeculation { response }));
    assert_eq!(harness.core.deadline(), None);
    // If more audio arrives, the turn ends as usual.
    harness.input_audio(300);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_300 }));
    assert_eq!(harness.appended_samples(), 1_300 * 16);
    harness.find("response.created");
}

#[test]
fn client_events_abort_the_speculation() {
    let content = json!([{"type": "input_text", "text": "wait"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    for event in [
        json!({"type": "session.update", "session": {"instructions": "Be brief."}}),
        json!({"type": "conversation.item.create", "item": item}),
        json!({"type": "input_audio_buffer.clear"}),
        json!({"type": "response.create"}),
    ] {
        let mut harness = pausing();
        let response = harness.last_respond().unwrap().response;
        harness.clear();
        harness.client(event.clone());
        assert_eq!(harness.commands[0], Command::AbortSpeculation { response }, "{event}");
        let asked = harness.last_respond().map(|respond| respond.response);
        assert!(!harness.commands.contains(&Command::CommitSpeculation { response }) && asked != Some(response));
    }
    let mut harness = pausing();
    let response = harness.last_respond().unwrap().response;
    harness.input_audio(100);
    harness.clear_events();
    harness.client(json!({"type": "input_audio_buffer.commit"}));
    assert!(harness.commands.contains(&Command::AbortSpeculation { response }));
    assert_eq!(harness.appended_samples(), 1_100 * 16, "a commit takes all audio");
    harness.find("input_audio_buffer.committed");
}

#[test]
fn speculation_can_be_switched_off() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"repartee": {"speculative_start": false}}));
    assert_eq!(harness.find("session.updated")["session"]["repartee"]["speculative_start"], false);
    let detection = json!({"type": "server_vad", "create_response": false});
    for update in [json!({}), json!({"repartee": null, "audio": {"input": {"turn_detection": detection}}})] {
        harness.update(update);
        harness.clear();
        harness.input_audio(1_000);
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: 900 }));
        assert_eq!(harness.last_respond(), None);
        harness.client(json!({"type": "input_audio_buffer.clear"}));
    }
}

#[test]
fn no_speculation_during_a_response() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness
        .update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "interrupt_response": false}}}}));
    harness.create_response();
    harness.clear();
    harness.input_audio(1_000);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: 900 }));
    assert_eq!(harness.last_respond(), None);
}

#[test]
fn held_events_are_bounded() {
    let mut harness = pausing();
    let response = harness.last_respond().unwrap().response;
    let mut frames = 0;
    while harness.core.wants_engine_events() {
        harness.engine_audio(response, 80);
        frames += 1;
    }
    assert!((50..=100).contains(&frames), "{frames} frames");
    harness.input(SessionInput::Turn(TurnEvent::Resumed { audio_ms: 1_000 }));
    assert!(harness.core.wants_engine_events());
}
