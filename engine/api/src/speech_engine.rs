//! Interface of an engine to its callers, and properties of its model.

use std::time::Duration;

use repartee_spoken::SpokenOptions;

#[cfg(doc)]
use super::{Command, Event, Respond, SessionError};
use super::{EngineLoad, EnrolError, HearingInfo, OpenError, SessionHandle, StageWork, Tenant};

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
    /// Sampling rate of [`Event::Audio`], in Hz; nominal without audio output.
    pub output_rate: u32,
    /// Duration of one codec frame; nominal without audio output.
    pub frame: Duration,
    /// Upper bound of a prompt's and its response's tokens together.
    pub context_tokens: u32,
    /// True if the model takes audio; otherwise audio is refused ([`SessionError::NoAudioInput`]).
    pub audio_input: bool,
    /// True if a recogniser hears audio as text, which grows while audio is open ([`Command::Listen`]).
    pub hears_text: bool,
    /// True if the model answers; a recogniser alone does not ([`SessionError::NoResponses`]).
    pub answers: bool,
    /// True if the model speaks; otherwise spoken responses are refused ([`SessionError::NoAudioOutput`]).
    pub audio_output: bool,
    /// True if the model can call tools.
    pub tools: bool,
    /// True if its answers can be held to a form ([`Respond::form`]).
    pub answer_forms: bool,
    /// True if the model transcribes its input audio on request.
    pub transcribes: bool,
    /// Languages, times and translation of what it hears.
    pub hearing: HearingInfo,
    /// True if the model speaks a given text ([`Respond::streamed`]).
    pub given_text: bool,
    /// Instructions with which the model reads the caller's message aloud, if it was taught some; `None` for other models and
    /// for those of [`Self::given_text`].
    pub reads_messages: Option<ReadingInstructions>,
    /// True if the model only speaks given texts, and writes no answers of its own.
    pub reads_only: bool,
    /// True if the model speaks a given text of any length as one response, a clause at a time.
    pub reads_clauses: bool,
    /// True if the model's vocabulary encodes a text only as a whole: then [`MAX_STRETCH`](crate::MAX_STRETCH) bounds the
    /// whole text.
    pub whole_texts: bool,
    /// Form in which the engine speaks the text of responses ([`Event::Text`] is the written form); `None` if it is spoken
    /// as it is written.
    pub spoken_text: Option<SpokenOptions>,
    /// Maximum speech of one text that is spoken without a break; a longer one ends in
    /// [`FinishReason::Length`](crate::FinishReason::Length). `None` if it is not limited.
    pub speech_limit: Option<Duration>,
    /// Instructions of sessions that give none; empty for none.
    pub instructions: String,
    /// Sampling rate of the recordings for new voices, in Hz; `None` if the list of voices is fixed.
    pub recording_rate: Option<u32>,
}

/// Instructions that a model was taught for reading a message aloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingInstructions {
    /// Sentence that asks for it.
    pub task: &'static str,
    /// Sentence behind it, if the request has no instructions of its own.
    pub usual: &'static str,
}

impl ReadingInstructions {
    /// Writes the instructions of a request behind the task.
    pub fn with(&self, instructions: &str) -> String {
        let own = instructions.trim();
        format!("{} {}", self.task, if own.is_empty() { self.usual } else { own })
    }
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
    /// As [`SpeechEngine::open`], for a tenant: an engine that computes shares its time fairly between tenants, and counts
    /// the tenant's work.
    fn open_for(&self, tenant: &Tenant) -> Result<SessionHandle, OpenError> {
        let _ = tenant;
        self.open()
    }
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
