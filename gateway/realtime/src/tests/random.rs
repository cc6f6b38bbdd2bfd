//! Random interleavings of all inputs: no panic, and the wire's invariants hold.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use repartee_engine_api::{Command, Event, FinishReason, SessionError};
use repartee_media::vad::TurnEvent;
use serde_json::{Value, json};

use super::super::{Delivery, PlayoutReport, SessionInput};
use super::Harness;

/// Random input of the session.
#[derive(Debug, Clone)]
enum Step {
    InputAudio(usize),
    SpeechStarted,
    Paused,
    Resumed,
    SpeechStopped,
    PossibleBargeIn,
    BargeInDismissed,
    Client(Value),
    EngineText,
    EngineToolCall,
    EngineAudio,
    EngineFinished,
    EngineFailed,
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
        json!({"type": "session.update", "session": {"repartee": {"speculative_start": false}, "tools": [{"name": "f"}], "parallel_tool_calls": false}}),
        json!({"type": "response.create", "response": {"repartee": {"reads": true}}}),
        json!({"type": "repartee.text.append", "text": "read this"}),
        json!({"type": "repartee.text.done"}),
        json!({"type": "session.update", "session": {"repartee": {"slice_ms": 200}}}),
        json!({"type": "session.update", "session": {"repartee": {"slice_ms": null}}}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}),
        json!({"type": "conversation.item.create", "previous_item_id": "root",
            "item": {"type": "message", "role": "user", "id": "mine", "content": content}}),
        json!({"type": "conversation.item.create", "previous_item_id": "mine",
            "item": {"type": "function_call_output", "call_id": "c", "output": "x"}}),
        json!({"type": "conversation.item.create",
            "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}}),
        json!({"type": "conversation.item.delete", "item_id": "mine"}),
        json!({"type": "response.create", "response": {"conversation": "none", "output_modalities": ["text"]}}),
        json!({"type": "response.create", "response": {"conversation": "none",
            "input": [{"type": "message", "role": "user", "content": content}]}}),
        // Item ids depend on the steps before: these ids sometimes exist.
        json!({"type": "conversation.item.delete", "item_id": "item_s_7"}),
        json!({"type": "conversation.item.truncate", "item_id": "item_s_7", "content_index": 0, "audio_end_ms": 40}),
        json!({"type": "conversation.item.truncate", "item_id": "item_s_12", "content_index": 0, "audio_end_ms": 4_000}),
    ]);
    prop_oneof![
        (1usize..20).prop_map(|pieces| Step::InputAudio(pieces * 20)),
        Just(Step::SpeechStarted),
        Just(Step::Paused),
        Just(Step::Resumed),
        Just(Step::SpeechStopped),
        Just(Step::PossibleBargeIn),
        Just(Step::BargeInDismissed),
        client.prop_map(Step::Client),
        Just(Step::EngineText),
        Just(Step::EngineToolCall),
        Just(Step::EngineAudio),
        Just(Step::EngineFinished),
        Just(Step::EngineFailed),
        (0u64..9_000).prop_map(Step::Time),
        (0u64..2_000).prop_map(Step::Played),
        Just(Step::Drained),
    ]
}

fn run_step(harness: &mut Harness, received_ms: &mut u64, step: Step) {
    let response = harness.last_respond().map_or(0, |respond| respond.response);
    match step {
        Step::InputAudio(ms) => {
            harness.input_audio(ms);
            *received_ms += ms as u64;
        }
        Step::SpeechStarted => {
            let audio_start_ms = received_ms.saturating_sub(300);
            harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms }));
        }
        Step::Paused => {
            harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: received_ms.saturating_sub(20) }))
        }
        Step::Resumed => {
            harness.input(SessionInput::Turn(TurnEvent::Resumed { audio_ms: received_ms.saturating_sub(10) }))
        }
        Step::SpeechStopped => {
            harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: *received_ms }))
        }
        Step::PossibleBargeIn => {
            harness.input(SessionInput::Turn(TurnEvent::PossibleBargeIn { audio_ms: *received_ms }));
        }
        Step::BargeInDismissed => {
            harness.input(SessionInput::Turn(TurnEvent::BargeInDismissed { audio_ms: *received_ms }));
        }
        Step::Client(event) => harness.client(event),
        Step::EngineText => harness.engine_text(response, "word "),
        Step::EngineAudio => harness.engine_audio(response, 80),
        Step::EngineToolCall => {
            harness.input(SessionInput::Engine(Event::ToolCall { response, call: 0, name: "f".into() }));
            harness.input(SessionInput::Engine(Event::ToolArguments { response, call: 0, arguments: "{}".into() }));
        }
        Step::EngineFinished => harness.engine_finished(response, FinishReason::Stop),
        Step::EngineFailed => {
            harness.input(SessionInput::Engine(Event::Failed {
                response: Some(response),
                error: SessionError::OutOfMemory,
            }));
        }
        Step::Time(ms) => harness.now += Duration::from_millis(ms),
        Step::Played(heard_ms) => {
            harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
            harness.played(response, heard_ms);
        }
        Step::Drained => harness.input(SessionInput::Playout(PlayoutReport::Drained { response })),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn random_interleavings_keep_the_wire_in_order(steps in prop::collection::vec(step(), 1..80), paced in any::<bool>()) {
        let mut harness = Harness::new(if paced { Delivery::Paced } else { Delivery::Unpaced });
        let mut received_ms = 0;
        for step in steps {
            run_step(&mut harness, &mut received_ms, step);
        }
        let (mut names, mut active, mut out_of_band, mut items) = (HashSet::new(), None, HashSet::new(), HashSet::new());
        for event in &harness.events {
            prop_assert!(names.insert(event["event_id"].clone()), "an event id was used twice");
            let response = || event["response"]["id"].clone();
            let is_out_of_band = event["response"]["conversation_id"].is_null();
            match event["type"].as_str().unwrap() {
                "response.created" if is_out_of_band => prop_assert!(out_of_band.insert(response())),
                "response.created" => {
                    prop_assert_eq!(&active, &None, "two responses at a time");
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
        // The engine never gets an empty commit, a duplicate item id, or audio and responses during a speculation.
        let (mut open, mut before, mut committed, mut speculating) = (0, 0, HashSet::new(), None);
        for command in &harness.commands {
            match command {
                Command::Append(samples) => {
                    prop_assert_eq!(speculating, None, "audio during a speculation");
                    open += samples.len();
                }
                Command::Clear => open = 0,
                Command::Commit { item } => {
                    prop_assert!(open > 0, "an empty commit");
                    prop_assert!(committed.insert(*item));
                    open = 0;
                }
                Command::BeginSpeculation { item, respond } => {
                    prop_assert!(open > 0, "an empty speculation");
                    prop_assert!(committed.insert(*item));
                    prop_assert_eq!(speculating.replace(respond.response), None);
                    before = std::mem::take(&mut open);
                }
                Command::CommitSpeculation { response } => prop_assert_eq!(speculating.take(), Some(*response)),
                Command::AbortSpeculation { response } => {
                    prop_assert_eq!(speculating.take(), Some(*response));
                    open += before;
                }
                Command::Respond(respond) if !respond.out_of_band => prop_assert_eq!(speculating, None),
                Command::Insert { item, .. } => prop_assert!(committed.insert(*item)),
                _ => {}
            }
        }
    }
}
