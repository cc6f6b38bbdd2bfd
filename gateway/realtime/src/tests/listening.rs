//! Transcripts of turns that are still open, by a model that hears text.

use repartee_engine_api::{Command, Event, FinishReason, Listen, ModelInfo, TextDelay};
use repartee_media::vad::TurnEvent;
use serde_json::{Value, json};

use super::super::{Delivery, SessionInput};
use super::transcription::{COMPLETED, DELTA};
use super::{Harness, model};

/// Session with transcription, by a model that hears text.
fn listening(detection: &Value) -> Harness {
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { hears_text: true, ..model() });
    let transcription = json!({"language": "en", "prompt": "Names: Ada."});
    harness.update(json!({"audio": {"input": {"transcription": transcription, "turn_detection": detection}}}));
    harness.clear();
    harness
}

fn server_vad() -> Value {
    json!({"type": "server_vad", "create_response": false})
}

/// Passes the text so far of the open turn.
fn hear(harness: &mut Harness, item: u64, text: &str, stable: usize) {
    let text = text.to_owned();
    harness.input(SessionInput::Engine(Event::InputText { response: None, item, text, stable }));
}

/// Engine id of the item under which the open turn was announced.
fn announced(harness: &Harness) -> u64 {
    let listens = harness.commands.iter().filter_map(|command| match command {
        Command::Listen(listen) => Some(listen),
        _ => None,
    });
    let listens: Vec<&Listen> = listens.collect();
    let [Listen { item, language, prompt, .. }] = listens[..] else { panic!("{:?}", harness.commands) };
    assert_eq!((language.as_deref(), &**prompt), (Some("en"), "Names: Ada."));
    *item
}

#[test]
fn delay_is_that_of_the_engine() {
    for (asked, engine) in [
        (json!("minimal"), TextDelay::Minimal),
        (json!("low"), TextDelay::Low),
        (Value::Null, TextDelay::Medium),
        (json!("medium"), TextDelay::Medium),
        (json!("high"), TextDelay::High),
        (json!("xhigh"), TextDelay::VeryHigh),
    ] {
        let mut harness = listening(&server_vad());
        harness.update(json!({"audio": {"input": {"transcription": {"delay": asked}}}}));
        let session = &harness.find("session.updated")["session"];
        assert_eq!(session["audio"]["input"]["transcription"]["delay"], asked);
        harness.clear();
        harness.input_audio(1_000);
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        let [Command::Listen(Listen { delay, .. }), ..] = harness.commands[..] else {
            panic!("{:?}", harness.commands)
        };
        assert_eq!(delay, engine);
    }
    let mut harness = Harness::with_model(Delivery::Unpaced, model());
    harness.update(json!({"audio": {"input": {"transcription": {"delay": "low"}}}}));
    let session = &harness.find("session.updated")["session"];
    assert_eq!(session["audio"]["input"]["transcription"]["delay"], Value::Null);
    assert!(session["repartee"]["warnings"].to_string().contains("transcription.delay"), "{session}");
}

fn deltas(harness: &Harness) -> Vec<&Value> {
    harness.events.iter().filter(|event| event["type"] == DELTA).collect()
}

#[test]
fn transcripts_grow_while_the_caller_speaks() {
    let mut harness = listening(&server_vad());
    harness.input_audio(1_000);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert!(matches!(harness.commands[..2], [Command::Listen(_), Command::Append(_)]), "{:?}", harness.commands);
    let item = announced(&harness);
    let item_id = harness.find("input_audio_buffer.speech_started")["item_id"].clone();
    hear(&mut harness, item, "What if", 0);
    hear(&mut harness, item, "What is", 4);
    hear(&mut harness, item, "What is the", 7);
    assert_eq!(deltas(&harness).iter().map(|delta| &delta["delta"]).collect::<Vec<_>>(), ["What", " is"]);
    assert!(deltas(&harness).iter().all(|delta| delta["item_id"] == item_id));
    harness.clear_events();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_000 }));
    assert!(harness.commands.contains(&Command::Commit { item }), "under the announced id");
    // Reports from before the commit are late.
    hear(&mut harness, item, "What is that", 7);
    let request = harness.requests()[0].clone();
    assert_eq!(request.item, item);
    harness.engine_input_text(request.response, "What is that?");
    harness.engine_finished(request.response, FinishReason::Stop);
    assert_eq!(deltas(&harness).iter().map(|delta| &delta["delta"]).collect::<Vec<_>>(), [" that?"]);
    let done = harness.find(COMPLETED);
    assert_eq!((&done["transcript"], &done["item_id"]), (&json!("What is that?"), &item_id));
}

#[test]
fn push_to_talk_waits_for_the_commit() {
    let mut harness = listening(&Value::Null);
    harness.input_audio(1_000);
    let item = announced(&harness);
    hear(&mut harness, item, "What is", 7);
    assert!(deltas(&harness).is_empty(), "the client does not know the item yet");
    harness.client(json!({"type": "input_audio_buffer.commit"}));
    let request = harness.requests()[0].clone();
    harness.engine_input_text(request.response, "What is that?");
    assert_eq!(deltas(&harness)[0]["delta"], "What is that?");
}

#[test]
fn a_speculation_keeps_the_announced_item() {
    let mut harness = listening(&json!({"type": "server_vad"}));
    harness.input_audio(1_000);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    let listened = announced(&harness);
    for _ in 0..2 {
        harness.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: 1_000 }));
        let Some(Command::BeginSpeculation { item, .. }) = harness.commands.last() else {
            panic!("{:?}", harness.commands)
        };
        assert_eq!(*item, listened);
        harness.input(SessionInput::Turn(TurnEvent::Resumed { audio_ms: 1_000 }));
    }
}

#[test]
fn nobody_listens_without_transcription() {
    let mut harness = Harness::with_model(Delivery::Unpaced, ModelInfo { hears_text: true, ..model() });
    harness.spoken_turn(0);
    assert!(!harness.commands.iter().any(|command| matches!(command, Command::Listen(_))));
}

#[test]
fn a_model_that_only_hears_serves_transcription_sessions() {
    let deaf = ModelInfo { hears_text: true, answers: false, audio_output: false, tools: false, ..model() };
    let mut harness = Harness::with_model(Delivery::Unpaced, deaf);
    harness.update(json!({"type": "realtime"}));
    let error = &harness.find("error")["error"];
    assert_eq!(error["param"], "session.type");
    assert!(error["message"].as_str().unwrap().contains("only transcribes"), "{error}");
    harness.clear();
    harness.client(json!({"type": "response.create"}));
    assert_eq!(harness.find("error")["error"]["code"], "not_in_transcription_session");
    harness.clear();
    let item = harness.spoken_turn(0);
    let response = harness.requests()[0].response;
    harness.engine_input_text(response, "Hello.");
    harness.engine_finished(response, FinishReason::Stop);
    assert_eq!(harness.find(COMPLETED)["item_id"], json!(item));
}
