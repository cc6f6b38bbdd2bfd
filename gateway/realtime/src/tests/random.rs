//! Whatever happens in whatever order: no panic, and what clients rely on holds.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use repartee_engine_api::{Command, Event, FinishReason, SessionError};
use repartee_media::vad::TurnEvent;
use serde_json::{Value, json};

use super::super::{Delivery, Input, PlayoutReport};
use super::Talk;

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    Sound(usize),
    SpeechStarts,
    Pauses,
    Resumes,
    SpeechStops,
    Client(Value),
    Says,
    Calls,
    Sounds,
    Finishes,
    Fails,
    Time(u64),
    Played(u64),
    Drained,
}

fn step() -> impl Strategy<Value = Step> {
    let content = json!([{"type": "input_text", "text": "hello there"}]);
    let client = prop::sample::select(vec![
        json!({"type": "input_audio_buffer.commit"}),
        json!({"type": "input_audio_buffer.clear"}),
        json!({"type": "output_audio_buffer.clear"}),
        json!({"type": "response.create"}),
        json!({"type": "response.cancel"}),
        json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": null}}}}),
        json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}}),
        json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"idle_timeout_ms": 5_000}}}}}),
        json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"interrupt_response": false}}}}}),
        json!({"type": "session.update", "session": {"repartee": {"speculative_start": false}, "tools": [{"name": "f"}]}}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}),
        json!({"type": "conversation.item.create", "previous_item_id": "root",
            "item": {"type": "message", "role": "user", "id": "mine", "content": content}}),
        json!({"type": "conversation.item.create", "previous_item_id": "mine",
            "item": {"type": "function_call_output", "call_id": "c", "output": "x"}}),
        json!({"type": "conversation.item.delete", "item_id": "mine"}),
        json!({"type": "response.create", "response": {"conversation": "none", "output_modalities": ["text"]}}),
        json!({"type": "response.create", "response": {"conversation": "none",
            "input": [{"type": "message", "role": "user", "content": content}]}}),
        // The names of items depend on what came before, so that these sometimes meet one.
        json!({"type": "conversation.item.delete", "item_id": "item_s_7"}),
        json!({"type": "conversation.item.truncate", "item_id": "item_s_7", "content_index": 0, "audio_end_ms": 40}),
        json!({"type": "conversation.item.truncate", "item_id": "item_s_12", "content_index": 0, "audio_end_ms": 4_000}),
    ]);
    prop_oneof![
        (1usize..20).prop_map(|pieces| Step::Sound(pieces * 20)),
        Just(Step::SpeechStarts),
        Just(Step::Pauses),
        Just(Step::Resumes),
        Just(Step::SpeechStops),
        client.prop_map(Step::Client),
        Just(Step::Says),
        Just(Step::Calls),
        Just(Step::Sounds),
        Just(Step::Finishes),
        Just(Step::Fails),
        (0u64..9_000).prop_map(Step::Time),
        (0u64..2_000).prop_map(Step::Played),
        Just(Step::Drained),
    ]
}

fn happens(talk: &mut Talk, received_ms: &mut u64, step: Step) {
    let response = talk.asked().map_or(0, |respond| respond.response);
    match step {
        Step::Sound(ms) => {
            talk.sound(ms);
            *received_ms += ms as u64;
        }
        Step::SpeechStarts => {
            let audio_start_ms = received_ms.saturating_sub(300);
            talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms }));
        }
        Step::Pauses => talk.input(Input::Turn(TurnEvent::Paused { audio_end_ms: received_ms.saturating_sub(20) })),
        Step::Resumes => talk.input(Input::Turn(TurnEvent::Resumed { audio_ms: received_ms.saturating_sub(10) })),
        Step::SpeechStops => talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: *received_ms })),
        Step::Client(event) => talk.client(event),
        Step::Says => talk.says(response, "word "),
        Step::Sounds => talk.sounds(response, 80),
        Step::Calls => {
            talk.input(Input::Engine(Event::ToolCall { response, call: 0, name: "f".into() }));
            talk.input(Input::Engine(Event::ToolArguments { response, call: 0, arguments: "{}".into() }));
        }
        Step::Finishes => talk.finished(response, FinishReason::Stop),
        Step::Fails => {
            talk.input(Input::Engine(Event::Failed { response: Some(response), error: SessionError::OutOfMemory }));
        }
        Step::Time(ms) => talk.now += Duration::from_millis(ms),
        Step::Played(heard_ms) => {
            talk.input(Input::Playout(PlayoutReport::Started { response }));
            talk.hears(response, heard_ms);
        }
        Step::Drained => talk.input(Input::Playout(PlayoutReport::Drained { response })),
    }
}

