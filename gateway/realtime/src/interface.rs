//! What a conversation takes, and what it wants done.

use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{Command, Event, ModelInfo, ResponseId, Stamps};
use repartee_media::vad::{TurnEvent, TurnSettings};
use repartee_protocol::response::{PartName, Status};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientMessage, ErrorBody, ServerMessage};
use serde_json::Value;

#[cfg(doc)]
use super::{Core, configured};

/// What a conversation is told.
#[derive(Debug)]
pub enum Input {
    /// A client event. The sound of `input_audio_buffer.append` comes as [`Input::Audio`] instead.
    Client(ClientMessage),
    /// A message that could not be read, or could not be taken.
    Refused(ErrorBody),
    /// Sound of the caller at the model's input rate, in pieces of at most [`PIECE_MS`].
    Audio(Vec<f32>),
    /// A boundary of a turn, found in the sound given so far.
    Turn(TurnEvent),
    /// News from the engine.
    Engine(Event),
    /// There is room for news that were kept back; see [`Core::has_released`].
    Release,
    /// It is [`Core::deadline`].
    Time,
    /// The engine ended the session.
    EngineEnded,
    /// News from the playout clock.
    Playout(PlayoutReport),
}

/// Longest piece of [`Input::Audio`], in ms: a turn's end can be cut exactly only if its tail was not submitted yet.
pub const PIECE_MS: u32 = 20;

/// What the playout clock reports of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayoutReport {
    /// Its first sound left.
    Started {
        /// Whose.
        response: ResponseId,
    },
    /// The caller has heard this much of it.
    Position {
        /// Whose.
        response: ResponseId,
        /// Heard so far.
        heard_ms: u64,
    },
    /// All of it was played.
    Drained {
        /// Whose.
        response: ResponseId,
    },
}

/// What a conversation wants done, in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Send an event.
    Send(Box<ServerMessage>),
    /// Hand a command to the engine.
    Engine(Command),
    /// Use these settings from now on.
    Configure(Wiring),
    /// The turn was ended by other means than the detector, which must forget it.
    EndTurn,
    /// An answer was asked for; the caller has waited since `since`.
    Asked {
        /// Which.
        response: ResponseId,
        /// When the caller's turn ended.
        since: Instant,
    },
    /// When the parts of an answer's first sound were ready.
    Stamped {
        /// Whose.
        response: ResponseId,
        /// When.
        stamps: Stamps,
    },
    /// An answer begins to sound; on a websocket it is to be written like this.
    Begin {
        /// Whose.
        response: ResponseId,
        /// How.
        format: AudioFormat,
    },
    /// Sound of an answer at the model's output rate: play it, or send it as a delta.
    Speak {
        /// Name of the event, if it becomes one.
        event_id: String,
        /// Whose.
        response: ResponseId,
        /// Where the delta belongs.
        name: PartName,
        /// The sound.
        samples: Vec<f32>,
    },
    /// An answer has no more sound: what is still inside a filter comes out now.
    SpeechEnd {
        /// Name of the event, if it becomes one.
        event_id: String,
        /// Whose.
        response: ResponseId,
        /// Where the last delta belongs.
        name: PartName,
    },
    /// Drop all sound that was not played yet; without a playout clock, the client does.
    ClearPlayout,
    /// An answer came to its end; for the statistics.
    Answered(Status),
    /// An answer was begun in a pause; whether the pause was the turn's end. For the statistics.
    Suspected(bool),
    /// Something went wrong; for the statistics. It is always sent as well.
    Erred(String),
    /// The conversation is over.
    Close,
}

/// How the caller's sound is read and cut into turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wiring {
    /// Its format on a websocket.
    pub input: AudioFormat,
    /// How to find turns; `None` for push-to-talk.
    pub turns: Option<TurnSettings>,
}

/// Who knows what the caller has heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// We do: sound leaves at the pace of a clock, which reports (WebRTC).
    Paced,
    /// The client does: sound leaves as soon as it is made (websocket).
    Unpaced,
}

/// What a conversation has to know from the start.
#[derive(Debug, Clone)]
pub struct Setup {
    /// `sess_...`.
    pub session_id: String,
    /// Random letters that make the ids of items and answers unique.
    pub stem: String,
    /// Random numbers of the answers are a function of it.
    pub seed: u64,
    /// The model that is served.
    pub model: ModelInfo,
    /// Who knows what the caller has heard.
    pub delivery: Delivery,
    /// What the session is configured with from the start, as `session.update` has it; see [`configured`].
    pub configuration: Option<Arc<Value>>,
}
