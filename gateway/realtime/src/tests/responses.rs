//! Responses: requests, cancellation, limits, failures.

use repartee_engine_api::{Command, Content, Event, FinishReason, Input as EngineInput, Role, SessionError};
use serde_json::{Value, json};

use super::super::{Delivery, Effect, Input};
use super::Harness;

#[test]
fn only_one_response_at_a_time() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.client(json!({"type": "response.create"}));
    assert_eq!(harness.error_code(), "conversation_already_has_active_response");
    harness.engine_finished(response, FinishReason::Stop);
    harness.create_response();
}

#[test]
fn cancel_without_a_response_is_an_error() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.client(json!({"type": "response.cancel"}));
    assert_eq!(harness.error_code(), "response_cancel_not_active");
    let response = harness.create_response();
    harness.client(json!({"type": "response.cancel", "response_id": "another"}));
    assert_eq!(harness.error_code(), "response_cancel_not_active");
    harness.client(json!({"type": "response.cancel"}));
    assert_eq!(harness.commands.last(), Some(&Command::Cancel { response }));
    harness.client(json!({"type": "response.cancel"}));
    assert_eq!(harness.error_code(), "response_cancel_not_active");
}

#[test]
fn cancelled_response_sends_nothing_and_queues_the_next() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One ");
    harness.client(json!({"type": "response.cancel"}));
    harness.clear();
    harness.client(json!({"type": "response.create"}));
    harness.engine_text(response, "two");
    harness.engine_audio(response, 80);
    assert_eq!(harness.event_types(), [""; 0]);
    harness.engine_finished(response, FinishReason::Cancelled);
    let response = &harness.find("response.done")["response"];
    assert_eq!(response["status_details"], json!({"type": "cancelled", "reason": "client_cancelled"}));
    assert_eq!(response["output"][0]["content"][0]["transcript"], "One ");
    assert_eq!(harness.event_types().last(), Some(&"response.created"));
    assert!(harness.last_respond().is_some());
}

#[test]
fn late_cancel_truncates_to_what_was_sent() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One ");
    harness.client(json!({"type": "response.cancel"}));
    harness.engine_text(response, "two");
    harness.engine_finished(response, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["response"]["status"], "cancelled");
    assert_eq!(harness.truncated_text(), Some("One "));
}

#[test]
fn token_limit_makes_a_response_incomplete() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.client(json!({"type": "response.create", "response": {"max_output_tokens": 3, "metadata": {"a": "b"}}}));
    let respond = harness.last_respond().unwrap().clone();
    assert_eq!(respond.max_tokens, Some(3));
    harness.engine_text(respond.response, "One");
    harness.engine_finished(respond.response, FinishReason::Length);
    let response = &harness.find("response.done")["response"];
    assert_eq!(response["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    assert_eq!(response["metadata"], json!({"a": "b"}));
}

#[test]
fn empty_response_has_no_item() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_finished(response, FinishReason::Stop);
    assert_eq!(harness.event_types(), ["response.created", "response.done", "rate_limits.updated"]);
    assert_eq!(harness.find("response.done")["response"]["output"], json!([]));
}

#[test]
fn response_instructions_hold_for_it_alone() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"instructions": "Base."}));
    harness.clear();
    let event = json!({"type": "response.create", "response": {"instructions": "Sing.", "audio": {"output": {"voice": "bob"}}}});
    harness.client(event);
    let [Command::Respond(respond)] = &harness.commands[..] else { panic!("{:?}", harness.commands) };
    assert_eq!((respond.instructions.as_deref(), respond.voice.as_deref()), (Some("Sing."), Some("bob")));
    assert_eq!(harness.find("response.created")["response"]["audio"]["output"]["voice"], "bob");
}

#[test]
fn invalid_request_fields_are_named() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (field, value, param) in [
        ("conversation", json!("another"), "response.conversation"),
        ("input", json!([{"type": "item_reference", "id": "x"}]), "response.input[0].id"),
        (
            "input",
            json!([{"type": "message", "role": "user", "content": [{"type": "output_text", "text": "x"}]}]),
            "response.input[0].content[0].type",
        ),
        ("tools", json!([{"type": "function"}]), "response.tools[0].name"),
        ("audio", json!({"output": {"format": {"type": "audio/pcm", "rate": 3}}}), "response.audio.output.format.rate"),
    ] {
        let mut event = json!({"type": "response.create", "response": {}});
        event["response"][field] = value;
        harness.client(event);
        assert_eq!(harness.events.last().unwrap()["error"]["param"], param);
    }
    assert_eq!(harness.last_respond(), None);
}

