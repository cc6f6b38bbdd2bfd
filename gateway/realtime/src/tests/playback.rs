//! Barge-in, and what was heard.

use std::time::Duration;

use repartee_engine_api::{Command, FinishReason};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Effect, Input, PlayoutReport};
use super::Talk;

#[test]
fn speech_stops_an_answer_being_made_over_a_websocket() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.says(response, "One two three");
    talk.sounds(response, 800);
    talk.forget();
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(talk.commands, [Command::Cancel { response }]);
    talk.finished(response, FinishReason::Cancelled);
    let details = &talk.find("response.done")["response"]["status_details"];
    assert_eq!(details, &json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(talk.cut(), None, "the client says what was heard");
}

#[test]
fn speech_interrupts_nothing_if_told_so_and_the_next_answer_waits() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "interrupt_response": false}}}}));
    let response = talk.ask();
    talk.says(response, "One");
    talk.forget();
    talk.sound(400);
    talk.turn(0, 400);
    assert_eq!(talk.asked(), None);
    talk.finished(response, FinishReason::Stop);
    assert_eq!(talk.find("response.done")["response"]["status"], "completed");
    assert!(talk.asked().is_some());
}

#[test]
fn the_playout_clock_reports_when_a_caller_hears() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("Hello.", 500);
    talk.forget();
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.input(Input::Playout(PlayoutReport::Drained { response }));
    assert_eq!(talk.kinds(), ["output_audio_buffer.started", "output_audio_buffer.stopped"]);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(talk.cut(), None, "all of it was heard");
}

#[test]
fn the_engine_is_told_what_was_heard_frame_by_frame() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("Hello.", 500);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.forget();
    for heard_ms in [20, 40, 60, 80, 100, 120, 190, 200] {
        talk.hears(response, heard_ms);
    }
    let played = |ms| Command::Played { response, position: Duration::from_millis(ms), at: talk.now };
    assert_eq!(talk.commands, [played(80), played(190)]);
}

#[test]
fn speech_clears_an_answer_that_is_complete_but_not_played() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("The sky is blue today.", 2_000);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.hears(response, 1_000);
    talk.forget();
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(
        talk.kinds(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    assert_eq!(talk.others, [Effect::ClearPlayout]);
    assert_eq!(talk.cut(), Some("The sky is"));
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 1_000);
}

#[test]
fn speech_clears_and_cancels_an_answer_being_made() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.ask();
    talk.says(response, "One two three four");
    talk.sounds(response, 800);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.hears(response, 400);
    talk.forget();
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(talk.kinds(), ["input_audio_buffer.speech_started", "output_audio_buffer.cleared"]);
    assert_eq!(talk.commands, [Command::Cancel { response }]);
    talk.finished(response, FinishReason::Cancelled);
    let kinds = talk.kinds();
    let place = |kind| kinds.iter().position(|found| *found == kind).unwrap();
    assert!(place("response.done") < place("conversation.item.truncated"));
    assert_eq!(talk.find("response.done")["response"]["status_details"]["reason"], "turn_detected");
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 400);
    assert_eq!(talk.cut(), Some("One"));
}

#[test]
fn the_client_can_clear_what_was_not_played() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("The sky is blue today.", 2_000);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.forget();
    talk.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(talk.kinds(), ["output_audio_buffer.cleared", "conversation.item.truncated"]);
    assert_eq!(talk.cut(), Some(""), "nothing was heard");
}
