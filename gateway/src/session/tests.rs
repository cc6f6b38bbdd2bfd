//! The conversation, behaviour by behaviour, without a clock and without a socket.

use std::time::{Duration, Instant};

use repartee_engine::session::{
    Command, Event, FinishReason, ModelInfo, Respond, ResponseId, SessionError, Usage as EngineUsage,
};
use serde_json::{Value, json};

use super::{Core, Delivery, Effect, Input, PlayoutReport, Setup};
use crate::media::vad::TurnEvent;
use crate::protocol::ClientMessage;

/// A conversation and what came of it.
struct Talk {
    core: Core,
    now: Instant,
    events: Vec<Value>,
    commands: Vec<Command>,
    others: Vec<Effect>,
}

impl Talk {
    fn new(delivery: Delivery) -> Self {
        let model = ModelInfo {
            name: "test".into(),
            voices: vec!["ada".into(), "bob".into()],
            default_voice: "ada".into(),
            input_rate: 16_000,
            output_rate: 24_000,
            frame: Duration::from_millis(80),
            context_tokens: 100,
        };
        let setup = Setup { session_id: "sess_1".into(), stem: "s".into(), seed: 7, model, delivery };
        let (core, effects) = Core::new(setup);
        let mut talk = Self { core, now: Instant::now(), events: Vec::new(), commands: Vec::new(), others: Vec::new() };
        talk.sort(effects);
        assert_eq!(talk.kinds(), ["session.created"]);
        talk.forget();
        talk
    }

    fn sort(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(message) => self.events.push(serde_json::to_value(message).unwrap()),
                Effect::Engine(command) => self.commands.push(command),
                other => self.others.push(other),
            }
        }
    }

    fn input(&mut self, input: Input) {
        let effects = self.core.handle(input, self.now);
        self.sort(effects);
    }

    fn client(&mut self, event: Value) {
        self.input(Input::Client(ClientMessage::parse(&event.to_string()).unwrap()));
    }

    fn update(&mut self, session: Value) {
        self.client(json!({"type": "session.update", "session": session}));
    }

    fn push_to_talk(&mut self) {
        self.update(json!({"audio": {"input": {"turn_detection": null}}}));
        self.forget();
    }

    /// Sound of so many milliseconds.
    fn sound(&mut self, ms: usize) {
        for _ in 0..ms / 20 {
            self.input(Input::Audio(vec![0.1; 320]));
        }
    }

    fn turn(&mut self, start: u64, end: u64) {
        self.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: start }));
        self.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: end }));
    }

    fn message(&mut self, id: &str, text: &str) {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "id": id, "content": content});
        self.client(json!({"type": "conversation.item.create", "item": item}));
    }

    /// Asks for an answer and returns its name.
    fn ask(&mut self) -> ResponseId {
        self.client(json!({"type": "response.create"}));
        self.asked().expect("an answer is asked for").response
    }

    fn asked(&self) -> Option<&Respond> {
        self.commands.iter().rev().find_map(|command| match command {
            Command::Respond(respond) => Some(respond),
            _ => None,
        })
    }

    fn says(&mut self, response: ResponseId, text: &str) {
        self.input(Input::Engine(Event::Text { response, text: text.into() }));
    }

    /// So many milliseconds of an answer.
    fn sounds(&mut self, response: ResponseId, ms: usize) {
        let samples = vec![0.5; ms * 24];
        self.input(Input::Engine(Event::Audio { response, frame: 0, samples, stamps: None }));
    }

    fn finished(&mut self, response: ResponseId, reason: FinishReason) {
        let usage = EngineUsage { input_text_tokens: 1, output_text_tokens: 2, ..EngineUsage::default() };
        self.input(Input::Engine(Event::Finished { response, reason, usage }));
    }

    fn answer(&mut self, text: &str, ms: usize) -> ResponseId {
        let response = self.ask();
        self.says(response, text);
        self.sounds(response, ms);
        self.finished(response, FinishReason::Stop);
        response
    }

    fn hears(&mut self, response: ResponseId, heard_ms: u64) {
        self.input(Input::Playout(PlayoutReport::Position { response, heard_ms }));
    }

    fn kinds(&self) -> Vec<&str> {
        self.events.iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    fn find(&self, kind: &str) -> &Value {
        self.events
            .iter()
            .rev()
            .find(|event| event["type"] == kind)
            .unwrap_or_else(|| panic!("{kind} in {:?}", self.kinds()))
    }

    fn code(&self) -> &Value {
        &self.events.last().unwrap()["error"]["code"]
    }

    fn forget(&mut self) {
        self.events.clear();
        self.commands.clear();
        self.others.clear();
    }

    fn submitted(&self) -> usize {
        let length = |command: &Command| if let Command::Append(samples) = command { samples.len() } else { 0 };
        self.commands.iter().map(length).sum()
    }

    /// The text that is left of an item after a cut.
    fn cut(&self) -> Option<&str> {
        self.commands.iter().find_map(|command| match command {
            Command::Truncate { text, .. } => Some(text.as_str()),
            _ => None,
        })
    }
}

