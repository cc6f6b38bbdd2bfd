//! Out-of-band responses.

use repartee_engine_api::{Command, FinishReason, MessageContent, ResponseInput, Role};
use serde_json::{Value, json};

use super::super::{Delivery, Effect};
use super::Harness;

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
    let text = MessageContent::Text { role: Role::User, text: "Which topic?".into() };
    assert!(
        matches!(&respond.input.as_deref(), Some([ResponseInput::Item(_), ResponseInput::Content(content)]) if *content == text)
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
    assert_eq!(harness.event_types(), ["response.created", "rate_limits.updated"], "with an id to cancel it by");
    assert_eq!(harness.last_respond(), None);
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
fn queued_out_of_band_response_cancelled_by_id() {
    let mut harness = Harness::new(Delivery::Paced);
    let first = harness.create_response();
    harness.clear();
    for _ in 0..2 {
        harness.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
    }
    let waiting: Vec<_> = harness.events.iter().filter(|event| event["type"] == "response.created").collect();
    let (cancelled, other) = (waiting[0]["response"]["id"].clone(), waiting[1]["response"]["id"].clone());
    assert_eq!(harness.last_respond(), None, "the audio track is taken");
    harness.clear_events();
    harness.client(json!({"type": "response.cancel", "response_id": cancelled}));
    let done = &harness.find("response.done")["response"];
    assert_eq!((&done["id"], &done["status"]), (&cancelled, &json!("cancelled")));
    assert_eq!(done["status_details"]["reason"], "client_cancelled");
    assert_eq!(done["output"], json!([]));
    assert_eq!(harness.commands, [], "the engine never heard of it");
    harness.client(json!({"type": "response.cancel", "response_id": cancelled}));
    assert_eq!(harness.error_code(), "response_cancel_not_active");
    // The other response follows the first.
    harness.clear();
    harness.engine_finished(first, FinishReason::Stop);
    let respond = harness.last_respond().unwrap().response;
    assert!(!harness.event_types().contains(&"response.created"), "it was announced before");
    harness.engine_finished(respond, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["response"]["id"], other);
    assert!(harness.other_effects.iter().any(|effect| matches!(effect, Effect::CountResponse(_))));
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::Cancel { .. })));
}
