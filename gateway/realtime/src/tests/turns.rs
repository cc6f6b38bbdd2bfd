//! The caller's turns.

use repartee_engine_api::{Command, Event, SessionError};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Effect, Input};
use super::Talk;

#[test]
fn a_turn_has_one_name_and_holds_the_sound_before_it() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.sound(1_000);
    assert_eq!(talk.commands, []);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 600 }));
    talk.sound(500);
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_490 }));
    assert_eq!(talk.submitted(), 890 * 16);
    let id = talk.find("input_audio_buffer.speech_started")["item_id"].clone();
    assert_eq!(talk.find("input_audio_buffer.speech_stopped")["item_id"], id);
    assert_eq!(talk.find("input_audio_buffer.committed")["item_id"], id);
    assert_eq!(talk.find("conversation.item.added")["item"]["id"], id);
    assert_eq!(talk.kinds().last(), Some(&"response.created"));
}

#[test]
fn a_turn_asks_for_no_answer_if_the_client_does() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": false}}}}));
    talk.sound(1_000);
    talk.turn(0, 1_000);
    assert_eq!(talk.asked(), None);
    talk.ask();
}

#[test]
fn a_commit_needs_sound() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.push_to_talk();
    for ms in [0, 80] {
        talk.sound(ms);
        talk.client(json!({"type": "input_audio_buffer.commit"}));
        assert_eq!(talk.code(), "input_audio_buffer_commit_empty");
    }
    talk.sound(20);
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    talk.find("input_audio_buffer.committed");
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(talk.code(), "input_audio_buffer_commit_empty");
    assert_eq!(talk.asked(), None, "a commit asks for no answer");
}

#[test]
fn a_cleared_buffer_is_forgotten() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.push_to_talk();
    talk.sound(1_000);
    talk.client(json!({"type": "input_audio_buffer.clear"}));
    assert_eq!(talk.kinds(), ["input_audio_buffer.cleared"]);
    assert_eq!(talk.commands.last(), Some(&Command::Clear));
    assert!(talk.others.contains(&Effect::EndTurn));
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(talk.code(), "input_audio_buffer_commit_empty");
}

#[test]
fn a_turn_too_long_for_the_model_is_said_once() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.push_to_talk();
    talk.sound(200);
    for _ in 0..3 {
        let error = SessionError::AudioTooLong { limit_s: 30 };
        talk.input(Input::Engine(Event::Failed { response: None, error }));
    }
    assert_eq!(talk.kinds(), ["error"]);
    assert_eq!(talk.code(), "input_audio_too_long");
}
