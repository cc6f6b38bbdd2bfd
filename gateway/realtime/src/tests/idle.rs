//! Callers who say nothing.

use std::time::Duration;

use repartee_engine_api::Command;
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Input, PlayoutReport};
use super::Talk;

fn patient(delivery: Delivery) -> Talk {
    let mut talk = Talk::new(delivery);
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5_000}}}}));
    talk
}

#[test]
fn silence_after_an_answer_is_answered_once() {
    let mut talk = patient(Delivery::Unpaced);
    talk.sound(10_000);
    assert_eq!(talk.asked(), None, "nobody waits before the first answer");
    talk.answer("How are you?", 2_000);
    talk.forget();
    talk.sound(4_000);
    assert_eq!(talk.kinds(), [""; 0], "the client still plays");
    talk.now += Duration::from_secs(2);
    talk.sound(4_980);
    assert_eq!(talk.kinds(), [""; 0]);
    talk.sound(80);
    let triggered = talk.find("input_audio_buffer.timeout_triggered");
    assert_eq!((&triggered["audio_start_ms"], &triggered["audio_end_ms"]), (&json!(14_020), &json!(19_020)));
    let id = triggered["item_id"].clone();
    assert_eq!(talk.find("input_audio_buffer.committed")["item_id"], id);
    assert_eq!(talk.find("conversation.item.done")["item"]["id"], id);
    assert_eq!(talk.submitted(), 5_000 * 16);
    assert!(talk.commands.iter().any(|command| matches!(command, Command::Commit { .. })));
    assert!(talk.asked().is_some());
    talk.forget();
    talk.sound(20_000);
    assert_eq!(talk.kinds(), [""; 0], "the answer to it is still being made");
}

#[test]
fn silence_begins_when_the_answer_was_heard() {
    let mut talk = patient(Delivery::Paced);
    let response = talk.answer("How are you?", 2_000);
    talk.sound(20_000);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.input(Input::Playout(PlayoutReport::Drained { response }));
    talk.forget();
    talk.sound(4_000);
    assert_eq!(talk.kinds(), [""; 0]);
    talk.sound(1_200);
    talk.find("input_audio_buffer.timeout_triggered");
}

#[test]
fn somebody_who_speaks_is_not_silent() {
    let mut talk = patient(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"create_response": false}}}}));
    talk.answer("How are you?", 20);
    talk.now += Duration::from_secs(2);
    talk.forget();
    talk.sound(3_000);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 2_000 }));
    talk.sound(4_000);
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 7_000 }));
    talk.sound(10_000);
    assert!(!talk.kinds().contains(&"input_audio_buffer.timeout_triggered"));
}

#[test]
fn timeouts_are_brought_into_the_published_range() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"idle_timeout_ms": 1}}}}));
    let session = &talk.find("session.updated")["session"];
    assert_eq!(session["audio"]["input"]["turn_detection"]["idle_timeout_ms"], 5_000);
    assert_eq!(session["repartee"]["warnings"].as_array().unwrap().len(), 1);
}
