//! Outcomes: every accepted client event is followed by its one outcome, in any interleaving with the engine.

use std::collections::HashMap;

use proptest::prelude::*;
use repartee_engine_api::{Command, Event, FinishReason, ModelInfo, SessionError};
use serde_json::{Value, json};

use super::super::{Delivery, PlayoutReport, SessionInput};
use super::{Harness, model};

impl Harness {
    fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|event| event["type"] == kind).count()
    }

    fn truncate(&mut self, item_id: &Value, ms: u64) {
        self.client(
            json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": ms}),
        );
    }
}

#[test]
fn a_cancelled_queued_response_begins_and_ends() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One ");
    for kind in ["cancel", "create", "cancel"] {
        harness.client(json!({"type": format!("response.{kind}"), "event_id": kind}));
    }
    harness.engine_finished(response, FinishReason::Cancelled);
    assert_eq!((harness.count("response.created"), harness.count("response.done")), (2, 2));
    assert!(harness.events.iter().filter(|event| event["type"] == "response.done").all(|event| {
        event["response"]["status_details"] == json!({"type": "cancelled", "reason": "client_cancelled"})
    }));
    assert_eq!(harness.count("error"), 0);
}

#[test]
fn cancelled_responses_in_a_queue_are_bounded() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.client(json!({"type": "response.cancel"}));
    for _ in 0..40 {
        harness.client(json!({"type": "response.create"}));
        harness.client(json!({"type": "response.cancel"}));
    }
    assert!(harness.count("error") > 0);
    harness.engine_finished(response, FinishReason::Cancelled);
    assert_eq!(harness.count("response.created"), harness.count("response.done"));
    assert_eq!(harness.count("response.created"), 17);
}

#[test]
fn barge_in_ends_a_queued_response() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.create_response();
    harness.client(json!({"type": "response.cancel"}));
    harness.client(json!({"type": "response.create"}));
    harness.input_audio(400);
    harness.turn(100, 300);
    harness.engine_finished(response, FinishReason::Cancelled);
    let reasons: Vec<_> =
        harness.events.iter().filter_map(|event| event["response"]["status_details"]["reason"].as_str()).collect();
    assert_eq!(reasons, ["client_cancelled", "turn_detected"]);
}

#[test]
fn every_truncation_of_an_active_item_is_reported() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One two three.");
    harness.engine_audio(response, 800);
    let item = harness.find("conversation.item.added")["item"]["id"].clone();
    harness.truncate(&item, 400);
    harness.truncate(&item, 9_000);
    harness.client(json!({"type": "response.cancel"}));
    assert_eq!(harness.count("error"), 0, "the response still stops");
    harness.engine_finished(response, FinishReason::Cancelled);
    let truncated: Vec<_> =
        harness.events.iter().filter(|event| event["type"] == "conversation.item.truncated").collect();
    assert_eq!(truncated.len(), 2);
    assert!(truncated.iter().all(|event| event["audio_end_ms"] == 400));
    assert!(truncated[1]["repartee"]["warnings"][0].as_str().unwrap().contains("9000"));
}

#[test]
fn deletion_follows_the_truncations_before_it() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One two.");
    harness.engine_audio(response, 800);
    let item = harness.find("conversation.item.added")["item"]["id"].clone();
    harness.clear();
    harness.truncate(&item, 400);
    harness.client(json!({"type": "conversation.item.delete", "item_id": item}));
    harness.engine_finished(response, FinishReason::Cancelled);
    let kinds = harness.event_types();
    let at = |kind: &str| kinds.iter().position(|other| *other == kind).unwrap();
    assert!(at("conversation.item.truncated") < at("conversation.item.deleted"), "{kinds:?}");
    assert_eq!(harness.count("conversation.item.truncated"), 1);
}

#[test]
fn items_of_earlier_conversations_are_truncated() {
    for (ms, kept) in [(0, ""), (500, "Hello"), (60_000, "Hello you there, my dear friend.")] {
        let mut harness = Harness::new(Delivery::Unpaced);
        let content = json!([{"type": "output_audio", "transcript": "Hello you there, my dear friend."}]);
        let item = json!({"id": "A", "type": "message", "role": "assistant", "content": content});
        harness.client(json!({"type": "conversation.item.create", "item": item}));
        harness.truncate(&json!("A"), ms);
        assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], ms);
        assert_eq!(harness.truncated_text(), Some(kept));
        harness.client(json!({"type": "conversation.item.retrieve", "item_id": "A"}));
        assert_eq!(harness.find("conversation.item.retrieved")["item"]["content"][0]["transcript"], kept);
    }
}

