//! Behaviour of the realtime session, without clock or sockets.

mod idle;
mod items;
mod listening;
mod out_of_band;
mod outcomes;
mod playback;
mod random;
mod responses;
mod settings;
mod slice_responses;
mod speculation;
mod speech_synthesis;
mod tools;
mod transcription;
mod transcription_session;
mod turns;

use std::time::{Duration, Instant};

use repartee_engine_api::{
    Command, EngineUsage, Event, FinishReason, HearingInfo, InsertAt, MessageContent, ModelInfo, Respond, ResponseId,
};
use repartee_media::vad::TurnEvent;
use repartee_protocol::ClientMessage;
use serde_json::{Value, json};

use super::{Delivery, Effect, PlayoutReport, RealtimeSession, SessionInput, SessionSetup};

/// Session under test with its recorded effects.
struct Harness {
    core: RealtimeSession,
    now: Instant,
    events: Vec<Value>,
    commands: Vec<Command>,
    other_effects: Vec<Effect>,
}

fn model() -> ModelInfo {
    ModelInfo {
        name: "test".into(),
        voices: vec!["ada".into(), "bob".into()],
        default_voice: "ada".into(),
        input_rate: 16_000,
        output_rate: 24_000,
        frame: Duration::from_millis(80),
        context_tokens: 100,
        audio_input: true,
        hears_text: false,
        answers: true,
        audio_output: true,
        tools: true,
        answer_forms: false,
        transcribes: true,
        hearing: HearingInfo::default(),
        given_text: true,
        reads_messages: None,
        reads_clauses: false,
        reads_only: false,
        whole_texts: false,
        spoken_text: None,
        speech_limit: None,
        instructions: String::new(),
        recording_rate: None,
    }
}

impl Harness {
    fn new(delivery: Delivery) -> Self {
        Self::with_model(delivery, model())
    }

    fn with_model(delivery: Delivery, model: ModelInfo) -> Self {
        let (session_id, stem, configuration) = ("sess_1".into(), "s".into(), None);
        let (expires_at, warnings) = (Some(1_900_000_000), Vec::new());
        let setup = SessionSetup { session_id, stem, seed: 7, model, delivery, expires_at, configuration, warnings };
        let (core, effects) = RealtimeSession::new(setup);
        let mut harness =
            Self { core, now: Instant::now(), events: Vec::new(), commands: Vec::new(), other_effects: Vec::new() };
        harness.collect(effects);
        assert_eq!(harness.event_types(), ["session.created"]);
        harness.clear();
        harness
    }

