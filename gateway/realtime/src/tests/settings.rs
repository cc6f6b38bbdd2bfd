//! `session.update`.

use repartee_engine_api::Command;
use serde_json::{Value, json};

use super::super::{Delivery, Effect};
use super::Harness;

#[test]
fn update_echoes_everything_in_effect() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"type": "realtime", "instructions": "Be kind."}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["instructions"], "Be kind.");
    assert_eq!(session["audio"]["input"]["turn_detection"]["interrupt_response"], true);
    assert_eq!(session["audio"]["input"]["format"], json!({"type": "audio/pcm", "rate": 24000}));
    assert_eq!(session["audio"]["output"]["voice"], "ada");
    assert_eq!(session["max_output_tokens"], "inf");
    assert_eq!(harness.commands, [Command::SetInstructions("Be kind.".into())]);
}

#[test]
fn absent_keeps_and_null_clears() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"instructions": "Be kind.", "audio": {"output": {"voice": "bob"}}, "max_output_tokens": 9}));
    harness.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}}}));
    let session = harness.find("session.updated")["session"].clone();
    assert_eq!(session["audio"]["output"]["voice"], "bob");
    assert_eq!(session["audio"]["input"]["turn_detection"]["threshold"], 0.9);
    assert_eq!(session["audio"]["input"]["turn_detection"]["silence_duration_ms"], 500);
    harness.update(json!({"instructions": null, "max_output_tokens": null,
        "audio": {"output": {"voice": null}, "input": {"turn_detection": null}}}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["instructions"], "");
    assert_eq!(session["max_output_tokens"], "inf");
    assert_eq!(session["audio"]["output"]["voice"], "ada");
    assert_eq!(session["audio"]["input"]["turn_detection"], Value::Null);
}

#[test]
fn wrong_field_is_named_and_changes_nothing() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (patch, param) in [
        (json!({"instructions": 3}), "session.instructions"),
        (json!({"max_output_tokens": "many"}), "session.max_output_tokens"),
        (json!({"max_output_tokens": 0}), "session.max_output_tokens"),
        (json!({"max_output_tokens": 4_097}), "session.max_output_tokens"),
        (json!({"truncation": "disabled"}), "session.truncation"),
        (json!({"tool_choice": "required"}), "session.tool_choice"),
        (json!({"tool_choice": {"type": "function", "name": "f"}}), "session.tool_choice"),
        (
            json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 7}}}}),
            "session.audio.input.turn_detection.threshold",
        ),
        (json!({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 1}}}}), "session.audio.input.format.rate"),
    ] {
        let before = harness.core.config().clone();
        harness.update(patch);
        assert_eq!(harness.events.last().unwrap()["error"]["param"], param);
        assert_eq!(harness.core.config(), &before);
    }
}

#[test]
fn reasoning_effort_is_a_warning() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"reasoning": {"effort": "low"}, "instructions": "Hi."}));
    assert_eq!(harness.event_types(), ["session.updated"]);
    let session = &harness.events[0]["session"];
    let warnings = json!(["session.reasoning is not offered by this model and was ignored"]);
    assert_eq!((&session["instructions"], &session["repartee"]["warnings"]), (&json!("Hi."), &warnings));
    assert!(harness.other_effects.contains(&Effect::Unsupported("session.reasoning")));
}

#[test]
fn max_output_tokens_has_the_published_range() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for limit in [json!(1), json!(4_096), json!("inf")] {
        harness.update(json!({"max_output_tokens": limit}));
        assert_eq!(harness.find("session.updated")["session"]["max_output_tokens"], limit);
    }
}

#[test]
fn session_says_when_it_expires() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"expires_at": 1, "id": "mine"}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!((&session["expires_at"], &session["id"]), (&json!(1_900_000_000), &json!("sess_1")));
}