#[test]
fn an_update_echoes_everything_in_effect() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"type": "realtime", "instructions": "Be kind."}));
    let session = &talk.find("session.updated")["session"];
    assert_eq!(session["instructions"], "Be kind.");
    assert_eq!(session["audio"]["input"]["turn_detection"]["interrupt_response"], true);
    assert_eq!(session["audio"]["input"]["format"], json!({"type": "audio/pcm", "rate": 24000}));
    assert_eq!(session["audio"]["output"]["voice"], "ada");
    assert_eq!(session["max_output_tokens"], "inf");
    assert_eq!(talk.commands, [Command::Instruct("Be kind.".into())]);
}

#[test]
fn absent_keeps_and_null_clears() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"instructions": "Be kind.", "audio": {"output": {"voice": "bob"}}, "max_output_tokens": 9}));
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}}}));
    let session = talk.find("session.updated")["session"].clone();
    assert_eq!(session["audio"]["output"]["voice"], "bob");
    assert_eq!(session["audio"]["input"]["turn_detection"]["threshold"], 0.9);
    assert_eq!(session["audio"]["input"]["turn_detection"]["silence_duration_ms"], 500);
    talk.update(json!({"instructions": null, "max_output_tokens": null,
        "audio": {"output": {"voice": null}, "input": {"turn_detection": null}}}));
    let session = &talk.find("session.updated")["session"];
    assert_eq!(session["instructions"], "");
    assert_eq!(session["max_output_tokens"], "inf");
    assert_eq!(session["audio"]["output"]["voice"], "ada");
    assert_eq!(session["audio"]["input"]["turn_detection"], Value::Null);
}

#[test]
fn a_wrong_field_is_named_and_changes_nothing() {
    let mut talk = Talk::new(Delivery::Unpaced);
    for (patch, param) in [
        (json!({"instructions": 3}), "session.instructions"),
        (json!({"max_output_tokens": "many"}), "session.max_output_tokens"),
        (
            json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 7}}}}),
            "session.audio.input.turn_detection.threshold",
        ),
        (json!({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 1}}}}), "session.audio.input.format.rate"),
    ] {
        let before = talk.core.config().clone();
        talk.update(patch);
        assert_eq!(talk.events.last().unwrap()["error"]["param"], param);
        assert_eq!(talk.core.config(), &before);
    }
}

#[test]
fn a_turn_has_one_name_and_holds_the_sound_before_it() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.sound(1_000);
    assert_eq!(talk.commands, []);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 600 }));
    talk.sound(500);
    talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: 1_490 }));
    assert_eq!(talk.submitted(), 890 * 16);
    let id = talk.find("input_audio_buffer.speech_started")["item_id"].clone();
    assert_eq!(talk.find("input_audio_buffer.speech_stopped")["item_id"], id);
    assert_eq!(talk.find("input_audio_buffer.committed")["item_id"], id);
    assert_eq!(talk.find("conversation.item.added")["item"]["id"], id);
    assert_eq!(talk.kinds().last(), Some(&"response.created"));
}

