//! The realtime session as a state machine without I/O and without a clock. [`RealtimeSession::handle`] takes an input and the time,
//! and returns effects.
//!
//! | file | contents |
//! |---|---|
//! | `interface` | [`SessionInput`] and [`Effect`] |
//! | `config` | `session.update` |
//! | `input_buffer` | input audio buffer: preroll, turns, slices for the engine |
//! | `turns` | the caller's turns, from turn detection or client commits |
//! | `slice_responses` | responses to each slice of a turn |
//! | `speculation` | responses started before the turn has surely ended |
//! | `transcription` | transcripts of the turns |
//! | `transcription_session` | transcription sessions |
//! | `idle` | the idle timeout |
//! | `history` | the conversation's items |
//! | `items` | `conversation.item.*` |
//! | `tools` | function tools |
//! | `create_response` | `response.create` and `response.cancel`: validation, start, queue, stop |
//! | `speech_synthesis` | responses that speak given text |
//! | `request_input` | model input of a request that replaces the conversation |
//! | `response` | one active response and its wire form |
//! | `engine_events` | engine events of active responses |
//! | `playback` | barge-in and reports of the playout clock |
//! | [`estimate`] | estimate of the heard words |
//! | [`audio`] | base64 audio in events |

pub mod audio;
mod config;
mod create_response;
mod engine_events;
pub mod estimate;
mod history;
mod idle;
mod input_buffer;
mod interface;
mod items;
mod playback;
mod request_input;
mod response;
mod slice_responses;
mod speculation;
mod speech_synthesis;
#[cfg(test)]
mod tests;
mod tools;
mod transcription;
mod transcription_session;
mod turns;

use std::collections::VecDeque;
use std::time::Instant;

use repartee_engine_api::{Command, Event, ModelInfo, SessionError, Tool};
use repartee_media::vad::TurnEvent;
use repartee_protocol::error::ErrorEvent;
use repartee_protocol::session::{Session, SessionEvent, SessionKind};
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use serde_json::Value;

use create_response::QueuedResponse;
use estimate::{SpeechRateEstimator, WordEstimator};
use history::History;
use idle::IdleTimeout;
use input_buffer::InputBuffer;
use playback::{ClientPlayback, PlayingResponse};
use response::ActiveResponse;
use speculation::Speculation;
use transcription::Transcriber;

pub use interface::{AudioSettings, Delivery, Effect, PIECE_MS, PlayoutReport, SessionInput, SessionSetup};

/// Returns the initial configuration of a session with `patch` applied.
///
/// # Errors
///
/// The patch is invalid, or the model does not support it.
pub fn initial_session(id: &str, model: &ModelInfo, patch: &Value) -> Result<Session, ErrorBody> {
    config::updated(&config::initial(id, SessionKind::Realtime, model), patch, model)
}