#[test]
fn out_of_band_response_runs_in_parallel() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.message("a", "hello");
    let first = harness.create_response();
    harness.engine_text(first, "One");
    harness.clear();
    let input = json!([{"type": "item_reference", "id": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which topic?"}]}]);
    harness.client(json!({"type": "response.create", "response": {"conversation": "none", "input": input,
        "instructions": "Classify.", "output_modalities": ["text"], "metadata": {"topic": "yes"}}}));
    let respond = harness.last_respond().unwrap().clone();
    assert!(respond.out_of_band && !respond.audio);
    assert_eq!(respond.instructions.as_deref(), Some("Classify."));
    let text = Content::Text { role: Role::User, text: "Which topic?".into() };
    assert!(
        matches!(&respond.input.as_deref(), Some([EngineInput::Item(_), EngineInput::Content(content)]) if *content == text)
    );
    harness.engine_text(respond.response, "Greetings");
    harness.engine_text(first, " two");
    harness.engine_finished(respond.response, FinishReason::Stop);
    let done = &harness.find("response.done")["response"];
    assert_eq!(done["conversation_id"], Value::Null);
    assert_eq!((&done["status"], &done["metadata"]["topic"]), (&json!("completed"), &json!("yes")));
    assert_eq!(done["output"][0]["content"], json!([{"type": "output_text", "text": "Greetings"}]));
    assert!(
        !harness.event_types().iter().any(|kind| kind.starts_with("conversation.item")),
        "{:?}",
        harness.event_types()
    );
    harness.engine_finished(first, FinishReason::Stop);
    let done = &harness.find("response.done")["response"];
    assert_eq!(done["output"][0]["content"][0]["transcript"], "One two");
    assert_eq!(done["conversation_id"], "conv_s");
}

#[test]
fn paced_spoken_responses_never_overlap() {
    let mut harness = Harness::new(Delivery::Paced);
    let first = harness.create_response();
    harness.clear();
    harness.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
    assert_eq!(harness.event_types(), [""; 0]);
    harness.engine_finished(first, FinishReason::Stop);
    assert!(harness.last_respond().unwrap().out_of_band);
    // Text does not need the audio track.
    harness.client(
        json!({"type": "response.create", "response": {"conversation": "none", "output_modalities": ["text"]}}),
    );
    assert!(!harness.last_respond().unwrap().audio);
}

#[test]
fn out_of_band_responses_are_bounded() {
    for delivery in [Delivery::Paced, Delivery::Unpaced] {
        let mut harness = Harness::new(delivery);
        harness.create_response();
        for _ in 0..2 {
            harness.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
            assert!(!harness.event_types().contains(&"error"));
        }
        harness.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
        assert_eq!(harness.error_code(), "conversation_already_has_active_response");
    }
}

#[test]
fn failed_response_says_why() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    let error = SessionError::ContextFull { tokens: 9, limit: 8 };
    harness.input(Input::Engine(Event::Failed { response: Some(response), error }));
    let details = &harness.find("response.done")["response"]["status_details"];
    assert_eq!((&details["type"], &details["error"]["code"]), (&json!("failed"), &json!("conversation_too_large")));
    assert!(!harness.other_effects.contains(&Effect::Close), "the session lives on");
    let response = harness.create_response();
    let error = SessionError::NotFinite { stage: "talker" };
    harness.input(Input::Engine(Event::Failed { response: Some(response), error }));
    assert_eq!(harness.other_effects.last(), Some(&Effect::Close));
}

#[test]
fn engine_end_closes_the_session() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.input(Input::EngineEnded);
    assert_eq!(harness.error_code(), "internal_error");
    assert_eq!(harness.other_effects.last(), Some(&Effect::Close));
}

#[test]
fn metadata_is_bounded() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let metadata = json!({"a": "x".repeat(20_000)});
    harness.client(json!({"type": "response.create", "response": {"metadata": metadata}}));
    assert_eq!(harness.events.last().unwrap()["error"]["param"], "response.metadata");
    assert_eq!(harness.last_respond(), None);
}
