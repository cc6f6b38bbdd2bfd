//! The conversation, behaviour by behaviour, without a clock and without a socket.

mod answers;
mod idle;
mod items;
mod playback;
mod random;
mod settings;
mod speculation;
mod tools;
mod turns;

use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, FinishReason, ModelInfo, Respond, ResponseId, Usage as EngineUsage};
use repartee_media::vad::TurnEvent;
use repartee_protocol::ClientMessage;
use serde_json::{Value, json};

use super::{Core, Delivery, Effect, Input, PlayoutReport, Setup};

/// A conversation and what came of it.
struct Talk {
    core: Core,
    now: Instant,
    events: Vec<Value>,
    commands: Vec<Command>,
    others: Vec<Effect>,
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
        tools: true,
    }
}

impl Talk {
    fn new(delivery: Delivery) -> Self {
        Self::with_model(delivery, model())
    }

    fn with_model(delivery: Delivery, model: ModelInfo) -> Self {
        let setup =
            Setup { session_id: "sess_1".into(), stem: "s".into(), seed: 7, model, delivery, configuration: None };
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
        // As a line does that has room.
        while self.core.has_released() {
            let effects = self.core.handle(Input::Release, self.now);
            self.sort(effects);
        }
    }

    fn client(&mut self, event: Value) {
        self.input(Input::Client(ClientMessage::parse(&event.to_string()).unwrap()));
    }

    /// A message as it came.
    fn send_anything(&mut self, text: &str) {
        match ClientMessage::parse(text) {
            Ok(message) => self.input(Input::Client(message)),
            Err(error) => self.input(Input::Refused(*error)),
        }
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
            Command::Respond(respond) | Command::BeginSpeculation { respond, .. } => Some(respond),
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
        self.input(Input::Engine(Event::SegmentFinished { response, reason, usage }));
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

    fn forget_events(&mut self) {
        self.events.clear();
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