/// State machine of one realtime session.
///
/// Example: a text turn, with this code as both client and engine.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use repartee_engine_api::{Command, Event, FinishReason, ModelInfo, EngineUsage};
/// use repartee_protocol::{ClientMessage, ServerEvent};
/// use repartee_realtime::{RealtimeSession, Delivery, Effect, SessionInput, SessionSetup};
///
/// let model = ModelInfo {
///     name: "demo".into(),
///     voices: vec!["ada".into()],
///     default_voice: "ada".into(),
///     input_rate: 16_000,
///     output_rate: 24_000,
///     frame: Duration::from_millis(80),
///     context_tokens: 4_096,
///     audio_input: true,
///     tools: false,
///     transcribes: false,
///     given_text: false,
///     recording_rate: None,
/// };
/// let (mut core, effects) = RealtimeSession::new(SessionSetup {
///     session_id: "sess_1".into(),
///     stem: "1".into(),
///     seed: 0,
///     model,
///     delivery: Delivery::Unpaced,
///     expires_at: None,
///     configuration: None,
/// });
/// assert!(matches!(&effects[1], Effect::Send(message) if message.event.kind() == "session.created"));
///
/// let now = Instant::now();
/// let create = r#"{"type": "response.create", "response": {"output_modalities": ["text"]}}"#;
/// let effects = core.handle(SessionInput::Client(ClientMessage::parse(create)?), now);
/// let Effect::Engine(Command::Respond(respond)) = &effects[0] else { panic!("{effects:?}") };
///
/// let (response, reason, usage) = (respond.response, FinishReason::Stop, EngineUsage::default());
/// let mut effects = core.handle(SessionInput::Engine(Event::Text { response, text: "Hello.".into() }), now);
/// effects.extend(core.handle(SessionInput::Engine(Event::SegmentFinished { response, reason, usage }), now));
/// let texts: Vec<&str> = effects
///     .iter()
///     .filter_map(|effect| match effect {
///         Effect::Send(message) => match &message.event {
///             ServerEvent::TextDone(done) => Some(done.text.as_str()),
///             _ => None,
///         },
///         _ => None,
///     })
///     .collect();
/// assert_eq!(texts, ["Hello."]);
/// assert!(core.is_idle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RealtimeSession {
    setup: SessionSetup,
    config: Session,
    input: InputBuffer,
    history: History,
    /// Active responses: at most one exclusive, and a few out-of-band.
    responses: Vec<ActiveResponse>,
    /// Exclusive responses that start after the active one: at most one in the conversation, and a few out-of-band.
    queued: VecDeque<QueuedResponse>,
    /// Speculative response, not announced to the client.
    speculation: Option<Speculation>,
    /// Unprocessed events of a committed speculation.
    pending_events: VecDeque<Event>,
    idle: IdleTimeout,
    transcriber: Transcriber,
    /// Tools that were sent to the engine.
    engine_tools: Vec<Tool>,
    /// Responses with unplayed audio, oldest first. Always empty without a playout clock.
    playing: VecDeque<PlayingResponse>,
    /// Estimated end of the client's playback. Used only without a playout clock.
    client_playback: ClientPlayback,
    estimator: Box<dyn WordEstimator>,
    /// True once a response with given text was requested.
    had_given_text: bool,
    /// Last number assigned to an event, item or response.
    counter: u64,
    effects: Vec<Effect>,
}

impl RealtimeSession {
    /// Creates a session; returns it with its first effects.
    pub fn new(setup: SessionSetup) -> (Self, Vec<Effect>) {
        let mut config = config::initial(&setup.session_id, SessionKind::Realtime, &setup.model);
        config.expires_at = setup.expires_at;
        let configuration = setup.configuration.clone();
        let mut core = Self {
            input: InputBuffer::new(setup.model.input_rate),
            setup,
            config,
            history: History::default(),
            responses: Vec::new(),
            queued: VecDeque::new(),
            speculation: None,
            pending_events: VecDeque::new(),
            idle: IdleTimeout::default(),
            transcriber: Transcriber::default(),
            engine_tools: Vec::new(),
            playing: VecDeque::new(),
            client_playback: ClientPlayback::default(),
            estimator: Box::new(SpeechRateEstimator::default()),
            had_given_text: false,
            counter: 0,
            effects: Vec::new(),
        };
        let refused = configuration.and_then(|patch| core.reconfigure(&patch).err());
        core.configure();
        core.send(ServerEvent::SessionCreated(SessionEvent { session: core.config.clone() }));
        core.config.repartee.warnings.clear();
        if let Some(error) = refused {
            core.send_error(error);
        }
        let effects = std::mem::take(&mut core.effects);
        (core, effects)
    }

