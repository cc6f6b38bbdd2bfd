//! What goes into a realtime session, and what comes out.

use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{Command, Event, ModelInfo, ResponseId, LatencyStamps};
use repartee_media::vad::{TurnEvent, TurnSettings};
use repartee_protocol::response::{PartRef, ResponseStatus};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientMessage, ErrorBody, ServerMessage};
use serde_json::Value;

#[cfg(doc)]
use super::{RealtimeSession, initial_session};

/// What happened, for [`Core::handle`].
#[derive(Debug)]
pub enum SessionInput {
    /// A client event. The audio of `input_audio_buffer.append` comes as [`Input::Audio`] instead.
    Client(ClientMessage),
    /// A message that could not be parsed or accepted.
    Refused(ErrorBody),
    /// Audio of the caller at the model's input rate, in pieces of at most [`PIECE_MS`].
    Audio(Vec<f32>),
    /// A boundary of a turn, detected in the audio given so far.
    Turn(TurnEvent),
    /// An event of the engine.
    Engine(Event),
    /// There is room for another pending event; see [`Core::has_pending_event`].
    PendingEvent,
    /// [`Core::deadline`] has come.
    DeadlineReached,
    /// The engine ended the session.
    EngineEnded,
    /// A report of the playout clock.
    Playout(PlayoutReport),
}

/// Longest piece of [`Input::Audio`] in ms: a turn's end is cut exactly only if its tail was not submitted yet.
pub const PIECE_MS: u32 = 20;

/// Report of the playout clock on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayoutReport {
    /// Its first audio was sent.
    Started {
        /// The response.
        response: ResponseId,
    },
    /// How much of it has reached the ear, by estimate.
    Position {
        /// The response.
        response: ResponseId,
        /// Heard so far, in ms.
        heard_ms: u64,
    },
    /// All of it has played.
    Drained {
        /// The response.
        response: ResponseId,
    },
}

/// What to do, in the order given.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Send an event to the client.
    Send(Box<ServerMessage>),
    /// Hand a command to the engine.
    Engine(Command),
    /// Use these settings from now on.
    Configure(AudioSettings),
    /// The turn was ended by the client: reset the turn detector.
    ResetTurnDetector,
    /// A response of the conversation was requested; for the statistics.
    ResponseRequested {
        /// The response.
        response: ResponseId,
        /// When the caller began to wait.
        since: Instant,
    },
    /// Stages of a response's first audio; for the statistics.
    Stamps {
        /// The response.
        response: ResponseId,
        /// When each stage was ready.
        stamps: LatencyStamps,
    },
    /// The audio of a response begins.
    AudioStart {
        /// The response.
        response: ResponseId,
        /// How it is encoded on a websocket.
        format: AudioFormat,
    },
    /// Audio of a response at the model's output rate: play it, or send it as a delta.
    Audio {
        /// Id of the event, if it becomes one.
        event_id: String,
        /// The response.
        response: ResponseId,
        /// Address of the delta.
        part: PartRef,
        /// The samples.
        samples: Vec<f32>,
    },
    /// The audio of a response has ended: flush its filters.
    AudioEnd {
        /// Id of the event, if it becomes one.
        event_id: String,
        /// The response.
        response: ResponseId,
        /// Address of the last delta.
        part: PartRef,
    },
    /// Hold back all audio that has not played yet until [`Effect::ResumePlayout`], for a bounded time. Only with a playout clock.
    PausePlayout,
    /// Go on where a pause began, if there is one.
    ResumePlayout,
    /// Drop all audio that has not played yet; without a playout clock, the client does.
    ClearPlayout,
    /// Drop the audio of one response that has not played yet, while others play on.
    ClearResponse(ResponseId),
    /// A response has ended; for the statistics.
    CountResponse(ResponseStatus),
    /// A speculation was committed or aborted; for the statistics.
    CountSpeculation {
        /// Whether it was committed.
        committed: bool,
    },
    /// An error was sent to the client, by its code; for the statistics.
    CountError(String),
    /// The client asked for something that is not served, and was told so in `repartee.warnings`; for the log.
    Unsupported(&'static str),
    /// End the session.
    Close,
}

/// How the caller's audio is decoded and cut into turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AudioSettings {
    /// Its encoding on a websocket.
    pub input: AudioFormat,
    /// Turn detection; `None` for push-to-talk.
    pub turns: Option<TurnSettings>,
}

/// Who owns the playout clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The server: audio leaves at the pace of a clock, which reports (WebRTC).
    Paced,
    /// The client: audio leaves as soon as it is generated (websocket).
    Unpaced,
}

/// Parameters of a new session.
#[derive(Debug, Clone)]
pub struct SessionSetup {
    /// The session's id, `sess_...`.
    pub session_id: String,
    /// Random letters in the ids of items and responses, which makes them unique.
    pub stem: String,
    /// Seed of the engine's sampling.
    pub seed: u64,
    /// The model that is served.
    pub model: ModelInfo,
    /// Who owns the playout clock.
    pub delivery: Delivery,
    /// When the session ends at the latest, in seconds since 1970; `None` for never.
    pub expires_at: Option<u64>,
    /// The initial configuration in the form of `session.update`; see [`initial_session`].
    pub configuration: Option<Arc<Value>>,
}
