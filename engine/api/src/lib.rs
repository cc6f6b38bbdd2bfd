//! The API of the speech engine: session handles that take commands and give events over bounded queues.
//!
//! A [`SessionHandle`] is one session. It is runtime-neutral: each operation has a blocking and an async form. The engine
//! thread never waits for a caller: a session whose event queue is full is not runnable until the caller has read. Dropping
//! the handle ends the session and frees what it held.
//!
//! - [`command`]: commands of the caller
//! - [`event`]: events of a session
//! - [`error`] says why a command or a session failed
//! - [`handle`]: both ends of the queues
//! - [`work`]: what the engine has computed so far, and what waits
//!
//! [`link`] makes both ends. The engine holds the other one ([`Peer`]); so does a scripted engine in tests.

pub mod command;
pub mod error;
pub mod event;
pub mod handle;
pub mod work;

use std::time::Duration;

pub use command::{Command, MessageContent, ResponseInput, InsertAt, ItemId, Respond, ResponseId, Role, Sampling, SlicePolicy, Tool};
pub use error::{EnrolError, OpenError, SessionError, SubmitError};
pub use event::{Event, FinishReason, LatencyStamps, EngineUsage};
pub use handle::{SessionPeer, SessionHandle, WakeSignal, link};
pub use work::{EngineLoad, StageWork};

/// Capacity of a session's command queue; beyond it [`SessionHandle::submit`] returns [`SubmitError::Full`].
pub const COMMAND_QUEUE: usize = 256;
/// Capacity of a session's event queue; a session with a full one is not runnable. At one event a codec frame of 80 ms and
/// some text in between this is about 10 s of unsent speech.
pub const EVENT_QUEUE: usize = 192;

/// Properties of the served model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Display name, from the checkpoint's folder.
    pub name: String,
    /// Names of the voices.
    pub voices: Vec<String>,
    /// The voice of requests that name none.
    pub default_voice: String,
    /// Sampling rate of [`Command::Append`], in Hz.
    pub input_rate: u32,
    /// Sampling rate of [`Event::Audio`], in Hz.
    pub output_rate: u32,
    /// Duration of one codec frame.
    pub frame: Duration,
    /// Tokens of a prompt and its response, at most.
    pub context_tokens: u32,
    /// Whether the model hears; one that does not refuses audio ([`SessionError::NoEars`]).
    pub audio_input: bool,
    /// Whether the model can call tools.
    pub tools: bool,
    /// Whether the model writes down what it hears when it is asked to.
    pub transcribes: bool,
    /// Whether the model reads a given text aloud ([`Respond::streamed`]).
    pub given_text: bool,
    /// Sampling rate of the recordings that new voices are made of, in Hz; `None` if it has a fixed list of voices.
    pub recording_rate: Option<u32>,
}

/// Somebody's voice, for [`SpeechEngine::enrol`].
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Mono samples in -1..1 at [`ModelInfo::recording_rate`].
    pub samples: Vec<f32>,
    /// What is said; empty where that is not known.
    pub text: String,
}

/// An engine as its callers see it. Tests use a scripted one.
pub trait SpeechEngine: Send + Sync + 'static {
    /// The served model.
    fn info(&self) -> &ModelInfo;
    /// Opens a session, or returns [`OpenError::Full`] at once.
    fn open(&self) -> Result<SessionHandle, OpenError>;
    /// Open sessions and session slots.
    fn occupancy(&self) -> (usize, usize);
    /// Names of the voices that requests may name now: the model's own ([`ModelInfo::voices`]), and those that were enrolled.
    fn voices(&self) -> Vec<String> {
        self.info().voices.clone()
    }
    /// Makes a voice out of a recording, which requests may name from then on. Blocks while it is computed.
    fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        let _ = (name, recording);
        Err(EnrolError::Fixed { known: self.voices().join(", ") })
    }
    /// Forgets an enrolled voice; whether there was one. Responses that it speaks go on.
    fn remove_voice(&self, name: &str) -> bool {
        let _ = name;
        false
    }
    /// Whether sessions are served now: false while the engine starts again after a fault, and once it has stopped.
    fn ready(&self) -> bool {
        true
    }
    /// What each stage has computed since the start, in the order of the stages; nothing where it is not counted.
    fn work(&self) -> Vec<StageWork> {
        Vec::new()
    }
    /// Ticks since the start, and what waits now; nothing where it is not counted.
    fn load(&self) -> EngineLoad {
        EngineLoad::default()
    }
}
