//! `session.update`.

use repartee_engine_api::{Command, Eviction, ModelInfo};
use serde_json::{Value, json};

use super::super::{Delivery, Effect, RealtimeSession, SessionSetup};
use super::{Harness, model};

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

/// Truncation to a share of the tokens.
fn retention(share: f64, limit: u32) -> Value {
    let limits = json!({"post_instructions": limit});
    json!({"type": "retention_ratio", "retention_ratio": share, "token_limits": limits})
}

#[test]
fn truncation_reaches_the_engine() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (patch, engine) in [
        (json!("auto"), None),
        (json!("disabled"), Some(Eviction::Nothing)),
        (retention(0.5, 700), Some(Eviction::Oldest { kept: 0.5, most: Some(700) })),
        (retention(0.5, 700), None),
        (json!({"retention_ratio": 0.8}), Some(Eviction::Oldest { kept: 0.8, most: Some(700) })),
        (Value::Null, Some(Eviction::default())),
    ] {
        harness.clear();
        harness.update(json!({"truncation": patch}));
        let sent: Vec<_> = engine.map(Command::SetEviction).into_iter().collect();
        assert_eq!(harness.commands, sent, "{patch}");
        let session = &harness.find("session.updated")["session"];
        match &patch {
            Value::Null => assert_eq!(session["truncation"], "auto"),
            Value::Object(_) => assert_eq!(session["truncation"]["token_limits"]["post_instructions"], 700),
            name => assert_eq!(&session["truncation"], name),
        }
        assert_eq!(session["repartee"], Value::Null, "no warning");
    }
}

#[test]
fn wrong_field_is_named_and_changes_nothing() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (patch, param) in [
        (json!({"instructions": 3}), "session.instructions"),
        (json!({"max_output_tokens": "many"}), "session.max_output_tokens"),
        (json!({"max_output_tokens": 0}), "session.max_output_tokens"),
        (json!({"max_output_tokens": 4_097}), "session.max_output_tokens"),
        (json!({"truncation": "some"}), "session.truncation"),
        (json!({"truncation": {"type": "other"}}), "session.truncation.type"),
        (json!({"truncation": {"type": "retention_ratio"}}), "session.truncation.retention_ratio"),
        (json!({"truncation": retention(1.01, 100)}), "session.truncation.retention_ratio"),
        (json!({"truncation": retention(-0.5, 100)}), "session.truncation.retention_ratio"),
        (json!({"truncation": retention(0.5, 0)}), "session.truncation.token_limits.post_instructions"),
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

#[test]
fn integers_may_have_a_zero_fraction() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(json!({"max_output_tokens": 7.0, "audio": {
        "input": {"format": {"type": "audio/pcm", "rate": 16_000.0},
            "turn_detection": {"silence_duration_ms": 700.0, "prefix_padding_ms": 100.0, "idle_timeout_ms": 6_000.0}}}}));
    let session = &harness.find("session.updated")["session"];
    let input = &session["audio"]["input"];
    assert_eq!((&session["max_output_tokens"], &input["format"]["rate"]), (&json!(7), &json!(16_000)));
    assert_eq!(input["turn_detection"]["silence_duration_ms"], 700);
    assert_eq!(input["turn_detection"]["idle_timeout_ms"], 6_000);
    assert_eq!(session["repartee"], Value::Null);
}

