//! The conversation as a state machine: no I/O and no clock of its own. [`Core::handle`] takes what happened and when,
//! and returns what to do.
//!
//! - `interface`: what it takes and what it wants done
//! - `config`: updates of the configuration
//! - `hearing`: which sound belongs to a turn
//! - `turns`: the caller's turns, found by the VAD or ended by the client
//! - `speculation`: answers begun on suspicion, while the caller may only pause
//! - `idle`: callers who say nothing
//! - `history`: the conversation's items
//! - `items`: what a client does to items
//! - `sound`: sound inside of events
//! - `tools`: functions that the model may call
//! - `answer`: one answer and how it looks on the wire
//! - `asking`: asking for answers
//! - `responses`: what the engine says about them
//! - `playback`: barge-in, and what the caller has heard
//! - `estimate`: which words were heard

mod answer;
mod asking;
mod config;
pub mod estimate;
mod hearing;
mod history;
mod idle;
mod interface;
mod items;
mod playback;
mod responses;
pub mod sound;
mod speculation;
#[cfg(test)]
mod tests;
mod tools;
mod turns;

use std::collections::VecDeque;
use std::time::Instant;

use repartee_engine_api::{Command, Event, ModelInfo, SessionError, Tool};
use repartee_media::vad::TurnEvent;
use repartee_protocol::error::Report;
use repartee_protocol::session::{Session, State};
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use serde_json::Value;

use answer::Answer;
use asking::Asked;
use estimate::{SpokenPace, WordEstimator};
use hearing::Hearing;
use history::History;
use idle::Idle;
use playback::{Playing, SoundsUntil};
use speculation::Speculation;

pub use interface::{Delivery, Effect, Input, PIECE_MS, PlayoutReport, Setup, Wiring};

/// The configuration that a session would begin with, or why it cannot.
pub fn configured(id: &str, model: &ModelInfo, patch: &Value) -> Result<Session, ErrorBody> {
    config::updated(&config::initial(id, model), patch, model)
}

/// One conversation.
#[derive(Debug)]
pub struct Core {
    setup: Setup,
    config: Session,
    hearing: Hearing,
    history: History,
    /// The answers being made: at most one that is exclusive, and a few beside it.
    answers: Vec<Answer>,
    /// Exclusive answers to begin once the one being made has ended: at most one of the conversation, and a few outside of it.
    waiting: VecDeque<Asked>,
    /// An answer that nobody has heard of.
    speculation: Option<Speculation>,
    /// News of an answer that was begun on suspicion, now that it was right.
    released: VecDeque<Event>,
    idle: Idle,
    /// What the engine was told of tools.
    offered: Vec<Tool>,
    /// The model cannot call tools.
    toolless: bool,
    /// Answers with sound that was not played yet, oldest first. Always empty without a playout clock.
    playing: VecDeque<Playing>,
    /// Until when the client plays. Of interest only without a playout clock.
    sounds_until: SoundsUntil,
    estimator: Box<dyn WordEstimator>,
    /// Numbers events, items and answers.
    counter: u64,
    effects: Vec<Effect>,
}

impl Core {
    /// A new conversation and the first things to do.
    pub fn new(setup: Setup) -> (Self, Vec<Effect>) {
        let config = config::initial(&setup.session_id, &setup.model);
        let configuration = setup.configuration.clone();
        let mut core = Self {
            hearing: Hearing::new(setup.model.input_rate),
            toolless: !setup.model.tools,
            setup,
            config,
            history: History::default(),
            answers: Vec::new(),
            waiting: VecDeque::new(),
            speculation: None,
            released: VecDeque::new(),
            idle: Idle::default(),
            offered: Vec::new(),
            playing: VecDeque::new(),
            sounds_until: SoundsUntil::default(),
            estimator: Box::new(SpokenPace),
            counter: 0,
            effects: Vec::new(),
        };
        let refused = configuration.and_then(|patch| core.reconfigure(&patch).err());
        core.configure();
        core.send(ServerEvent::SessionCreated(State { session: core.config.clone() }));
        core.config.repartee.warnings.clear();
        if let Some(error) = refused {
            core.fail(error);
        }
        let effects = std::mem::take(&mut core.effects);
        (core, effects)
    }

    /// Takes what happened at `now` and returns what to do, in order.
    pub fn handle(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        match input {
            Input::Client(message) => {
                if let Err(error) = self.client(message.event, now) {
                    self.fail(error.about(message.event_id));
                }
            }
            Input::Refused(error) => self.fail(error),
            Input::Audio(samples) => self.audio(&samples, now),
            Input::Turn(TurnEvent::SpeechStarted { audio_start_ms }) => self.speech_started(audio_start_ms),
            Input::Turn(TurnEvent::Paused { audio_end_ms }) => self.suspect(audio_end_ms, now),
            Input::Turn(TurnEvent::Resumed { .. }) => self.take_back(),
            Input::Turn(TurnEvent::SpeechStopped { audio_end_ms }) => self.speech_stopped(audio_end_ms, now),
            Input::Engine(event) => self.engine_says(event, now),
            Input::Release => self.release(now),
            Input::Time => self.time(now),
            Input::EngineEnded => {
                self.fail(ErrorBody::server(ErrorKind::Internal, "the engine has ended this session"));
                self.effects.push(Effect::Close);
            }
            Input::Playout(report) => self.playout(report, now),
        }
        std::mem::take(&mut self.effects)
    }

