//! Responses: requests, cancellation, limits, failures.

use repartee_engine_api::{Command, Event, FinishReason, SessionError};
use serde_json::json;

use super::super::{Delivery, Effect, SessionInput};
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
    assert_eq!(harness.event_types()[harness.events.len() - 2..], ["response.created", "rate_limits.updated"]);
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
    assert_eq!(harness.event_types(), ["response.created", "rate_limits.updated", "response.done"]);
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
        ("max_output_tokens", json!("many"), "response.max_output_tokens"),
        ("max_output_tokens", json!(0), "response.max_output_tokens"),
        ("max_output_tokens", json!(4_097), "response.max_output_tokens"),
        ("tool_choice", json!("required"), "response.tool_choice"),
        ("instructions", json!(["x"]), "response.instructions"),
    ] {
        let mut event = json!({"type": "response.create", "response": {}});
        event["response"][field] = value;
        harness.client(event);
        assert_eq!(harness.events.last().unwrap()["error"]["param"], param);
    }
    assert_eq!(harness.last_respond(), None);
}

#[test]
fn failed_response_says_why() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    let error = SessionError::ContextFull { tokens: 9, limit: 8 };
    harness.input(SessionInput::Engine(Event::Failed { response: Some(response), error }));
    let details = &harness.find("response.done")["response"]["status_details"];
    assert_eq!((&details["type"], &details["error"]["code"]), (&json!("failed"), &json!("conversation_too_large")));
    assert!(!harness.other_effects.contains(&Effect::Close), "the session lives on");
    let response = harness.create_response();
    let error = SessionError::NotFinite { stage: "talker" };
    harness.input(SessionInput::Engine(Event::Failed { response: Some(response), error }));
    assert_eq!(harness.other_effects.last(), Some(&Effect::Close));
}

#[test]
fn failures_that_a_client_can_mend_are_typed() {
    for (error, kind, code, param) in [
        (SessionError::OutOfMemory, "server_error", "session_limit_reached", json!(null)),
        (SessionError::UnknownItem(9), "invalid_request_error", "invalid_value", json!(null)),
        (SessionError::bad("text", "not encodable", "text"), "invalid_request_error", "invalid_value", json!("text")),
        (
            SessionError::bad("streamed", true, "false"),
            "invalid_request_error",
            "invalid_value",
            json!("response.repartee.reads"),
        ),
        // The client cannot correct these.
        (SessionError::bad("response", 7, "another id"), "server_error", "internal_error", json!(null)),
    ] {
        let mut harness = Harness::new(Delivery::Unpaced);
        let response = harness.create_response();
        harness.input(SessionInput::Engine(Event::Failed { response: Some(response), error }));
        let failure = &harness.find("response.done")["response"]["status_details"]["error"];
        assert_eq!((&failure["type"], &failure["code"]), (&json!(kind), &json!(code)));
        let error = &harness.find("error")["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!(code), &param));
        assert!(!harness.other_effects.contains(&Effect::Close));
    }
}

#[test]
fn engine_end_closes_the_session() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.input(SessionInput::EngineEnded);
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

#[test]
fn unserved_overrides_are_warnings() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let overrides = json!({"instructions": "Sing.", "prompt": {"id": "p"}, "reasoning": {"effort": "low"},
        "output_modalities": ["text", "audio"], "tools": [{"type": "mcp", "server_label": "x"}], "metadata": {"a": "b"},
        "audio": {"output": {"voice": "marin", "speed": 1.2}}, "new_thing": 1, "max_output_tokens": null});
    harness.client(json!({"type": "response.create", "response": overrides}));
    assert_eq!(harness.event_types(), ["response.created", "rate_limits.updated"]);
    assert_eq!(
        harness.find("response.created")["repartee"]["warnings"],
        json!([
            "response.tools is served differently",
            "response.audio.output.speed is not known here and was ignored",
            "response.audio.output.voice: `marin` is served as `ada`",
            "response.new_thing is not known here and was ignored",
            "response.output_modalities is served differently",
            "response.prompt is not offered by this model and was ignored",
            "response.reasoning is not offered by this model and was ignored",
        ])
    );
    assert!(harness.other_effects.contains(&Effect::Unsupported("a setting of response.create")));
    let response = harness.last_respond().unwrap().response;
    harness.engine_finished(response, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["repartee"], json!(null), "said once");
}

#[test]
fn served_overrides_have_no_warning() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]);
    let overrides = json!({"instructions": "Sing.", "conversation": "none", "input": input, "metadata": {"a": "b"},
        "output_modalities": ["audio"], "tools": [{"name": "f"}], "tool_choice": "auto", "max_output_tokens": 4_096,
        "parallel_tool_calls": false, "audio": {"output": {"voice": {"id": "bob"}, "format": {"type": "audio/pcm"}}}});
    harness.client(json!({"type": "response.create", "response": overrides}));
    assert_eq!(harness.find("response.created")["repartee"], json!(null));
    assert_eq!(harness.last_respond().unwrap().voice.as_deref(), Some("bob"));
}

#[test]
fn rate_limits_follow_the_beginning_of_a_response() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.whole_response("Hello.", 80);
    let types = harness.event_types();
    assert_eq!(types[..2], ["response.created", "rate_limits.updated"]);
    assert_eq!(types.iter().filter(|kind| **kind == "rate_limits.updated").count(), 1);
}