#[test]
fn clearing_silence_has_an_outcome() {
    let mut harness = Harness::new(Delivery::Paced);
    harness.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(harness.error_code(), "invalid_value");
    let response = harness.whole_response("Hi.", 80);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.input(SessionInput::Playout(PlayoutReport::Drained { response }));
    harness.clear_events();
    harness.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(harness.event_types(), ["output_audio_buffer.cleared"]);
}

#[test]
fn texts_that_cannot_be_encoded_change_nothing() {
    let long = "\u{5317}".repeat(22_000);
    let message =
        |role: &str, kind: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": long}]});
    for (event, param) in [
        (json!({"type": "session.update", "session": {"instructions": long}}), "session.instructions"),
        (json!({"type": "conversation.item.create", "item": message("user", "input_text")}), "item.content"),
        (json!({"type": "conversation.item.create", "item": message("assistant", "output_text")}), "item.content"),
        (json!({"type": "response.create", "response": {"instructions": long}}), "response.instructions"),
        (
            json!({"type": "response.create", "response": {"input": [message("user", "input_text")]}}),
            "response.input[0].content",
        ),
        (
            json!({"type": "conversation.item.create",
            "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": long}}),
            "item.arguments",
        ),
    ] {
        let mut harness = Harness::new(Delivery::Unpaced);
        let mut event = event;
        event["event_id"] = json!("E");
        harness.client(event);
        assert_eq!(harness.event_types(), ["error"]);
        let error = &harness.events[0]["error"];
        assert_eq!((&error["event_id"], &error["param"]), (&json!("E"), &json!(param)));
        assert_eq!(harness.commands, []);
        assert_eq!(harness.core.config().instructions, "");
    }
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { whole_texts: true, ..model() });
    harness.message("m", &"word ".repeat(20_000));
    assert_eq!(harness.event_types(), ["error"]);
}

#[test]
fn large_items_are_repeated_within_a_message() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.message("large", &"word ".repeat(240_000));
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": "large"}));
    assert_eq!(
        harness.event_types(),
        ["conversation.item.added", "conversation.item.done", "conversation.item.retrieved"]
    );
    for event in &harness.events {
        assert!(event.to_string().len() <= 1 << 20, "{}", event["type"]);
        assert!(event["repartee"]["warnings"][0].as_str().unwrap().contains("too large to repeat"));
    }
    let Some(Command::Insert { content: repartee_engine_api::MessageContent::Text { text, .. }, .. }) =
        harness.commands.last()
    else {
        panic!("{:?}", harness.commands.len())
    };
    assert_eq!(text.len(), 1_200_000, "the model has all of it");
}

/// Random step of the property below. Without turn detection all responses are requested.
#[derive(Debug, Clone)]
enum Step {
    Client(Value),
    /// Truncates or deletes the newest item of the model.
    OnItem(&'static str, u64),
    Audio(usize),
    Engine(EngineStep),
    Played(u64),
}

#[derive(Debug, Clone, Copy)]
enum EngineStep {
    Text,
    Audio,
    Call,
    Stop,
    Length,
    Failed,
}

fn step() -> impl Strategy<Value = Step> {
    let content = json!([{"type": "input_text", "text": "hello there"}]);
    let message = json!({"type": "message", "role": "user", "id": "mine", "content": content});
    let client = prop::sample::select(vec![
        json!({"type": "input_audio_buffer.commit"}),
        json!({"type": "input_audio_buffer.clear"}),
        json!({"type": "output_audio_buffer.clear"}),
        json!({"type": "session.update", "session": {"instructions": "Sing."}}),
        json!({"type": "session.update", "session": {"instructions": 5}}),
        json!({"type": "conversation.item.create", "item": message}),
        json!({"type": "conversation.item.create", "previous_item_id": "none", "item": message}),
        json!({"type": "conversation.item.delete", "item_id": "mine"}),
        json!({"type": "conversation.item.retrieve", "item_id": "mine"}),
        json!({"type": "conversation.item.truncate", "item_id": "mine", "content_index": 0, "audio_end_ms": 0}),
        json!({"type": "response.create"}),
        json!({"type": "response.create"}),
        json!({"type": "response.create", "response": {"repartee": {"reads": true}}}),
        json!({"type": "response.create", "response": {"conversation": "none"}}),
        json!({"type": "response.create", "response": {"conversation": "none", "output_modalities": ["text"]}}),
        json!({"type": "response.cancel"}),
        json!({"type": "response.cancel"}),
    ]);
    let engine = prop::sample::select(vec![
        EngineStep::Text,
        EngineStep::Audio,
        EngineStep::Call,
        EngineStep::Stop,
        EngineStep::Length,
        EngineStep::Failed,
    ]);
    prop_oneof![
        8 => client.prop_map(Step::Client),
        2 => (0_u64..900).prop_map(|ms| Step::OnItem("conversation.item.truncate", ms)),
        1 => Just(Step::OnItem("conversation.item.delete", 0)),
        1 => (1_usize..20).prop_map(|pieces| Step::Audio(pieces * 20)),
        8 => engine.prop_map(Step::Engine),
        1 => (0_u64..900).prop_map(Step::Played),
    ]
}

/// Accepted events whose outcome comes later.
#[derive(Default)]
struct Expected {
    creates: usize,
    cancels: usize,
    /// Truncations by item.
    truncations: HashMap<String, usize>,
}

/// Outcome of an event that is answered at once.
fn immediate(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "session.update" => "session.updated",
        "input_audio_buffer.commit" => "input_audio_buffer.committed",
        "input_audio_buffer.clear" => "input_audio_buffer.cleared",
        "conversation.item.create" => "conversation.item.done",
        "conversation.item.delete" => "conversation.item.deleted",
        "conversation.item.retrieve" => "conversation.item.retrieved",
        _ => return None,
    })
}

