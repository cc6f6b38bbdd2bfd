//! API of the speech engine: session handles that take commands and give events over bounded queues.
//!
//! A [`SessionHandle`] is one session. It is runtime-neutral: each operation has a blocking and an async form. The
//! engine thread never waits for a caller: a session whose event queue is full is not runnable until the caller has
//! read (backpressure). Dropping the handle ends the session and frees its resources.
//!
//! - [`command`]: commands of the caller
//! - [`event`]: events of a session
//! - [`error`]: errors of commands, responses, sessions and voices
//! - [`handle`]: both ends of the queues
//! - [`work`]: counters of computed work, and queue lengths
//!
//! [`link`] creates both ends. The engine holds the other one ([`SessionPeer`]); in tests a scripted engine does.

pub mod command;
pub mod error;
pub mod event;
pub mod handle;
pub mod work;

use std::time::Duration;

pub use command::{
    Command, InsertAt, ItemId, MessageContent, Respond, ResponseId, ResponseInput, Role, Sampling, SlicePolicy, Tool,
};
pub use error::{EnrolError, OpenError, SessionError, SubmitError};
pub use event::{EngineUsage, Event, FinishReason, LatencyStamps};
pub use handle::{SessionHandle, SessionPeer, WakeSignal, link};
pub use work::{EngineLoad, StageWork};

/// Capacity of a session's command queue; beyond it [`SessionHandle::submit`] returns [`SubmitError::Full`].
pub const COMMAND_QUEUE: usize = 256;
/// Capacity of a session's event queue; a session with a full one is not runnable. At one event for each codec frame of
/// 80 ms, and some text, this is about 10 s of unsent speech.
pub const EVENT_QUEUE: usize = 192;

/// Properties of the served model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Display name, from the checkpoint's folder.
    pub name: String,
    /// Names of the model's own voices.
    pub voices: Vec<String>,
    /// Voice of requests that name none.
    pub default_voice: String,
    /// Sampling rate of [`Command::Append`], in Hz.
    pub input_rate: u32,
    /// Sampling rate of [`Event::Audio`], in Hz.
    pub output_rate: u32,
    /// Duration of one codec frame.
    pub frame: Duration,
    /// Upper bound of a prompt's and its response's tokens together.
    pub context_tokens: u32,
    /// True if the model takes audio; otherwise audio is refused ([`SessionError::NoAudioInput`]).
    pub audio_input: bool,
    /// True if the model can call tools.
    pub tools: bool,
    /// True if the model transcribes its input audio on request.
    pub transcribes: bool,
    /// True if the model speaks a given text ([`Respond::streamed`]).
    pub given_text: bool,
    /// Sampling rate of the recordings for new voices, in Hz; `None` if the list of voices is fixed.
    pub recording_rate: Option<u32>,
}

/// Recording of a voice, for [`SpeechEngine::enrol`].
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Mono samples in -1..1 at [`ModelInfo::recording_rate`].
    pub samples: Vec<f32>,
    /// Transcript of the recording; empty if unknown.
    pub text: String,
}

/// Interface of an engine to its callers. Tests use a scripted one.
pub trait SpeechEngine: Send + Sync + 'static {
    /// Properties of the served model.
    fn info(&self) -> &ModelInfo;
    /// Opens a session, or returns [`OpenError::Full`] at once.
    fn open(&self) -> Result<SessionHandle, OpenError>;
    /// Number of open sessions and number of session slots.
    fn occupancy(&self) -> (usize, usize);
    /// Names of the voices that requests may use now: the model's own ([`ModelInfo::voices`]) and the enrolled ones.
    fn voices(&self) -> Vec<String> {
        self.info().voices.clone()
    }
    /// Enrols a voice from a recording; requests may name it from then on. Blocks during the computation.
    fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        let _ = (name, recording);
        Err(EnrolError::Fixed { known: self.voices().join(", ") })
    }
    /// Removes an enrolled voice; false if there is none of that name. Active responses keep the voice.
    fn remove_voice(&self, name: &str) -> bool {
        let _ = name;
        false
    }
    /// True while sessions are served; false while the engine restarts after a fault, and once it has stopped.
    fn ready(&self) -> bool {
        true
    }
    /// Work of each stage since the start, in the order of the stages; empty if it is not counted.
    fn work(&self) -> Vec<StageWork> {
        Vec::new()
    }
    /// Ticks since the start, and current queue lengths; empty if they are not counted.
    fn load(&self) -> EngineLoad {
        EngineLoad::default()
    }
}
