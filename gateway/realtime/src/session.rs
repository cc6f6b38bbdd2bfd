//! State of a realtime session, and the helpers of everything that changes it.

use std::collections::VecDeque;

use repartee_engine_api::{Command, Event, Tool};
use repartee_protocol::error::ErrorEvent;
use repartee_protocol::session::{Session, SessionEvent, SessionKind};
use repartee_protocol::{ErrorBody, ServerEvent, ServerMessage};

use super::client_playback::ClientPlayback;
use super::config;
use super::estimate::{SpeechRateEstimator, WordEstimator};
use super::history::History;
use super::idle::IdleTimeout;
use super::input_buffer::InputBuffer;
use super::interface::{Effect, SessionSetup};
use super::item_audio::ItemAudio;
use super::response::{ActiveResponse, PlayingResponse, QueuedResponse, SpeculativeResponse};
use super::transcriber::Transcriber;

/// State machine of one realtime session.
///
/// Example: a text turn, with this code as both client and engine.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use repartee_engine_api::{Command, EngineUsage, Event, FinishReason, HearingInfo, ModelInfo};
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
///     hears_text: false,
///     answers: true,
///     audio_output: true,
///     tools: false,
///     answer_forms: false,
///     transcribes: false,
///     hearing: HearingInfo::default(),
///     given_text: false,
///     reads_messages: None,
///     reads_clauses: false,
///     reads_only: false,
///     whole_texts: false,
///     spoken_text: None,
///     speech_limit: None,
///     instructions: String::new(),
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
///     warnings: Vec::new(),
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
    pub(super) setup: SessionSetup,
    pub(super) config: Session,
    pub(super) input: InputBuffer,
    pub(super) history: History,
    /// Active responses: at most one exclusive, and a few out-of-band.
    pub(super) responses: Vec<ActiveResponse>,
    /// Exclusive responses that start after the active one: at most one in the conversation, and a few out-of-band.
    pub(super) queued: VecDeque<QueuedResponse>,
    /// Speculative response, not announced to the client.
    pub(super) speculation: Option<SpeculativeResponse>,
    /// Unprocessed events of a committed speculation.
    pub(super) pending_events: VecDeque<Event>,
    /// Decoded audio of the items of the next client event.
    pub(super) item_audio: ItemAudio,
    pub(super) idle: IdleTimeout,
    pub(super) transcriber: Transcriber,
    /// Tools that were sent to the engine.
    pub(super) engine_tools: Vec<Tool>,
    /// Responses with unplayed audio, oldest first. Always empty without a playout clock.
    pub(super) playing: VecDeque<PlayingResponse>,
    /// Estimated end of the client's playback. Used only without a playout clock.
    pub(super) client_playback: ClientPlayback,
    pub(super) estimator: Box<dyn WordEstimator>,
    /// True once a response with given text was requested.
    pub(super) had_given_text: bool,
    /// Wire id of the response announced last.
    pub(super) last_response: Option<String>,
    /// Last number assigned to an event, item or response.
    counter: u64,
    pub(super) effects: Vec<Effect>,
}

impl RealtimeSession {
    /// Creates a session; returns it with its first effects.
    pub fn new(setup: SessionSetup) -> (Self, Vec<Effect>) {
        let mut config = config::initial(&setup.session_id, SessionKind::Realtime, &setup.model);
        config.expires_at = setup.expires_at;
        let configuration = setup.configuration.clone();
        let estimator = SpeechRateEstimator::new(setup.model.spoken_text.clone());
        let mut core = Self {
            input: InputBuffer::new(setup.model.input_rate),
            setup,
            config,
            history: History::default(),
            responses: Vec::new(),
            queued: VecDeque::new(),
            speculation: None,
            pending_events: VecDeque::new(),
            item_audio: ItemAudio::default(),
            idle: IdleTimeout::default(),
            transcriber: Transcriber::default(),
            engine_tools: Vec::new(),
            playing: VecDeque::new(),
            client_playback: ClientPlayback::default(),
            estimator: Box::new(estimator),
            had_given_text: false,
            last_response: None,
            counter: 0,
            effects: Vec::new(),
        };
        if !core.config.instructions.is_empty() {
            core.command(Command::SetInstructions(core.config.instructions.clone()));
        }
        let refused = configuration.and_then(|patch| core.reconfigure(&patch).err());
        core.configure();
        let warnings = [core.setup.warnings.clone(), std::mem::take(&mut core.config.repartee.warnings)].concat();
        core.config.repartee.warnings = warnings;
        core.send(ServerEvent::SessionCreated(SessionEvent { session: core.config.clone() }));
        core.config.repartee.warnings.clear();
        if let Some(error) = refused {
            core.send_error(error);
        }
        let effects = std::mem::take(&mut core.effects);
        (core, effects)
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

    pub(super) fn send(&mut self, event: ServerEvent) {
        let event_id = self.new_event_id();
        self.effects.push(Effect::Send(Box::new(ServerMessage { event_id, event })));
    }

    pub(super) fn new_event_id(&mut self) -> String {
        let number = self.number();
        format!("event_{}_{number}", self.setup.stem)
    }

    pub(super) fn send_error(&mut self, error: ErrorBody) {
        self.effects.push(Effect::CountError(error.code.clone().unwrap_or_default()));
        self.send(ServerEvent::Error(ErrorEvent { error }));
    }

    pub(super) fn command(&mut self, command: Command) {
        self.effects.push(Effect::Engine(command));
    }

    pub(super) fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Generates a wire id for an item.
    pub(super) fn new_item_id(&mut self) -> String {
        let number = self.number();
        format!("item_{}_{number}", self.setup.stem)
    }

    /// Generates a wire id for a function call.
    pub(super) fn new_call_id(&mut self) -> String {
        let number = self.number();
        format!("call_{}_{number}", self.setup.stem)
    }
}