#[test]
fn a_turn_asks_for_no_answer_if_the_client_does() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": false}}}}));
    talk.sound(1_000);
    talk.turn(0, 1_000);
    assert_eq!(talk.asked(), None);
    talk.ask();
}

#[test]
fn a_commit_needs_sound() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.push_to_talk();
    for ms in [0, 80] {
        talk.sound(ms);
        talk.client(json!({"type": "input_audio_buffer.commit"}));
        assert_eq!(talk.code(), "input_audio_buffer_commit_empty");
    }
    talk.sound(20);
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    talk.find("input_audio_buffer.committed");
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(talk.code(), "input_audio_buffer_commit_empty");
    assert_eq!(talk.asked(), None, "a commit asks for no answer");
}

#[test]
fn a_cleared_buffer_is_forgotten() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.push_to_talk();
    talk.sound(1_000);
    talk.client(json!({"type": "input_audio_buffer.clear"}));
    assert_eq!(talk.kinds(), ["input_audio_buffer.cleared"]);
    assert_eq!(talk.commands.last(), Some(&Command::Clear));
    assert!(talk.others.contains(&Effect::EndTurn));
    talk.client(json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(talk.code(), "input_audio_buffer_commit_empty");
}

#[test]
fn a_turn_too_long_for_the_model_is_said_once() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.push_to_talk();
    talk.sound(200);
    for _ in 0..3 {
        let error = SessionError::AudioTooLong { limit_s: 30 };
        talk.input(Input::Engine(Event::Failed { response: None, error }));
    }
    assert_eq!(talk.kinds(), ["error"]);
    assert_eq!(talk.code(), "input_audio_too_long");
}

#[test]
fn only_one_answer_at_a_time() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.client(json!({"type": "response.create"}));
    assert_eq!(talk.code(), "conversation_already_has_active_response");
    talk.finished(response, FinishReason::Stop);
    talk.ask();
}

#[test]
fn nothing_to_cancel_is_an_error() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.client(json!({"type": "response.cancel"}));
    assert_eq!(talk.code(), "response_cancel_not_active");
    let response = talk.ask();
    talk.client(json!({"type": "response.cancel", "response_id": "another"}));
    assert_eq!(talk.code(), "response_cancel_not_active");
    talk.client(json!({"type": "response.cancel"}));
    assert_eq!(talk.commands.last(), Some(&Command::Cancel { response }));
    talk.client(json!({"type": "response.cancel"}));
    assert_eq!(talk.code(), "response_cancel_not_active");
}

#[test]
fn nothing_of_a_cancelled_answer_is_sent_and_the_next_one_waits_for_its_end() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.says(response, "One ");
    talk.client(json!({"type": "response.cancel"}));
    talk.forget();
    talk.client(json!({"type": "response.create"}));
    talk.says(response, "two");
    talk.sounds(response, 80);
    assert_eq!(talk.kinds(), [""; 0]);
    talk.finished(response, FinishReason::Cancelled);
    let answer = &talk.find("response.done")["response"];
    assert_eq!(answer["status_details"], json!({"type": "cancelled", "reason": "client_cancelled"}));
    assert_eq!(answer["output"][0]["content"][0]["transcript"], "One ");
    assert_eq!(talk.kinds().last(), Some(&"response.created"));
    assert!(talk.asked().is_some());
}

#[test]
fn an_answer_that_was_complete_when_it_was_cancelled_is_cut_to_what_was_sent() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.says(response, "One ");
    talk.client(json!({"type": "response.cancel"}));
    talk.says(response, "two");
    talk.finished(response, FinishReason::Stop);
    assert_eq!(talk.find("response.done")["response"]["status"], "cancelled");
    assert_eq!(talk.cut(), Some("One "));
}

