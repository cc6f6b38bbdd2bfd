//! Behaviour of transcription sessions.

use repartee_engine_api::{Command, FinishReason, ModelInfo};
use serde_json::{Value, json};

use super::super::{Delivery, initial_session};
use super::transcription::{COMPLETED, DELTA};
use super::{Harness, model};

impl Harness {
    /// Creates a transcription session.
    fn transcription(input: Value) -> Self {
        let mut harness = Self::new(Delivery::Unpaced);
        harness.update(json!({"type": "transcription", "audio": {"input": input}}));
        harness
    }

    /// Completes the newest transcript request; returns its engine item.
    fn written_down(&mut self) -> u64 {
        let response = self.requests().last().expect("a transcript is asked for").response;
        self.engine_input_text(response, "Hello.");
        self.engine_finished(response, FinishReason::Stop);
        response
    }

    fn deleted(&self) -> Vec<u64> {
        let deleted = self.commands.iter().filter_map(|command| match command {
            Command::Delete { item } => Some(*item),
            _ => None,
        });
        deleted.collect()
    }
}

#[test]
fn transcription_session_says_what_it_hears() {
    let harness = Harness::transcription(json!({"transcription": {"model": "whisper-1", "language": "en"}}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!(
        (&session["type"], &session["object"]),
        (&json!("transcription"), &json!("realtime.transcription_session"))
    );
    assert_eq!(session["audio"]["input"]["transcription"], json!({"model": "test", "language": "en"}));
    let detection = &session["audio"]["input"]["turn_detection"];
    assert_eq!((&detection["type"], &detection["create_response"]), (&json!("server_vad"), &json!(false)));
    for field in ["voice", "tools", "instructions", "output_modalities"] {
        assert!(session.get(field).is_none() && session["audio"].get("output").is_none(), "{session}");
    }
}

#[test]
fn transcription_session_answers_no_turn() {
    let mut harness =
        Harness::transcription(json!({"turn_detection": {"type": "server_vad", "create_response": true}}));
    assert!(harness.find("session.updated")["session"]["repartee"]["warnings"][0].as_str().unwrap().contains("create"));
    harness.clear();
    let item = harness.spoken_turn(0);
    harness.written_down();
    assert_eq!(
        harness.event_types(),
        [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            DELTA,
            COMPLETED
        ]
    );
    assert_eq!(harness.find(COMPLETED)["item_id"], json!(item));
    assert_eq!(harness.requests().len(), 1);
    assert!(harness.last_respond().is_none(), "nothing but a transcript is made");
}

#[test]
fn transcription_session_takes_commits() {
    let mut harness = Harness::transcription(json!({"turn_detection": null, "transcription": {}}));
    assert_eq!(harness.find("session.updated")["session"]["audio"]["input"]["turn_detection"], Value::Null);
    for _ in 0..2 {
        harness.input_audio(500);
        harness.client(json!({"type": "input_audio_buffer.commit"}));
        harness.written_down();
    }
    let committed = harness.find("input_audio_buffer.committed")["item_id"].clone();
    assert_eq!(harness.find(COMPLETED)["item_id"], committed);
    assert_eq!(harness.requests().len(), 2);
}

#[test]
fn transcribed_turns_leave_the_engine() {
    let mut harness = Harness::transcription(json!({}));
    let first = harness.spoken_turn(0);
    let committed = harness.commands.iter().find_map(|command| match command {
        Command::Commit { item } => Some(*item),
        _ => None,
    });
    assert!(harness.deleted().is_empty());
    harness.written_down();
    assert_eq!(harness.deleted(), [committed.unwrap()]);
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": first}));
    assert_eq!(harness.find("conversation.item.retrieved")["item"]["content"][0]["transcript"], "Hello.");
    harness.client(json!({"type": "conversation.item.delete", "item_id": first}));
    assert_eq!(harness.find("conversation.item.deleted")["item_id"], json!(first));
    assert_eq!(harness.deleted().len(), 1, "not a second time");
    // A conversation keeps its turns.
    let mut harness = Harness::new(Delivery::Unpaced);
    let detection = json!({"type": "server_vad", "create_response": false});
    harness.update(json!({"audio": {"input": {"transcription": {}, "turn_detection": detection}}}));
    harness.spoken_turn(0);
    harness.written_down();
    assert!(harness.deleted().is_empty());
}

#[test]
fn transcription_session_refuses_responses() {
    let mut harness = Harness::transcription(json!({}));
    harness.client(json!({"type": "response.create", "event_id": "mine"}));
    let error = &harness.find("error")["error"];
    assert_eq!((&error["code"], &error["event_id"]), (&json!("not_in_transcription_session"), &json!("mine")));
    harness.message("one", "Hello?");
    assert_eq!(harness.error_code(), "not_in_transcription_session");
    assert!(harness.last_respond().is_none());
}

#[test]
fn session_type_is_fixed_once_spoken() {
    let mut harness = Harness::transcription(json!({}));
    harness.update(json!({"type": "realtime", "instructions": "Be kind."}));
    assert_eq!(harness.find("session.updated")["session"]["instructions"], "Be kind.");
    harness.update(json!({"type": "transcription"}));
    assert!(harness.commands.contains(&Command::SetInstructions(String::new())));
    harness.spoken_turn(0);
    harness.written_down();
    harness.update(json!({"type": "realtime"}));
    assert_eq!(harness.find("error")["error"]["param"], "session.type");
    assert_eq!(serde_json::to_value(harness.core.config()).unwrap()["type"], "transcription");
    harness.update(json!({"type": "transcription", "audio": {"input": {"transcription": {"language": "de"}}}}));
    assert_eq!(harness.find("session.updated")["session"]["audio"]["input"]["transcription"]["language"], "de");
}

#[test]
fn transcription_needs_a_model_that_can() {
    let deaf = ModelInfo { transcribes: false, ..model() };
    let patch = json!({"type": "transcription"});
    let error = initial_session("sess_1", &deaf, &patch).unwrap_err();
    assert_eq!(
        (error.code.as_deref(), error.param.as_deref()),
        (Some("transcription_not_available"), Some("session.type"))
    );
    let mut harness = Harness::with_model(Delivery::Unpaced, deaf);
    harness.update(patch);
    assert_eq!(harness.event_types(), ["error"]);
    assert_eq!(harness.error_code(), "transcription_not_available");
    harness.update(json!({"type": "dictation"}));
    assert_eq!(harness.find("error")["error"]["param"], "session.type");
}
