//! Transcripts of the caller's turns.

use std::time::Duration;

use repartee_engine_api::{Command, Event, FinishReason, ModelInfo, SessionError, Transcribe};
use serde_json::{Value, json};

use super::super::{Delivery, Effect, SessionInput};
use super::{Harness, model};

pub(super) const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";
pub(super) const FAILED: &str = "conversation.item.input_audio_transcription.failed";
pub(super) const DELTA: &str = "conversation.item.input_audio_transcription.delta";

impl Harness {
    /// Session with transcription and without automatic responses.
    fn transcribing(settings: Value) -> Self {
        let mut harness = Self::new(Delivery::Unpaced);
        let detection = json!({"type": "server_vad", "create_response": false});
        harness.update(json!({"audio": {"input": {"transcription": settings, "turn_detection": detection}}}));
        assert_eq!(harness.find("session.updated")["session"]["audio"]["input"]["transcription"]["model"], "test");
        harness.clear();
        harness
    }

    /// Adds a turn of one second; returns its item id.
    pub(super) fn spoken_turn(&mut self, start: u64) -> String {
        self.input_audio(1_000);
        self.turn(start, start + 1_000);
        self.find("input_audio_buffer.committed")["item_id"].as_str().unwrap().to_owned()
    }

    /// Transcript requests to the engine.
    pub(super) fn requests(&self) -> Vec<&Transcribe> {
        let requests = self.commands.iter().filter_map(|command| match command {
            Command::Transcribe(request) => Some(request),
            _ => None,
        });
        requests.collect()
    }

    fn refuse(&mut self, response: u64, error: SessionError) {
        self.input(SessionInput::Engine(Event::Failed { response: Some(response), error }));
    }
}

#[test]
fn turns_are_transcribed_out_of_band() {
    let mut harness = Harness::transcribing(json!({"language": "en", "prompt": "Names: Ada."}));
    let item = harness.spoken_turn(0);
    let commit = harness.commands.iter().find_map(|command| match command {
        Command::Commit { item } => Some(*item),
        _ => None,
    });
    let request = (*harness.requests().last().unwrap()).clone();
    assert_eq!(Some(request.item), commit);
    assert_eq!((request.language.as_deref(), &*request.prompt), (Some("en"), "Names: Ada."));
    harness.clear();
    harness.engine_input_text(request.response, "What is ");
    harness.engine_input_text(request.response, "What is that? ");
    harness.engine_finished(request.response, FinishReason::Stop);
    assert_eq!(harness.event_types(), [DELTA, DELTA, COMPLETED]);
    assert_eq!(harness.events[0]["delta"], "What is ");
    let done = harness.find(COMPLETED);
    assert_eq!((&done["item_id"], &done["content_index"]), (&json!(item), &json!(0)));
    assert_eq!((&done["transcript"], &done["usage"]["type"]), (&json!("What is that?"), &json!("tokens")));
    assert_eq!(done["usage"]["total_tokens"], 3);
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": item}));
    let kept = &harness.find("conversation.item.retrieved")["item"]["content"][0];
    assert_eq!(kept["transcript"], "What is that?");
}

#[test]
fn deltas_are_of_text_that_stays() {
    let mut harness = Harness::transcribing(json!({}));
    harness.spoken_turn(0);
    let (response, item) = (harness.requests()[0].response, harness.requests()[0].item);
    harness.clear();
    for (text, stable) in [("What if", 0), ("What is", 5), ("What is that", 5), ("What is that?", 13)] {
        let text = text.to_owned();
        harness.input(SessionInput::Engine(Event::InputText { response: Some(response), item, text, stable }));
    }
    harness.engine_finished(response, FinishReason::Stop);
    let deltas: Vec<_> = harness.events.iter().filter(|event| event["type"] == DELTA).collect();
    assert_eq!(deltas.iter().map(|event| &event["delta"]).collect::<Vec<_>>(), ["What ", "is that?"]);
    assert_eq!(harness.find(COMPLETED)["transcript"], "What is that?");
}

#[test]
fn one_turn_is_transcribed_at_a_time() {
    let mut harness = Harness::transcribing(json!({}));
    let items: Vec<_> = (0..3).map(|turn| harness.spoken_turn(turn * 1_000)).collect();
    assert_eq!(harness.requests().len(), 1);
    assert!(!harness.core.is_idle(), "a server that goes down waits for it");
    for (number, item) in items.iter().enumerate() {
        let response = harness.requests()[number].response;
        harness.engine_finished(response, FinishReason::Stop);
        assert_eq!(harness.find(COMPLETED)["item_id"], json!(item));
    }
    assert!(harness.core.is_idle());
    assert_eq!(harness.requests().len(), 3);
}

