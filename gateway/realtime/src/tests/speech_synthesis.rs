//! Responses that speak given text while the client streams it.

use std::time::Duration;

use repartee_engine_api::{Command, FinishReason, ModelInfo};
use serde_json::{Value, json};

use super::super::{Delivery, SessionInput, given_text};
use super::{Harness, model};

fn append(harness: &mut Harness, text: &str) {
    harness.client(json!({"type": "repartee.text.append", "text": text}));
}

fn read(harness: &mut Harness) -> u64 {
    harness.client(json!({"type": "response.create", "response": {"repartee": {"reads": true}}}));
    harness.last_respond().unwrap().response
}

/// Given text that the engine received for a response; true if it also received the end.
fn got(harness: &Harness, of: u64) -> (String, bool) {
    let texts = harness.commands.iter().filter_map(|command| match command {
        Command::StreamText { response, text } if *response == of => Some(text.as_str()),
        _ => None,
    });
    (texts.collect(), harness.commands.contains(&Command::EndText { response: of }))
}

fn refused(harness: &Harness) -> &Value {
    let error = &harness.events.last().unwrap()["error"];
    assert_eq!(error["code"], "invalid_value", "{error}");
    &error["param"]
}

#[test]
fn text_streams_in_while_it_is_read() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = read(&mut harness);
    assert!(harness.last_respond().unwrap().streamed);
    append(&mut harness, "One two");
    assert_eq!(got(&harness, response), ("One two".into(), false));
    harness.engine_text(response, "One");
    harness.engine_audio(response, 80);
    assert_eq!(harness.find("response.output_audio_transcript.delta")["delta"], "One");
    append(&mut harness, " three.");
    harness.client(json!({"type": "repartee.text.done"}));
    assert_eq!(got(&harness, response), ("One two three.".into(), true));
    harness.engine_finished(response, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["response"]["status"], "completed");
    assert!(harness.find("response.created").get("repartee").is_none(), "no warning");
}

#[test]
fn texts_go_to_the_response_that_is_named() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let parameters = json!({"conversation": "none", "repartee": {"reads": true}});
        harness.client(json!({"type": "response.create", "response": parameters}));
        let id = harness.find("response.created")["response"]["id"].clone();
        ids.push((harness.last_respond().unwrap().response, id));
    }
    for (text, (_, id)) in ["first", "second"].into_iter().zip(&ids) {
        harness.client(json!({"type": "repartee.text.append", "response_id": id, "text": text}));
    }
    harness.client(json!({"type": "repartee.text.done", "response_id": ids[0].1}));
    assert_eq!(got(&harness, ids[0].0), ("first".into(), true));
    assert_eq!(got(&harness, ids[1].0), ("second".into(), false));
}

#[test]
fn text_waits_for_a_response_that_waits() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let first = harness.create_response();
    harness.client(json!({"type": "response.cancel"}));
    harness.client(json!({"type": "response.create", "response": {"repartee": {"reads": true}}}));
    append(&mut harness, "Wait.");
    harness.client(json!({"type": "repartee.text.done"}));
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::StreamText { .. })));
    harness.engine_finished(first, FinishReason::Cancelled);
    let response = harness.last_respond().unwrap().response;
    assert_eq!(got(&harness, response), ("Wait.".into(), true));
    let order: Vec<usize> = [
        harness.commands.iter().position(|command| matches!(command, Command::Respond(of) if of.response == response)),
        harness.commands.iter().position(|command| matches!(command, Command::StreamText { .. })),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(order.len() == 2 && order.is_sorted(), "{order:?}");
}

#[test]
fn text_without_a_reader_is_refused() {
    let mut harness = Harness::new(Delivery::Unpaced);
    append(&mut harness, "Nobody reads this.");
    assert_eq!(refused(&harness), "text");
    let response = read(&mut harness);
    harness.client(json!({"type": "repartee.text.done"}));
    append(&mut harness, "too late");
    assert_eq!(refused(&harness), "text");
    harness.engine_finished(response, FinishReason::Stop);
    harness.clear_events();
    // The text may have been in flight when the response ended.
    append(&mut harness, "too late");
    assert_eq!(harness.event_types(), Vec::<&str>::new());
}

#[test]
fn text_is_bounded() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = read(&mut harness);
    append(&mut harness, &"x".repeat(given_text::MAX_TEXT));
    append(&mut harness, "x");
    assert_eq!(refused(&harness), "text");
    assert_eq!(got(&harness, response).0.len(), given_text::MAX_TEXT);
}

#[test]
fn silent_client_ends_its_text() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = read(&mut harness);
    let begun = harness.now;
    harness.now = begun + Duration::from_secs(20);
    append(&mut harness, "One");
    assert_eq!(harness.core.deadline(), Some(harness.now + given_text::TEXT_TIMEOUT));
    harness.now = begun + given_text::TEXT_TIMEOUT;
    harness.input(SessionInput::DeadlineReached);
    assert_eq!(got(&harness, response), ("One".into(), false));
    harness.now = begun + Duration::from_secs(20) + given_text::TEXT_TIMEOUT;
    harness.input(SessionInput::DeadlineReached);
    assert_eq!(got(&harness, response), ("One".into(), true));
    assert_eq!(harness.core.deadline(), None);
}

#[test]
fn only_models_that_read_are_asked_to() {
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { given_text: false, ..model() });
    harness.client(json!({"type": "response.create", "response": {"repartee": {"reads": true}}}));
    assert_eq!(refused(&harness), "response.repartee.reads");
    let mut harness = Harness::new(Delivery::Unpaced);
    let silent = json!({"repartee": {"reads": true}, "output_modalities": ["text"]});
    harness.client(json!({"type": "response.create", "response": silent}));
    assert_eq!(refused(&harness), "response.output_modalities");
}
