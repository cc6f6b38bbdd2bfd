//! Client events, one a line, to one realtime session whose engine answers at once. Lines that begin with `!` are the
//! rest of a call: sound, and turns.

use std::time::{Duration, Instant};

use repartee_engine_api::{Command, EngineUsage, Event, FinishReason, SpeechEngine as _};
use repartee_media::vad::TurnEvent;
use repartee_protocol::{ClientMessage, ServerMessage};
use repartee_realtime::{Delivery, Effect, RealtimeSession, SessionInput, SessionSetup};
use repartee_testkit::scripted::{Script, ScriptedEngine};

/// Lines that are read; a session bounds its history, but not the events of an hour.
const MAX_LINES: usize = 64;
/// Largest text of an error, in bytes: it is for a person.
const MAX_ERROR: usize = 1_000;

pub(crate) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut call = Call::new();
    for line in text.split('\n').take(MAX_LINES) {
        call.line(line);
    }
}

struct Call {
    session: RealtimeSession,
    now: Instant,
    received_ms: u64,
}

impl Call {
    fn new() -> Self {
        let setup = SessionSetup {
            session_id: "sess_1".into(),
            stem: "s".into(),
            seed: 7,
            model: ScriptedEngine::new(Script::default()).info().clone(),
            delivery: Delivery::Paced,
            expires_at: None,
            configuration: None,
            warnings: Vec::new(),
        };
        Self { session: RealtimeSession::new(setup).0, now: Instant::now(), received_ms: 0 }
    }

    fn line(&mut self, line: &str) {
        let ms = self.received_ms;
        match line {
            "!started" => self.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: ms })),
            "!paused" => self.input(SessionInput::Turn(TurnEvent::Paused { audio_end_ms: ms })),
            "!stopped" => self.input(SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms: ms })),
            "!late" => self.input(SessionInput::DeadlineReached),
            _ => match ClientMessage::parse(line) {
                Ok(message) => self.input(SessionInput::Client(message)),
                Err(error) => {
                    assert!(error.message.len() < MAX_ERROR, "an error of {} bytes", error.message.len());
                    self.input(SessionInput::Refused(*error));
                }
            },
        }
        self.input(SessionInput::Audio(vec![0.1; 320]));
        self.received_ms += 20;
        self.now += Duration::from_millis(20);
    }

    fn input(&mut self, input: SessionInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.session.handle(input, self.now) {
                match effect {
                    Effect::Send(message) => {
                        let text = serde_json::to_string(&*message).expect("an event can be written");
                        let read = serde_json::from_str::<ServerMessage>(&text);
                        assert!(read.is_ok(), "{text}");
                    }
                    Effect::Engine(Command::Respond(respond) | Command::BeginSpeculation { respond, .. }) => {
                        let (response, samples) = (respond.response, vec![0.1; 1_920]);
                        let (reason, usage) = (FinishReason::Stop, EngineUsage::default());
                        inputs.push(SessionInput::Engine(Event::SegmentFinished { response, reason, usage }));
                        inputs.push(SessionInput::Engine(Event::Audio { response, frame: 0, samples, stamps: None }));
                        inputs.push(SessionInput::Engine(Event::Text { response, text: "One two three.".into() }));
                    }
                    _ => {}
                }
            }
            if inputs.is_empty() && self.session.has_pending_event() {
                inputs.push(SessionInput::PendingEvent);
            }
        }
    }
}
