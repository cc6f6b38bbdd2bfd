//! Answers begun on suspicion.

use std::time::Duration;

use repartee_engine_api::{Command, Event, FinishReason, SessionError};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Input};
use super::Talk;

/// A turn of one second from 0 ms on, at whose end the caller pauses.
fn pausing() -> Talk {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.sound(400);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    talk.sound(600);
    talk.forget_events();
    talk.input(Input::Turn(TurnEvent::Paused { audio_end_ms: 1_000 }));
    talk
}

#[test]
fn nothing_of_a_suspected_answer_is_seen_before_the_turn_has_ended() {
    let mut talk = pausing();
    let response = talk.asked().unwrap().response;
    assert!(matches!(talk.commands.last(), Some(Command::BeginSpeculation { .. })));
    assert_eq!(talk.submitted(), 16_000, "all of the turn, and nothing else");
    talk.says(response, "Yes.");
    talk.sounds(response, 80);
    talk.finished(response, FinishReason::Stop);
    talk.sound(300);
    assert_eq!(talk.kinds(), [""; 0]);
    assert_eq!(talk.submitted(), 16_000, "the silence after the pause belongs to nobody");
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_300 }));
    assert_eq!(talk.commands.last(), Some(&Command::CommitSpeculation { response }));
    let expected = [
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
    ];
    assert_eq!(talk.kinds()[..expected.len()], expected);
    assert_eq!(talk.find("response.done")["response"]["status"], "completed");
    assert!(!talk.commands.iter().any(|command| matches!(command, Command::Commit { .. } | Command::Respond(_))));
}

#[test]
fn a_caller_who_goes_on_has_never_been_answered() {
    let mut talk = pausing();
    let response = talk.asked().unwrap().response;
    talk.says(response, "Yes.");
    talk.sound(100);
    talk.input(Input::Turn(TurnEvent::Resumed { audio_ms: 1_080 }));
    assert!(talk.commands.contains(&Command::AbortSpeculation { response }));
    talk.finished(response, FinishReason::Cancelled);
    talk.sound(400);
    assert_eq!(talk.kinds(), [""; 0]);
    // The same again, and this time it was the end.
    talk.input(Input::Turn(TurnEvent::Paused { audio_end_ms: 1_500 }));
    let second = talk.asked().unwrap().response;
    assert_ne!(second, response);
    talk.sound(300);
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_800 }));
    assert_eq!(talk.submitted(), 24_000, "nothing is lost by going on");
    talk.says(second, "No.");
    talk.finished(second, FinishReason::Stop);
    assert_eq!(talk.find("response.done")["response"]["output"][0]["content"][0]["transcript"], "No.");
}

#[test]
fn an_engine_that_cannot_speculate_answers_at_the_turns_end() {
    let mut talk = pausing();
    let response = talk.asked().unwrap().response;
    talk.input(Input::Engine(Event::Failed { response: Some(response), error: SessionError::Busy("x") }));
    talk.sound(300);
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_300 }));
    assert_eq!(talk.submitted(), 1_300 * 16);
    assert!(talk.commands.iter().any(|command| matches!(command, Command::Commit { .. })));
    assert_ne!(talk.asked().unwrap().response, response);
    assert!(!talk.kinds().contains(&"error"));
}

#[test]
fn a_caller_who_falls_silent_altogether_is_not_waited_for_without_end() {
    let mut talk = pausing();
    let response = talk.asked().unwrap().response;
    let deadline = talk.core.deadline().unwrap();
    assert_eq!(deadline, talk.now + Duration::from_secs(10));
    talk.now = deadline;
    talk.input(Input::Time);
    assert_eq!(talk.commands.last(), Some(&Command::AbortSpeculation { response }));
    assert_eq!(talk.core.deadline(), None);
    // When the sound comes after all, the turn ends as usual.
    talk.sound(300);
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_300 }));
    assert_eq!(talk.submitted(), 1_300 * 16);
    assert_eq!(talk.kinds().last(), Some(&"response.created"));
}

#[test]
fn whatever_the_client_does_in_between_takes_the_answer_back() {
    let content = json!([{"type": "input_text", "text": "wait"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    for event in [
        json!({"type": "session.update", "session": {"instructions": "Be brief."}}),
        json!({"type": "conversation.item.create", "item": item}),
        json!({"type": "input_audio_buffer.clear"}),
        json!({"type": "response.create"}),
    ] {
        let mut talk = pausing();
        let response = talk.asked().unwrap().response;
        talk.forget();
        talk.client(event.clone());
        assert_eq!(talk.commands[0], Command::AbortSpeculation { response }, "{event}");
        let asked = talk.asked().map(|respond| respond.response);
        assert!(!talk.commands.contains(&Command::CommitSpeculation { response }) && asked != Some(response));
    }
    let mut talk = pausing();
    let response = talk.asked().unwrap().response;
    talk.sound(100);
    talk.forget_events();
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    assert!(talk.commands.contains(&Command::AbortSpeculation { response }));
    assert_eq!(talk.submitted(), 1_100 * 16, "a commit takes all that was said");
    talk.find("input_audio_buffer.committed");
}

#[test]
fn a_session_can_do_without() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"repartee": {"speculative_start": false}}));
    assert_eq!(talk.find("session.updated")["session"]["repartee"]["speculative_start"], false);
    let detection = json!({"type": "server_vad", "create_response": false});
    for update in [json!({}), json!({"repartee": null, "audio": {"input": {"turn_detection": detection}}})] {
        talk.update(update);
        talk.forget();
        talk.sound(1_000);
        talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        talk.input(Input::Turn(TurnEvent::Paused { audio_end_ms: 900 }));
        assert_eq!(talk.asked(), None);
        talk.client(json!({"type": "input_audio_buffer.clear"}));
    }
}

#[test]
fn nothing_is_suspected_beside_an_answer() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "interrupt_response": false}}}}));
    talk.ask();
    talk.forget();
    talk.sound(1_000);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    talk.input(Input::Turn(TurnEvent::Paused { audio_end_ms: 900 }));
    assert_eq!(talk.asked(), None);
}

#[test]
fn a_suspected_answer_is_not_read_without_end() {
    let mut talk = pausing();
    let response = talk.asked().unwrap().response;
    let mut read = 0;
    while talk.core.wants_engine() {
        talk.sounds(response, 80);
        read += 1;
    }
    assert!((50..=100).contains(&read), "{read} frames");
    talk.input(Input::Turn(TurnEvent::Resumed { audio_ms: 1_000 }));
    assert!(talk.core.wants_engine());
}