    /// Whether there is an answer that the caller could interrupt, as far as it is known here.
    pub fn is_answering(&self) -> bool {
        !self.playing.is_empty() || self.answers.iter().any(|answer| answer.exclusive)
    }

    /// Whether nothing goes on: no turn, no answer, nothing to be played. Without turn detection the client alone knows
    /// whether a turn is open, so that does not count.
    pub fn is_idle(&self) -> bool {
        let listening = self.config.audio.input.turn_detection.is_some() && self.hearing.has_turn();
        !listening && self.answers.is_empty() && self.waiting.is_empty() && self.playing.is_empty()
    }

    /// The configuration in effect.
    pub fn config(&self) -> &Session {
        &self.config
    }

    fn client(&mut self, event: ClientEvent, now: Instant) -> Result<(), ErrorBody> {
        if !matches!(event, ClientEvent::InputAppend(_) | ClientEvent::ItemRetrieve(_)) {
            // What was begun on suspicion rests on how things stood.
            self.take_back();
        }
        match event {
            ClientEvent::SessionUpdate(update) => self.update(&update.session),
            // Decoded by the driver, which knows the format.
            ClientEvent::InputAppend(_) => Ok(()),
            ClientEvent::InputCommit => self.commit(),
            ClientEvent::InputClear => {
                self.clear_input();
                Ok(())
            }
            ClientEvent::OutputClear => self.clear_output(),
            ClientEvent::ItemCreate(create) => self.create_item(create),
            ClientEvent::ItemDelete(name) => self.delete_item(name),
            ClientEvent::ItemRetrieve(name) => self.retrieve_item(&name),
            ClientEvent::ItemTruncate(truncate) => self.truncate_item(&truncate),
            ClientEvent::ResponseCreate(create) => self.create_response(create.response.unwrap_or_default(), now),
            ClientEvent::ResponseCancel(cancel) => self.cancel_response(cancel.response_id.as_deref()),
        }
    }

    fn update(&mut self, patch: &Value) -> Result<(), ErrorBody> {
        self.reconfigure(patch)?;
        self.configure();
        self.send(ServerEvent::SessionUpdated(State { session: self.config.clone() }));
        // Said once: the next update has its own.
        self.config.repartee.warnings.clear();
        Ok(())
    }

    /// Takes a new configuration and tells the engine.
    fn reconfigure(&mut self, patch: &Value) -> Result<(), ErrorBody> {
        let old = self.config.instructions.clone();
        self.config = config::updated(&self.config, patch, &self.setup.model)?;
        if self.config.instructions != old {
            self.command(Command::SetInstructions(self.config.instructions.clone()));
        }
        let offered = tools::chosen(tools::functions(&self.config.tools, "session.tools")?, &self.config.tool_choice);
        if offered != self.offered {
            self.offered.clone_from(&offered);
            if !self.toolless {
                self.command(Command::SetTools(offered));
            }
        }
        Ok(())
    }

    fn configure(&mut self) {
        let input = &self.config.audio.input;
        let speculative = self.config.repartee.speculative_start;
        let turns = input.turn_detection.as_ref().map(|turns| config::turn_settings(turns, speculative));
        let idle_ms = self.idle_timeout_ms().unwrap_or(0);
        self.hearing.keep(turns.as_ref().map_or(0, |turns| turns.prefix_padding_ms), idle_ms);
        self.effects.push(Effect::Configure(Wiring { input: self.config.audio.input.format, turns }));
    }

    fn send(&mut self, event: ServerEvent) {
        let event_id = self.new_event_id();
        self.effects.push(Effect::Send(Box::new(ServerMessage { event_id, event })));
    }

    fn new_event_id(&mut self) -> String {
        let number = self.number();
        format!("event_{}_{number}", self.setup.stem)
    }

    fn fail(&mut self, error: ErrorBody) {
        self.effects.push(Effect::Erred(error.code.clone().unwrap_or_default()));
        self.send(ServerEvent::Error(Report { error }));
    }

    fn command(&mut self, command: Command) {
        self.effects.push(Effect::Engine(command));
    }

    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// A new item's name on the wire.
    fn new_item_id(&mut self) -> String {
        let number = self.number();
        format!("item_{}_{number}", self.setup.stem)
    }

    /// A new function call's name on the wire.
    fn new_call_id(&mut self) -> String {
        let number = self.number();
        format!("call_{}_{number}", self.setup.stem)
    }
}

/// How a failure of the engine looks on the wire.
pub fn engine_error(error: &SessionError) -> ErrorBody {
    let message = error.to_string();
    match error {
        SessionError::NothingToCommit => ErrorBody::invalid(ErrorKind::CommitEmpty, message),
        SessionError::AudioTooLong { .. } => ErrorBody::invalid(ErrorKind::AudioTooLong, message),
        SessionError::ContextFull { .. } => ErrorBody::invalid(ErrorKind::ConversationTooLarge, message),
        SessionError::UnknownVoice { .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).at("session.audio.output.voice")
        }
        SessionError::TooManyResponses { .. } => ErrorBody::invalid(ErrorKind::ActiveResponse, message),
        SessionError::NoTools => ErrorBody::invalid(ErrorKind::InvalidValue, message).at("response.tools"),
        _ => ErrorBody::server(ErrorKind::Internal, message),
    }
}