#[test]
fn waiting_turns_are_bounded() {
    let mut harness = Harness::transcribing(json!({}));
    // One transcript is in progress, sixteen wait.
    let items: Vec<_> = (0..18).map(|turn| harness.spoken_turn(turn * 1_000)).collect();
    let failed: Vec<_> = harness.events.iter().filter(|event| event["type"] == FAILED).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["item_id"], json!(items[17]));
    assert_eq!(failed[0]["error"]["code"], "input_audio_transcription_failed");
}

#[test]
fn transcripts_are_off_unless_asked_for_and_able() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.spoken_turn(0);
    assert!(harness.requests().is_empty());
    let deaf = ModelInfo { transcribes: false, ..model() };
    let mut harness = Harness::with_model(Delivery::Unpaced, deaf);
    harness.update(json!({"audio": {"input": {"transcription": {"model": "whisper-1"}}}}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["audio"]["input"]["transcription"], Value::Null);
    // Some stock clients always enable it, and some end on an error.
    assert!(session["repartee"]["warnings"][0].as_str().unwrap().contains("transcription"), "{session}");
    assert!(harness.other_effects.contains(&Effect::Unsupported("session.audio.input.transcription")));
    assert_eq!(harness.event_types(), ["session.updated"]);
    harness.spoken_turn(0);
    assert!(harness.requests().is_empty());
}

#[test]
fn engines_without_room_are_asked_again() {
    let mut harness = Harness::transcribing(json!({}));
    let item = harness.spoken_turn(0);
    for asked in 1..=30 {
        let response = harness.requests().last().unwrap().response;
        harness.refuse(response, SessionError::OutOfMemory);
        assert_eq!(harness.requests().len(), asked, "not at once");
        let due = harness.core.deadline().unwrap();
        assert_eq!(due, harness.now + Duration::from_secs(1));
        harness.now = due;
        harness.input(SessionInput::DeadlineReached);
        assert_eq!(harness.requests().len(), asked + 1);
    }
    assert!(!harness.event_types().contains(&FAILED));
    let response = harness.requests().last().unwrap().response;
    harness.refuse(response, SessionError::OutOfMemory);
    assert_eq!(harness.find(FAILED)["item_id"], json!(item));
    assert_eq!(harness.core.deadline(), None);
}

#[test]
fn failed_transcripts_fail_nothing_else() {
    let mut harness = Harness::transcribing(json!({}));
    let (item, next) = (harness.spoken_turn(0), harness.spoken_turn(1_000));
    harness.clear_events();
    let response = harness.requests()[0].response;
    harness.refuse(response, SessionError::ContextFull { tokens: 9_000, limit: 4_096 });
    assert_eq!(harness.event_types(), [FAILED], "no error event");
    assert_eq!(harness.find(FAILED)["item_id"], json!(item));
    assert_eq!(harness.requests().len(), 2, "the next one follows");
    let response = harness.requests()[1].response;
    harness.engine_finished(response, FinishReason::Cancelled);
    assert_eq!(harness.find(FAILED)["item_id"], json!(next));
    assert!(!harness.other_effects.iter().any(|effect| matches!(effect, Effect::Close)));
}

#[test]
fn deleted_turns_are_not_transcribed() {
    let mut harness = Harness::transcribing(json!({}));
    let (first, second) = (harness.spoken_turn(0), harness.spoken_turn(1_000));
    let response = harness.requests()[0].response;
    for item in [&second, &first] {
        harness.client(json!({"type": "conversation.item.delete", "item_id": item}));
    }
    assert!(harness.commands.contains(&Command::Cancel { response }));
    harness.clear();
    harness.engine_input_text(response, "What");
    harness.engine_finished(response, FinishReason::Cancelled);
    assert_eq!((harness.event_types(), harness.requests().len()), (Vec::new(), 0));
    assert!(harness.core.is_idle());
}

#[test]
fn transcription_settings_are_bounded() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (field, length) in [("language", 65), ("prompt", 4_097)] {
        let transcription = json!({field: "x".repeat(length)});
        harness.update(json!({"audio": {"input": {"transcription": transcription}}}));
        let error = &harness.find("error")["error"];
        assert_eq!(error["param"], format!("session.audio.input.transcription.{field}"));
    }
}

#[test]
fn fast_input_waits_for_transcripts() {
    let mut harness = Harness::transcribing(json!({}));
    let mut taken = 0;
    // A file: the client sends on whenever the session takes input.
    for turn in 0..40 {
        while !harness.core.wants_input() {
            taken += 1;
            let response = harness.requests().last().unwrap().response;
            harness.engine_input_text(response, "text");
            harness.engine_finished(response, FinishReason::Stop);
        }
        harness.spoken_turn(turn * 1_000);
    }
    assert!(taken > 10, "{taken}");
    while !harness.core.is_idle() {
        let response = harness.requests().last().unwrap().response;
        harness.engine_finished(response, FinishReason::Stop);
    }
    let count = |kind| harness.event_types().iter().filter(|other| **other == kind).count();
    assert_eq!((count(COMPLETED), count(FAILED)), (40, 0));
}