/// Fields of the published types with a value of a wrong type, and the path of the error.
#[test]
fn wrong_types_have_their_whole_path() {
    for (patch, param) in [
        (json!(5), "session"),
        (json!({"audio": 5}), "session.audio"),
        (json!({"audio": {"input": {"format": "wav"}}}), "session.audio.input.format"),
        (json!({"audio": {"input": {"format": {"type": "audio/mp3"}}}}), "session.audio.input.format.type"),
        (json!({"audio": {"input": {"format": {"rate": "x"}}}}), "session.audio.input.format.rate"),
        (json!({"audio": {"input": {"turn_detection": "server_vad"}}}), "session.audio.input.turn_detection"),
        (json!({"audio": {"input": {"turn_detection": {"type": 4}}}}), "session.audio.input.turn_detection.type"),
        (
            json!({"audio": {"input": {"turn_detection": {"threshold": "x"}}}}),
            "session.audio.input.turn_detection.threshold",
        ),
        (
            json!({"audio": {"input": {"turn_detection": {"silence_duration_ms": -1}}}}),
            "session.audio.input.turn_detection.silence_duration_ms",
        ),
        (
            json!({"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "wild"}}}}),
            "session.audio.input.turn_detection.eagerness",
        ),
        (json!({"audio": {"input": {"transcription": {"language": 3}}}}), "session.audio.input.transcription.language"),
        (json!({"audio": {"output": {"voice": 3}}}), "session.audio.output.voice"),
        (json!({"audio": {"output": {"voice": {"id": 3}}}}), "session.audio.output.voice.id"),
        (json!({"output_modalities": "text"}), "session.output_modalities"),
        (json!({"output_modalities": ["smell"]}), "session.output_modalities[0]"),
        (json!({"tools": {}}), "session.tools"),
        (json!({"parallel_tool_calls": "no"}), "session.parallel_tool_calls"),
        (json!({"max_output_tokens": 1.5}), "session.max_output_tokens"),
        (json!({"max_output_tokens": {}}), "session.max_output_tokens"),
        (json!({"type": "chat"}), "session.type"),
    ] {
        let mut harness = Harness::new(Delivery::Unpaced);
        harness.update(patch.clone());
        assert_eq!(harness.event_types(), ["error"], "{patch}");
        let error = &harness.events[0]["error"];
        assert_eq!(error["param"], param, "{error}");
        let message = error["message"].as_str().unwrap();
        for rust in ["struct", "enum", "u32", "f64", "Vec", "variant of"] {
            assert!(!message.contains(rust), "{param}: {message}");
        }
    }
}

#[test]
fn beta_names_are_mapped_with_a_warning() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.update(
        json!({"type": "realtime", "turn_detection": null, "output_audio_format": "g711_ulaw", "voice": "bob"}),
    );
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["audio"]["input"]["turn_detection"], Value::Null);
    assert_eq!(session["audio"]["output"]["format"], json!({"type": "audio/pcmu"}));
    assert_eq!(session["audio"]["output"]["voice"], "bob");
    let warnings = session["repartee"]["warnings"].to_string();
    for name in ["session.audio.input.turn_detection", "session.audio.output.format", "session.audio.output.voice"] {
        assert!(warnings.contains(name), "{warnings}");
    }
    assert!(!warnings.contains("not known"), "{warnings}");
    harness.client(
        json!({"type": "response.create", "response": {"modalities": ["text"], "max_response_output_tokens": 5}}),
    );
    let created = harness.find("response.created");
    assert_eq!(created["response"]["output_modalities"], json!(["text"]));
    assert_eq!(created["response"]["max_output_tokens"], 5);
    assert!(created["repartee"]["warnings"].to_string().contains("response.output_modalities"));
}

#[test]
fn noise_reduction_is_set_changed_and_cleared() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let input = |reduction: Value| json!({"audio": {"input": {"noise_reduction": reduction}}});
    for (patch, shown, warned) in [
        (json!({"instructions": "Be kind."}), Value::Null, false),
        (input(json!({"type": "near_field"})), json!({"type": "near_field"}), false),
        (json!({"instructions": "Be short."}), json!({"type": "near_field"}), false),
        (input(json!({"type": "far_field"})), json!({"type": "far_field"}), false),
        (input(Value::Null), Value::Null, false),
        (json!({"input_audio_noise_reduction": {"type": "near_field"}}), json!({"type": "near_field"}), true),
        (
            json!({"type": "transcription", "audio": {"input": {"noise_reduction": {"type": "far_field"}}}}),
            json!({"type": "far_field"}),
            false,
        ),
    ] {
        harness.clear();
        harness.update(patch.clone());
        let session = &harness.find("session.updated")["session"];
        assert_eq!(session["audio"]["input"]["noise_reduction"], shown, "{patch}");
        let warnings = session["repartee"]["warnings"].to_string();
        assert_eq!(warnings.contains("noise_reduction"), warned, "{patch}: {warnings}");
    }
    harness.clear();
    harness.update(input(json!({"type": "mid_field"})));
    assert_eq!(harness.find("error")["error"]["param"], "session.audio.input.noise_reduction.type");
}

#[test]
fn default_instructions_hold_until_replaced() {
    let model = ModelInfo { instructions: "Be short.".into(), ..model() };
    let (session_id, stem) = ("sess_1".into(), "s".into());
    let setup = SessionSetup {
        session_id,
        stem,
        seed: 7,
        model: model.clone(),
        delivery: Delivery::Unpaced,
        expires_at: None,
        configuration: None,
        warnings: Vec::new(),
    };
    let (core, effects) = RealtimeSession::new(setup);
    assert_eq!(core.config().instructions, "Be short.");
    assert!(effects.iter().any(|effect| {
        matches!(effect, Effect::Engine(Command::SetInstructions(instructions)) if instructions == "Be short.")
    }));
    let mut harness = Harness::with_model(Delivery::Unpaced, model);
    harness.update(json!({"instructions": "Be kind."}));
    harness.update(json!({"audio": {"output": {"voice": "bob"}}}));
    assert_eq!(harness.find("session.updated")["session"]["instructions"], "Be kind.");
    harness.update(json!({"instructions": null}));
    assert_eq!(harness.find("session.updated")["session"]["instructions"], "Be short.");
    harness.update(json!({"instructions": ""}));
    assert_eq!(harness.find("session.updated")["session"]["instructions"], "");
    let sent = ["Be kind.", "Be short.", ""].map(|instructions| Command::SetInstructions(instructions.into()));
    assert_eq!(harness.commands, sent);
}
