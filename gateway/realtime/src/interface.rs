//! Inputs and effects of a realtime session.

use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{Command, EngineUsage, Event, LatencyStamps, ModelInfo, ResponseId};
use repartee_media::decision::Decision;
use repartee_media::vad::{TurnEvent, TurnSettings};
use repartee_protocol::noise_reduction::NoiseReductionKind;
use repartee_protocol::response::{PartRef, ResponseStatus};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientMessage, ErrorBody, ServerMessage};
use serde_json::Value;

use super::item_audio::ItemAudio;
#[cfg(doc)]
use super::{RealtimeSession, initial_session};

/// Input of [`RealtimeSession::handle`].
#[derive(Debug)]
pub enum SessionInput {
    /// Client event. The audio of `input_audio_buffer.append` arrives as [`SessionInput::Audio`] instead.
    Client(ClientMessage),
    /// Decoded audio of the items of the next client event; without it the session decodes them.
    ItemAudio(ItemAudio),
    /// Client message that was not parsed or accepted.
    Refused(ErrorBody),
    /// Caller's audio at the model's input rate, in pieces of at most [`PIECE_MS`].
    Audio(Vec<f32>),
    /// Key of the caller's telephone.
    Key {
        /// The key: `0` to `9`, `*`, `#`, `A` to `D`.
        key: char,
        /// Time of its arrival, in Unix seconds.
        received_at: u64,
    },
    /// Turn boundary detected in the audio received so far.
    Turn(TurnEvent),
    /// Decision about the audio received so far, for a client that wants to see it. It precedes the boundary that it makes.
    Decision(Decision),
    /// Event from the engine.
    Engine(Event),
    /// The caller has room for another pending event; see [`RealtimeSession::has_pending_event`].
    PendingEvent,
    /// The time of [`RealtimeSession::deadline`] has passed.
    DeadlineReached,
    /// The engine ended the session.
    EngineEnded,
    /// Report of the playout clock.
    Playout(PlayoutReport),
}

/// Maximum length of [`SessionInput::Audio`] in ms. The end of a turn is exact only if its tail was not submitted yet.
pub const PIECE_MS: u32 = 20;

/// Report of the playout clock on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayoutReport {
    /// First audio of the response was sent.
    Started {
        /// Id of the response.
        response: ResponseId,
    },
    /// Estimated heard position changed.
    Position {
        /// Id of the response.
        response: ResponseId,
        /// Audio heard so far, in ms.
        heard_ms: u64,
    },
    /// All audio of the response has played.
    Drained {
        /// Id of the response.
        response: ResponseId,
    },
}

/// Action for the caller of [`RealtimeSession::handle`], executed in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Sends an event to the client.
    Send(Box<ServerMessage>),
    /// Sends a command to the engine.
    Engine(Command),
    /// Applies new audio settings.
    Configure(AudioSettings),
    /// Resets the turn detector: the turn was ended without it.
    ResetTurnDetector,
    /// Reports the request of a response in the conversation, for metrics.
    ResponseRequested {
        /// Id of the response.
        response: ResponseId,
        /// Start of the caller's wait.
        since: Instant,
    },
    /// Reports the timing of a response's first audio, for metrics.
    Stamps {
        /// Id of the response.
        response: ResponseId,
        /// Completion time of each stage.
        stamps: LatencyStamps,
    },
    /// Starts the audio of a response.
    AudioStart {
        /// Id of the response.
        response: ResponseId,
        /// Audio format on a websocket.
        format: AudioFormat,
    },
    /// Plays audio of a response at the model's output rate, or sends it as a delta.
    Audio {
        /// Id of the delta event, if one is sent.
        event_id: String,
        /// Id of the response.
        response: ResponseId,
        /// Location of the delta.
        part: PartRef,
        /// Mono samples in -1..1.
        samples: Vec<f32>,
    },
    /// Ends the audio of a response: flushes its filters.
    AudioEnd {
        /// Id of the last delta event, if one is sent.
        event_id: String,
        /// Id of the response.
        response: ResponseId,
        /// Location of the last delta.
        part: PartRef,
    },
    /// Pauses playout until [`Effect::ResumePlayout`], for a bounded time. Only with a playout clock.
    PausePlayout,
    /// Resumes paused playout; without a pause, does nothing.
    ResumePlayout,
    /// Drops all unplayed audio. Without a playout clock the client drops it.
    ClearPlayout,
    /// Drops the unplayed audio of one response; others continue.
    ClearResponse(ResponseId),
    /// Counts the end of a response, for metrics.
    CountResponse(ResponseStatus),
    /// Counts the usage of a response or a transcript, for the account of the caller's key.
    CountUsage(EngineUsage),
    /// Counts the end of a speculation, for metrics.
    CountSpeculation {
        /// True if committed, false if aborted.
        committed: bool,
    },
    /// Counts an error sent to the client, by code, for metrics.
    CountError(String),
    /// Logs an unsupported setting that the client requested; `repartee.warnings` reports it to the client.
    Unsupported(&'static str),
    /// Ends the session.
    Close,
}

/// Decoding and turn detection of the caller's audio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AudioSettings {
    /// Audio format on a websocket.
    pub input: AudioFormat,
    /// Turn detection settings; `None` for push-to-talk.
    pub turns: Option<TurnSettings>,
    /// Noise reduction; `None` for the sound as it is.
    pub noise_reduction: Option<NoiseReductionKind>,
}

/// Owner of the playout clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Server: a playout clock sends the audio in real time and reports positions (WebRTC).
    Paced,
    /// Client: audio is sent as soon as it is generated (websocket).
    Unpaced,
}

/// Parameters of a new session.
#[derive(Debug, Clone)]
pub struct SessionSetup {
    /// Id of the session, `sess_...`.
    pub session_id: String,
    /// Random letters in the ids of events, items and responses, for uniqueness.
    pub stem: String,
    /// Random seed of the engine's sampling.
    pub seed: u64,
    /// Capabilities of the loaded model.
    pub model: ModelInfo,
    /// Owner of the playout clock.
    pub delivery: Delivery,
    /// Latest end of the session in Unix seconds; `None` for no limit.
    pub expires_at: Option<u64>,
    /// Initial configuration in the form of `session.update`; see [`initial_session`].
    pub configuration: Option<Arc<Value>>,
    /// Warnings about the request that opened the session, for `session.created`.
    pub warnings: Vec<String>,
}