    fn collect(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(message) => self.events.push(serde_json::to_value(message).unwrap()),
                Effect::Engine(command) => self.commands.push(command),
                other => self.other_effects.push(other),
            }
        }
    }

    fn input(&mut self, input: SessionInput) {
        let effects = self.core.handle(input, self.now);
        self.collect(effects);
        // Like a transport with room.
        while self.core.has_pending_event() {
            let effects = self.core.handle(SessionInput::PendingEvent, self.now);
            self.collect(effects);
        }
    }

    fn client(&mut self, event: Value) {
        self.input(SessionInput::Client(ClientMessage::parse(&event.to_string()).unwrap()));
    }

    /// Passes a client message as text, valid or not.
    fn client_text(&mut self, text: &str) {
        match ClientMessage::parse(text) {
            Ok(message) => self.input(SessionInput::Client(message)),
            Err(error) => self.input(SessionInput::Refused(*error)),
        }
    }

    fn update(&mut self, session: Value) {
        self.client(json!({"type": "session.update", "session": session}));
    }

    fn push_to_talk(&mut self) {
        self.update(json!({"audio": {"input": {"turn_detection": null}}}));
        self.clear();
    }

    /// Passes `ms` milliseconds of the caller's audio.
    fn input_audio(&mut self, ms: usize) {
        for _ in 0..ms / 20 {
            self.input(SessionInput::Audio(vec![0.1; 320]));
        }
    }

    fn turn(&mut self, start: u64, end: u64) {
        self.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: start }));
        self.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: end }));
    }

    fn message(&mut self, id: &str, text: &str) {
        let content = json!([{"type": "input_text", "text": text}]);
        let item = json!({"type": "message", "role": "user", "id": id, "content": content});
        self.client(json!({"type": "conversation.item.create", "item": item}));
    }

    /// Sends `response.create`; returns the engine id of the response.
    fn create_response(&mut self) -> ResponseId {
        self.client(json!({"type": "response.create"}));
        self.last_respond().expect("a response is started").response
    }

    fn last_respond(&self) -> Option<&Respond> {
        self.commands.iter().rev().find_map(|command| match command {
            Command::Respond(respond) | Command::BeginSpeculation { respond, .. } => Some(respond),
            _ => None,
        })
    }

    fn engine_text(&mut self, response: ResponseId, text: &str) {
        self.input(SessionInput::Engine(Event::Text { response, text: text.into() }));
    }

    /// Passes the transcript so far, all of it stable.
    fn engine_input_text(&mut self, response: ResponseId, text: &str) {
        let (text, stable) = (text.to_owned(), text.len());
        self.input(SessionInput::Engine(Event::InputText { response: Some(response), item: 0, text, stable }));
    }

    /// Passes `ms` milliseconds of a response's audio.
    fn engine_audio(&mut self, response: ResponseId, ms: usize) {
        let samples = vec![0.5; ms * 24];
        self.input(SessionInput::Engine(Event::Audio { response, frame: 0, samples, stamps: None }));
    }

    fn engine_finished(&mut self, response: ResponseId, reason: FinishReason) {
        let usage = EngineUsage { input_text_tokens: 1, output_text_tokens: 2, ..EngineUsage::default() };
        self.input(SessionInput::Engine(Event::SegmentFinished { response, reason, usage }));
    }

    fn whole_response(&mut self, text: &str, ms: usize) -> ResponseId {
        let response = self.create_response();
        self.engine_text(response, text);
        self.engine_audio(response, ms);
        self.engine_finished(response, FinishReason::Stop);
        response
    }

    fn played(&mut self, response: ResponseId, heard_ms: u64) {
        self.input(SessionInput::Playout(PlayoutReport::Position { response, heard_ms }));
    }

    fn event_types(&self) -> Vec<&str> {
        self.events.iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    fn find(&self, kind: &str) -> &Value {
        self.events
            .iter()
            .rev()
            .find(|event| event["type"] == kind)
            .unwrap_or_else(|| panic!("{kind} in {:?}", self.event_types()))
    }

    fn error_code(&self) -> &Value {
        &self.events.last().unwrap()["error"]["code"]
    }

    fn clear_events(&mut self) {
        self.events.clear();
    }

    fn clear(&mut self) {
        self.events.clear();
        self.commands.clear();
        self.other_effects.clear();
    }

    fn appended_samples(&self) -> usize {
        let length = |command: &Command| if let Command::Append(samples) = command { samples.len() } else { 0 };
        self.commands.iter().map(length).sum()
    }

    /// Texts of the function results, in the model's reading order.
    fn results(&self) -> Vec<&str> {
        let mut engine: Vec<(u64, &MessageContent)> = Vec::new();
        for command in &self.commands {
            let Command::Insert { item, place, content } = command else { continue };
            let place = match place {
                InsertAt::End => engine.len(),
                InsertAt::Start => 0,
                InsertAt::After(before) => engine.iter().position(|(id, _)| id == before).map_or(0, |index| index + 1),
            };
            engine.insert(place, (*item, content));
        }
        let results = engine.iter().filter_map(|(_, content)| match content {
            MessageContent::ToolResult(text) => Some(text.as_str()),
            _ => None,
        });
        results.collect()
    }

    /// Text kept by the first truncation.
    fn truncated_text(&self) -> Option<&str> {
        self.commands.iter().find_map(|command| match command {
            Command::Truncate { text, .. } => Some(text.as_str()),
            _ => None,
        })
    }
}
