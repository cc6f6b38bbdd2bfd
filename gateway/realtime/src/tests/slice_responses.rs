//! Responses to each slice of a turn.

use repartee_engine_api::{Command, FinishReason};
use repartee_media::vad::TurnEvent;
use serde_json::json;

use super::super::{Delivery, Effect, SessionInput};
use super::Harness;

/// Number of samples in each committed slice.
fn committed(harness: &Harness) -> Vec<usize> {
    let mut open = 0;
    let mut lengths = Vec::new();
    for command in &harness.commands {
        match command {
            Command::Append(samples) => open += samples.len(),
            Command::Commit { .. } => lengths.push(std::mem::take(&mut open)),
            _ => {}
        }
    }
    lengths
}

fn slicing(delivery: Delivery) -> Harness {
    let mut harness = Harness::new(delivery);
    harness.update(json!({"repartee": {"slice_ms": 500}}));
    assert_eq!(harness.find("session.updated")["session"]["repartee"]["slice_ms"], 500);
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    harness
}

#[test]
fn each_slice_is_answered_after_the_one_before() {
    let mut harness = slicing(Delivery::Unpaced);
    harness.input_audio(540);
    assert_eq!(harness.last_respond(), None, "500 ms and what may lie behind the turn's end");
    harness.input_audio(20);
    let first = harness.last_respond().unwrap().response;
    assert_eq!(committed(&harness), [510 * 16]);
    // The next slice waits for the response, and includes all audio received meanwhile.
    harness.input_audio(2_000);
    assert_eq!(committed(&harness), [510 * 16]);
    harness.engine_audio(first, 80);
    harness.engine_finished(first, FinishReason::Stop);
    harness.input_audio(20);
    let second = harness.last_respond().unwrap().response;
    assert!(second > first);
    assert_eq!(committed(&harness), [510 * 16, 2_020 * 16]);
    let items: Vec<_> = harness.events.iter().filter(|event| event["type"] == "conversation.item.added").collect();
    let roles: Vec<_> = items.iter().map(|event| event["item"]["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_ne!(items[0]["item"]["id"], items[2]["item"]["id"]);
}

#[test]
fn last_slice_is_answered_behind_the_one_before() {
    let mut harness = slicing(Delivery::Unpaced);
    harness.input_audio(600);
    let first = harness.last_respond().unwrap().response;
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 580 }));
    assert_eq!(committed(&harness).iter().sum::<usize>(), 580 * 16, "nothing is lost between slices, or twice in them");
    assert_eq!(harness.last_respond().unwrap().response, first, "one answer at a time");
    harness.engine_finished(first, FinishReason::Stop);
    assert!(harness.last_respond().unwrap().response > first);
}

#[test]
fn one_last_slice_waits_for_the_answer_before() {
    let mut harness = slicing(Delivery::Unpaced);
    harness.input_audio(600);
    let first = harness.last_respond().unwrap().response;
    // Short turns during the response to the first slice: none is cut, and each has a last slice.
    for turn in 0..4 {
        harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 580 + turn * 200 }));
        harness.input_audio(200);
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 600 + turn * 200 }));
    }
    let mut answers = 0;
    let mut last = first;
    loop {
        harness.engine_finished(last, FinishReason::Stop);
        let next = harness.last_respond().unwrap().response;
        if next == last {
            break;
        }
        (answers, last) = (answers + 1, next);
    }
    assert_eq!(answers, 1, "it sees all of them");
}

#[test]
fn speaking_on_interrupts_no_answer() {
    let mut harness = slicing(Delivery::Paced);
    harness.input_audio(600);
    let response = harness.last_respond().unwrap().response;
    harness.engine_audio(response, 2_000);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 600 }));
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 600 }));
    harness.input(SessionInput::Turn(TurnEvent::PossibleBargeIn { audio_ms: 600 }));
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::Cancel { .. })));
    assert!(!harness.other_effects.contains(&Effect::ClearPlayout));
    assert!(!harness.other_effects.contains(&Effect::PausePlayout));
}

#[test]
fn pause_begins_no_speculation() {
    let mut harness = slicing(Delivery::Unpaced);
    harness.input_audio(300);
    harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: 280 }));
    assert_eq!(harness.last_respond(), None);
}

#[test]
fn push_to_talk_is_answered_slice_by_slice() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"repartee": {"slice_ms": 500}, "audio": {"input": {"turn_detection": null}}}));
    harness.input_audio(600);
    assert!(harness.last_respond().is_some());
}

#[test]
fn slices_without_responses_are_committed() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let detection = json!({"type": "server_vad", "create_response": false});
    harness.update(json!({"repartee": {"slice_ms": 500}, "audio": {"input": {"turn_detection": detection}}}));
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    harness.input_audio(1_200);
    assert_eq!(committed(&harness).len(), 2);
    assert_eq!(harness.last_respond(), None);
}

#[test]
fn slice_length_is_bounded() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for ms in [99, 10_001] {
        harness.update(json!({"repartee": {"slice_ms": ms}}));
        assert_eq!(harness.events.last().unwrap()["error"]["param"], "session.repartee.slice_ms");
    }
    harness.update(json!({"repartee": {"slice_ms": 100}}));
    harness.update(json!({"repartee": {"slice_ms": null}}));
    assert!(harness.find("session.updated")["session"].get("repartee").is_none(), "off again");
}