#[test]
fn a_limit_makes_an_answer_incomplete() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.client(json!({"type": "response.create", "response": {"max_output_tokens": 3, "metadata": {"a": "b"}}}));
    let respond = talk.asked().unwrap().clone();
    assert_eq!(respond.max_tokens, Some(3));
    talk.says(respond.response, "One");
    talk.finished(respond.response, FinishReason::Length);
    let answer = &talk.find("response.done")["response"];
    assert_eq!(answer["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    assert_eq!(answer["metadata"], json!({"a": "b"}));
}

#[test]
fn an_answer_without_a_word_has_no_item() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.finished(response, FinishReason::Stop);
    assert_eq!(talk.kinds(), ["response.created", "response.done", "rate_limits.updated"]);
    assert_eq!(talk.find("response.done")["response"]["output"], json!([]));
}

#[test]
fn instructions_of_one_answer_hold_for_it_alone() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"instructions": "Base."}));
    talk.forget();
    let event = json!({"type": "response.create", "response": {"instructions": "Sing.", "audio": {"output": {"voice": "bob"}}}});
    talk.client(event);
    let [Command::Instruct(before), Command::Respond(respond), Command::Instruct(after)] = &talk.commands[..] else {
        panic!("{:?}", talk.commands)
    };
    assert_eq!((before.as_str(), after.as_str(), respond.voice.as_deref()), ("Sing.", "Base.", Some("bob")));
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let mut talk = Talk::new(Delivery::Unpaced);
    for (field, value) in [("conversation", json!("none")), ("input", json!([]))] {
        let mut event = json!({"type": "response.create", "response": {}});
        event["response"][field] = value;
        talk.client(event);
        assert_eq!(talk.events.last().unwrap()["error"]["param"], format!("response.{field}"));
    }
    assert_eq!(talk.asked(), None);
}

#[test]
fn a_failed_answer_says_why() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    let error = SessionError::ContextFull { tokens: 9, limit: 8 };
    talk.input(Input::Engine(Event::Failed { response: Some(response), error }));
    let details = &talk.find("response.done")["response"]["status_details"];
    assert_eq!((&details["type"], &details["error"]["code"]), (&json!("failed"), &json!("conversation_too_large")));
    assert!(!talk.others.contains(&Effect::Close), "the session lives on");
    let response = talk.ask();
    let error = SessionError::NotFinite { stage: "talker" };
    talk.input(Input::Engine(Event::Failed { response: Some(response), error }));
    assert_eq!(talk.others.last(), Some(&Effect::Close));
}

#[test]
fn items_are_named_once_shown_on_request_and_deleted() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.message("a", "hi");
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], Value::Null);
    talk.message("b", "there");
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], "a");
    talk.message("a", "again");
    assert_eq!(talk.code(), "item_create_duplicate_item_id");
    talk.client(json!({"type": "conversation.item.retrieve", "item_id": "b"}));
    assert_eq!(talk.find("conversation.item.retrieved")["item"]["content"][0]["text"], "there");
    talk.forget();
    talk.client(json!({"type": "conversation.item.delete", "item_id": "a"}));
    assert_eq!(talk.kinds(), ["conversation.item.deleted"]);
    assert!(matches!(talk.commands[..], [Command::Delete { .. }]));
    talk.client(json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    assert_eq!(talk.code(), "item_retrieve_invalid_item_id");
}

#[test]
fn items_go_to_the_end() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let mut place = |previous: &str, id: &str| {
        let content = json!([{"type": "input_text", "text": "x"}]);
        let item = json!({"type": "message", "role": "system", "id": id, "content": content});
        talk.client(json!({"type": "conversation.item.create", "previous_item_id": previous, "item": item}));
        talk.events.last().unwrap()["error"]["code"].clone()
    };
    assert_eq!(place("root", "a"), Value::Null);
    assert_eq!(place("a", "b"), Value::Null);
    assert_eq!(place("a", "c"), "invalid_value");
    assert_eq!(place("root", "c"), "invalid_value");
    assert_eq!(place("nowhere", "c"), "item_create_invalid_previous_item_id");
}