    /// Handles an input at `now`; returns the effects in order.
    pub fn handle(&mut self, input: SessionInput, now: Instant) -> Vec<Effect> {
        match input {
            SessionInput::Client(message) => {
                if let Err(error) = self.client(message.event, now) {
                    self.send_error(error.with_event_id(message.event_id));
                }
            }
            SessionInput::Refused(error) => self.send_error(error),
            SessionInput::Audio(samples) => self.audio(&samples, now),
            SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms }) => self.speech_started(audio_start_ms),
            SessionInput::Turn(TurnEvent::PossibleBargeIn { .. }) => self.pause_playout(),
            SessionInput::Turn(TurnEvent::BargeInDismissed { .. }) => self.effects.push(Effect::ResumePlayout),
            SessionInput::Turn(TurnEvent::Paused { audio_end_ms }) => self.begin_speculation(audio_end_ms, now),
            SessionInput::Turn(TurnEvent::Resumed { .. }) => self.abort_speculation(),
            SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms }) => self.speech_stopped(audio_end_ms, now),
            SessionInput::Engine(event) => self.engine_event(event, now),
            SessionInput::PendingEvent => self.process_pending_event(now),
            SessionInput::DeadlineReached => self.time(now),
            SessionInput::EngineEnded => {
                self.send_error(ErrorBody::server(ErrorKind::Internal, "the engine has ended this session"));
                self.effects.push(Effect::Close);
            }
            SessionInput::Playout(report) => self.playout(report, now),
        }
        std::mem::take(&mut self.effects)
    }

    /// True if there is a response that the caller can interrupt.
    pub fn is_responding(&self) -> bool {
        !self.playing.is_empty() || self.responses.iter().any(|response| response.exclusive)
    }

    /// True if there is no open turn, no response, no transcript and no unplayed audio. Without turn detection an open turn
    /// does not count, because only the client knows its end.
    pub fn is_idle(&self) -> bool {
        let listening = self.config.audio.input.turn_detection.is_some() && self.input.has_turn();
        let made = self.responses.is_empty() && self.queued.is_empty() && self.transcriber.is_idle();
        !listening && made && self.playing.is_empty()
    }

    /// Returns the effective configuration.
    pub fn config(&self) -> &Session {
        &self.config
    }

    fn client(&mut self, event: ClientEvent, now: Instant) -> Result<(), ErrorBody> {
        if !matches!(
            event,
            ClientEvent::InputAppend(_)
                | ClientEvent::ItemRetrieve(_)
                | ClientEvent::TextAppend(_)
                | ClientEvent::TextDone(_)
        ) {
            // A speculation assumes an unchanged conversation.
            self.abort_speculation();
        }
        if self.config.kind == SessionKind::Transcription {
            transcription_session::check(&event)?;
        }
        match event {
            ClientEvent::SessionUpdate(update) => self.update(&update.session),
            // The caller of this crate decodes the audio and passes `SessionInput::Audio`.
            ClientEvent::InputAppend(_) => Ok(()),
            ClientEvent::InputCommit => self.commit_input(),
            ClientEvent::InputClear => {
                self.clear_input();
                Ok(())
            }
            ClientEvent::OutputClear => self.clear_output(),
            ClientEvent::ItemCreate(create) => self.create_item(create),
            ClientEvent::ItemDelete(item) => self.delete_item(item),
            ClientEvent::ItemRetrieve(item) => self.retrieve_item(&item),
            ClientEvent::ItemTruncate(truncate) => self.truncate_item(&truncate),
            ClientEvent::ResponseCreate(create) => self.create_response(create, now),
            ClientEvent::ResponseCancel(cancel) => self.cancel_response(cancel.response_id.as_deref()),
            ClientEvent::TextAppend(append) => self.append_text(append, now),
            ClientEvent::TextDone(done) => self.end_text(&done),
        }
    }

    fn update(&mut self, patch: &Value) -> Result<(), ErrorBody> {
        self.reconfigure(patch)?;
        self.configure();
        self.send(ServerEvent::SessionUpdated(SessionEvent { session: self.config.clone() }));
        // Warnings are sent once: the next update has its own.
        self.config.repartee.warnings.clear();
        Ok(())
    }

    /// Applies a configuration update and sends the changes to the engine.
    fn reconfigure(&mut self, patch: &Value) -> Result<(), ErrorBody> {
        let next = config::updated(&self.config, patch, &self.setup.model)?;
        self.check_kind(next.kind)?;
        let old = std::mem::replace(&mut self.config, next).instructions;
        if patch.get("reasoning").is_some_and(|reasoning| !reasoning.is_null()) {
            self.effects.push(Effect::Unsupported("session.reasoning"));
        }
        let transcription = patch.pointer("/audio/input/transcription").is_some_and(|asked| !asked.is_null());
        if transcription && self.config.audio.input.transcription.is_none() {
            self.effects.push(Effect::Unsupported("session.audio.input.transcription"));
        }
        if self.config.instructions != old {
            self.command(Command::SetInstructions(self.config.instructions.clone()));
        }
        let engine_tools =
            tools::allowed(tools::functions(&self.config.tools, "session.tools")?, &self.config.tool_choice);
        if engine_tools != self.engine_tools {
            self.engine_tools.clone_from(&engine_tools);
            if self.setup.model.tools {
                self.command(Command::SetTools(engine_tools));
            }
        }
        Ok(())
    }

    fn configure(&mut self) {
        let input = &self.config.audio.input;
        let speculative = self.speculates();
        let turns = input.turn_detection.as_ref().map(|turns| config::turn_settings(turns, speculative));
        let idle_ms = self.idle_timeout_ms().unwrap_or(0);
        self.input.set_preroll(turns.as_ref().map_or(0, |turns| turns.prefix_padding_ms), idle_ms);
        self.effects.push(Effect::Configure(AudioSettings { input: self.config.audio.input.format, turns }));
    }

    fn send(&mut self, event: ServerEvent) {
        let event_id = self.new_event_id();
        self.effects.push(Effect::Send(Box::new(ServerMessage { event_id, event })));
    }

    fn new_event_id(&mut self) -> String {
        let number = self.number();
        format!("event_{}_{number}", self.setup.stem)
    }

    fn send_error(&mut self, error: ErrorBody) {
        self.effects.push(Effect::CountError(error.code.clone().unwrap_or_default()));
        self.send(ServerEvent::Error(ErrorEvent { error }));
    }

    fn command(&mut self, command: Command) {
        self.effects.push(Effect::Engine(command));
    }

    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Generates a wire id for an item.
    fn new_item_id(&mut self) -> String {
        let number = self.number();
        format!("item_{}_{number}", self.setup.stem)
    }

    /// Generates a wire id for a function call.
    fn new_call_id(&mut self) -> String {
        let number = self.number();
        format!("call_{}_{number}", self.setup.stem)
    }
}