proptest! {
    #[test]
    fn the_wire_stays_in_order(steps in prop::collection::vec(step(), 1..80), paced in any::<bool>()) {
        let mut talk = Talk::new(if paced { Delivery::Paced } else { Delivery::Unpaced });
        let mut received_ms = 0;
        for step in steps {
            happens(&mut talk, &mut received_ms, step);
        }
        let (mut names, mut active, mut out_of_band, mut items) = (HashSet::new(), None, HashSet::new(), HashSet::new());
        for event in &talk.events {
            prop_assert!(names.insert(event["event_id"].clone()), "a name was used twice");
            let response = || event["response"]["id"].clone();
            let is_out_of_band = event["response"]["conversation_id"].is_null();
            match event["type"].as_str().unwrap() {
                "response.created" if is_out_of_band => prop_assert!(out_of_band.insert(response())),
                "response.created" => {
                    prop_assert_eq!(&active, &None, "two answers at a time");
                    active = Some(response());
                }
                "response.done" if is_out_of_band => prop_assert!(out_of_band.remove(&response())),
                "response.done" => prop_assert_eq!(active.take(), Some(response())),
                "conversation.item.added" => prop_assert!(items.insert(event["item"]["id"].clone())),
                "conversation.item.done" => prop_assert!(items.contains(&event["item"]["id"])),
                "conversation.item.truncated" => prop_assert!(items.contains(&event["item_id"])),
                "conversation.item.deleted" => prop_assert!(items.remove(&event["item_id"])),
                kind if kind.starts_with("response.output") || kind.starts_with("response.function") => {
                    let of = &event["response_id"];
                    prop_assert!(active.as_ref() == Some(of) || out_of_band.contains(of), "{kind} of {of}");
                }
                _ => {}
            }
        }
        // The engine never hears of a commit without sound, of two items under one name, or of anything between a suspicion
        // and its end but of that.
        let (mut open, mut before, mut committed, mut suspected) = (0, 0, HashSet::new(), None);
        for command in &talk.commands {
            match command {
                Command::Append(samples) => {
                    prop_assert_eq!(suspected, None, "sound that nobody knows where to put");
                    open += samples.len();
                }
                Command::Clear => open = 0,
                Command::Commit { item } => {
                    prop_assert!(open > 0, "an empty commit");
                    prop_assert!(committed.insert(*item));
                    open = 0;
                }
                Command::BeginSpeculation { item, respond: answer } => {
                    prop_assert!(open > 0, "a suspicion without sound");
                    prop_assert!(committed.insert(*item));
                    prop_assert_eq!(suspected.replace(answer.response), None);
                    before = std::mem::take(&mut open);
                }
                Command::CommitSpeculation { response } => prop_assert_eq!(suspected.take(), Some(*response)),
                Command::AbortSpeculation { response } => {
                    prop_assert_eq!(suspected.take(), Some(*response));
                    open += before;
                }
                Command::Respond(respond) if !respond.out_of_band => prop_assert_eq!(suspected, None),
                Command::Insert { item, .. } => prop_assert!(committed.insert(*item)),
                _ => {}
            }
        }
    }
}