#[test]
fn content_that_cannot_be_added_is_named() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let content = json!([{"type": "input_text", "text": "x"}, {"type": "input_audio", "audio": "AAAA"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    talk.client(json!({"type": "conversation.item.create", "item": item}));
    assert_eq!(talk.events.last().unwrap()["error"]["param"], "item.content[1].type");
}

#[test]
fn a_websocket_client_says_what_was_heard() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.answer("The sky is blue today.", 2_000);
    let id = talk.find("response.done")["response"]["output"][0]["id"].clone();
    talk.forget();
    let mut truncate = json!({"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 1_000});
    truncate["item_id"] = id.clone();
    talk.client(truncate.clone());
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 1_000);
    assert_eq!(talk.cut(), Some("The sky is"));
    // Beyond the end of what is left is the end.
    truncate["audio_end_ms"] = json!(9_000);
    talk.client(truncate);
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 1_000);
    talk.client(json!({"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0}));
    assert_eq!(talk.code(), "item_truncate_invalid_item_id");
}

#[test]
fn speech_stops_an_answer_being_made_over_a_websocket() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.says(response, "One two three");
    talk.sounds(response, 800);
    talk.forget();
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(talk.commands, [Command::Cancel { response }]);
    talk.finished(response, FinishReason::Cancelled);
    let details = &talk.find("response.done")["response"]["status_details"];
    assert_eq!(details, &json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(talk.cut(), None, "the client says what was heard");
}

#[test]
fn speech_interrupts_nothing_if_told_so_and_the_next_answer_waits() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"audio": {"input": {"turn_detection": {"type": "server_vad", "interrupt_response": false}}}}));
    let response = talk.ask();
    talk.says(response, "One");
    talk.forget();
    talk.sound(400);
    talk.turn(0, 400);
    assert_eq!(talk.asked(), None);
    talk.finished(response, FinishReason::Stop);
    assert_eq!(talk.find("response.done")["response"]["status"], "completed");
    assert!(talk.asked().is_some());
}

#[test]
fn the_playout_clock_reports_when_a_caller_hears() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("Hello.", 500);
    talk.forget();
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.input(Input::Playout(PlayoutReport::Drained { response }));
    assert_eq!(talk.kinds(), ["output_audio_buffer.started", "output_audio_buffer.stopped"]);
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(talk.cut(), None, "all of it was heard");
}

#[test]
fn speech_clears_an_answer_that_is_complete_but_not_played() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("The sky is blue today.", 2_000);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.hears(response, 1_000);
    talk.forget();
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(
        talk.kinds(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    assert_eq!(talk.others, [Effect::ClearPlayout]);
    assert_eq!(talk.cut(), Some("The sky is"));
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 1_000);
}

#[test]
fn speech_clears_and_cancels_an_answer_being_made() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.ask();
    talk.says(response, "One two three four");
    talk.sounds(response, 800);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.hears(response, 300);
    talk.forget();
    talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(talk.kinds(), ["input_audio_buffer.speech_started", "output_audio_buffer.cleared"]);
    assert_eq!(talk.commands, [Command::Cancel { response }]);
    talk.finished(response, FinishReason::Cancelled);
    let kinds = talk.kinds();
    let place = |kind| kinds.iter().position(|found| *found == kind).unwrap();
    assert!(place("response.done") < place("conversation.item.truncated"));
    assert_eq!(talk.find("response.done")["response"]["status_details"]["reason"], "turn_detected");
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 300);
    assert_eq!(talk.cut(), Some("One"));
}

#[test]
fn the_client_can_clear_what_was_not_played() {
    let mut talk = Talk::new(Delivery::Paced);
    let response = talk.answer("The sky is blue today.", 2_000);
    talk.input(Input::Playout(PlayoutReport::Started { response }));
    talk.forget();
    talk.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(talk.kinds(), ["output_audio_buffer.cleared", "conversation.item.truncated"]);
    assert_eq!(talk.cut(), Some(""), "nothing was heard");
}

#[test]
fn an_engine_that_ends_closes_the_conversation() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.input(Input::EngineEnded);
    assert_eq!(talk.code(), "internal_error");
    assert_eq!(talk.others.last(), Some(&Effect::Close));
}
