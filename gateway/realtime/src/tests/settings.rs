//! `session.update`.

use repartee_engine_api::Command;
use serde_json::{Value, json};

use super::super::Delivery;
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
