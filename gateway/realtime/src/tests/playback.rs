//! Playback and barge-in.

use std::time::Duration;

use repartee_engine_api::{Command, FinishReason};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Effect, Input, PlayoutReport};
use super::Harness;

#[test]
fn speech_cancels_the_response_on_a_websocket() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One two three");
    harness.engine_audio(response, 800);
    harness.clear();
    harness.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.commands, [Command::Cancel { response }]);
    harness.engine_finished(response, FinishReason::Cancelled);
    let details = &harness.find("response.done")["response"]["status_details"];
    assert_eq!(details, &json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(harness.truncated_text(), None, "the client truncates");
}

#[test]
fn interrupt_response_false_queues_the_next_response() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness
        .update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "interrupt_response": false}}}}));
    let response = harness.create_response();
    harness.engine_text(response, "One");
    harness.clear();
    harness.input_audio(400);
    harness.turn(0, 400);
    assert_eq!(harness.last_respond(), None);
    harness.engine_finished(response, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["response"]["status"], "completed");
    assert!(harness.last_respond().is_some());
}

#[test]
fn playout_reports_become_output_buffer_events() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("Hello.", 500);
    harness.clear();
    harness.input(Input::Playout(PlayoutReport::Started { response }));
    harness.input(Input::Playout(PlayoutReport::Drained { response }));
    assert_eq!(harness.event_types(), ["output_audio_buffer.started", "output_audio_buffer.stopped"]);
    harness.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.truncated_text(), None, "all of it was heard");
}

#[test]
fn engine_gets_the_position_each_codec_frame() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("Hello.", 500);
    harness.input(Input::Playout(PlayoutReport::Started { response }));
    harness.clear();
    for heard_ms in [20, 40, 60, 80, 100, 120, 190, 200] {
        harness.played(response, heard_ms);
    }
    let played = |ms| Command::Played { response, position: Duration::from_millis(ms), at: harness.now };
    assert_eq!(harness.commands, [played(80), played(190)]);
}

#[test]
fn speech_clears_unplayed_audio() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("The sky is blue today.", 2_000);
    harness.input(Input::Playout(PlayoutReport::Started { response }));
    harness.played(response, 1_000);
    harness.clear();
    harness.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(
        harness.event_types(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    assert_eq!(harness.other_effects, [Effect::ClearPlayout]);
    assert_eq!(harness.truncated_text(), Some("The sky is"));
    assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], 1_000);
}

#[test]
fn speech_cancels_an_active_response() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.create_response();
    harness.engine_text(response, "One two three four");
    harness.engine_audio(response, 800);
    harness.input(Input::Playout(PlayoutReport::Started { response }));
    harness.played(response, 400);
    harness.clear();
    harness.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.event_types(), ["input_audio_buffer.speech_started", "output_audio_buffer.cleared"]);
    assert_eq!(harness.commands, [Command::Cancel { response }]);
    harness.engine_finished(response, FinishReason::Cancelled);
    let types = harness.event_types();
    let place = |kind| types.iter().position(|found| *found == kind).unwrap();
    assert!(place("response.done") < place("conversation.item.truncated"));
    assert_eq!(harness.find("response.done")["response"]["status_details"]["reason"], "turn_detected");
    assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], 400);
    assert_eq!(harness.truncated_text(), Some("One"));
}

#[test]
fn client_can_clear_unplayed_audio() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("The sky is blue today.", 2_000);
    harness.input(Input::Playout(PlayoutReport::Started { response }));
    harness.clear();
    harness.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(harness.event_types(), ["output_audio_buffer.cleared", "conversation.item.truncated"]);
    assert_eq!(harness.truncated_text(), Some(""), "nothing was heard");
}