fn send(harness: &mut Harness, mut event: Value, expected: &mut Expected) -> Result<(), TestCaseError> {
    let (before, name) = (harness.events.len(), format!("e{}", harness.events.len()));
    event["event_id"] = json!(name);
    let kind = event["type"].as_str().unwrap().to_owned();
    harness.client_text(&event.to_string());
    let new = &harness.events[before..];
    let count = |kind: &str| new.iter().filter(|event| event["type"] == kind).count();
    let errors = count("error");
    if errors > 0 {
        prop_assert_eq!(errors, 1);
        prop_assert_eq!(new.len(), 1, "nothing changed, {:?}", new);
        prop_assert_eq!(&new[0]["error"]["event_id"], &json!(name));
        return Ok(());
    }
    match kind.as_str() {
        "response.create" => expected.creates += 1,
        "response.cancel" => expected.cancels += 1,
        "conversation.item.truncate" => {
            *expected.truncations.entry(event["item_id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        "output_audio_buffer.clear" => prop_assert!(count("output_audio_buffer.cleared") > 0),
        other => prop_assert_eq!(count(immediate(other).unwrap()), 1, "{}", other),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]
    #[test]
    fn accepted_events_have_one_outcome(steps in prop::collection::vec(step(), 1..60), paced in any::<bool>()) {
        let mut harness = Harness::new(if paced { Delivery::Paced } else { Delivery::Unpaced });
        harness.push_to_talk();
        let mut expected = Expected::default();
        for step in steps {
            let response = harness.core.responses.first().map_or(0, |response| response.engine_id);
            match step {
                Step::Client(event) => send(&mut harness, event, &mut expected)?,
                Step::OnItem(kind, ms) => {
                    let of_model = |event: &&Value| {
                        event["type"] == "conversation.item.added" && event["item"]["role"] != "user"
                    };
                    if let Some(added) = harness.events.iter().rev().find(of_model) {
                        let id = added["item"]["id"].clone();
                        let event = json!({"type": kind, "item_id": id, "content_index": 0, "audio_end_ms": ms});
                        send(&mut harness, event, &mut expected)?;
                    }
                }
                Step::Audio(ms) => harness.input_audio(ms),
                Step::Engine(EngineStep::Text) => harness.engine_text(response, "word "),
                Step::Engine(EngineStep::Audio) => harness.engine_audio(response, 80),
                Step::Engine(EngineStep::Call) => {
                    harness.input(SessionInput::Engine(Event::ToolCall { response, call: 0, name: "f".into() }));
                }
                Step::Engine(EngineStep::Stop) => harness.engine_finished(response, FinishReason::Stop),
                Step::Engine(EngineStep::Length) => harness.engine_finished(response, FinishReason::Length),
                Step::Engine(EngineStep::Failed) => harness.input(SessionInput::Engine(Event::Failed {
                    response: Some(response),
                    error: SessionError::Interrupted,
                })),
                Step::Played(ms) => {
                    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
                    harness.played(response, ms);
                }
            }
        }
        while let Some(response) = harness.core.responses.first().map(|response| response.engine_id) {
            harness.engine_finished(response, FinishReason::Stop);
        }
        prop_assert_eq!(harness.count("response.created"), expected.creates);
        prop_assert_eq!(harness.count("response.done"), expected.creates);
        let stopped = harness.events.iter().filter(|event| {
            event["type"] == "response.done"
                && (event["response"]["status"] == "cancelled" || event["response"]["status"] == "failed")
        });
        prop_assert!(stopped.count() >= expected.cancels);
        for (item, count) in expected.truncations {
            let reported = harness.events.iter().filter(|event| {
                event["type"] == "conversation.item.truncated" && event["item_id"] == item.as_str()
            });
            let reported = reported.count();
            // A cleared playback truncates too.
            prop_assert!(if paced { reported >= count } else { reported == count }, "{item}: {reported} of {count}");
        }
    }
}