/// Converts an engine error to its wire form.
pub fn engine_error(error: &SessionError) -> ErrorBody {
    let message = error.to_string();
    match error {
        SessionError::NothingToCommit => ErrorBody::invalid(ErrorKind::CommitEmpty, message),
        SessionError::AudioTooLong { .. } => ErrorBody::invalid(ErrorKind::AudioTooLong, message),
        SessionError::ContextFull { .. } => ErrorBody::invalid(ErrorKind::ConversationTooLarge, message),
        SessionError::UnknownVoice { .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("session.audio.output.voice")
        }
        SessionError::TooManyResponses { .. } => ErrorBody::invalid(ErrorKind::ActiveResponse, message),
        SessionError::NoTools => ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("response.tools"),
        SessionError::NoAudioInput => ErrorBody::invalid(ErrorKind::InvalidValue, message),
        // A client does not know the engine's item number.
        SessionError::UnknownItem(_) => {
            let message = "the model does not hold an item that this refers to: it was refused, or has left the context. Send \
                           its content again";
            ErrorBody::invalid(ErrorKind::InvalidValue, message)
        }
        SessionError::OutOfMemory => ErrorBody::server(ErrorKind::SessionLimit, message),
        SessionError::BadValue { field: field @ "text", .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(*field)
        }
        SessionError::BadValue { field: "streamed", .. } => {
            ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("response.repartee.reads")
        }
        // The server chooses the other values itself.
        _ => ErrorBody::server(ErrorKind::Internal, message),
    }
}
