//! Errors of the engine's API.

use thiserror::Error;

#[cfg(doc)]
use super::SessionHandle;
use super::{Command, ItemId, RemoteFailureKind};

/// Error of enrolling a voice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnrolError {
    /// The model has a fixed list of voices.
    #[error("this model cannot take new voices: choose one of {known}")]
    Fixed {
        /// Names of the model's voices.
        known: String,
    },
    /// The recording cannot be used.
    #[error("the recording cannot be used: {reason}")]
    Recording {
        /// Reason, and remedy if there is one.
        reason: String,
    },
    /// A voice of that name exists already.
    #[error("there is a voice `{name}` already")]
    Taken {
        /// Name of the voice.
        name: String,
    },
}

/// Error of a command or a response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// No audio item is open.
    #[error("no audio to commit: append some first")]
    NothingToCommit,
    /// An audio item would exceed its limit.
    #[error("an audio item holds at most {limit_s} s")]
    AudioTooLong {
        /// Upper bound in seconds.
        limit_s: u32,
    },
    /// The model lacks the requested voice.
    #[error("unknown voice `{voice}`: this model has {known}")]
    UnknownVoice {
        /// Name of the requested voice.
        voice: String,
        /// Names of the available voices.
        known: String,
    },
    /// An item of that id exists already.
    #[error("item {0} exists already")]
    DuplicateItem(ItemId),
    /// No item has that id.
    #[error("there is no item {0}")]
    UnknownItem(ItemId),
    /// Too many responses of the session are pending.
    #[error("{limit} responses are pending already: try again when one is complete")]
    TooManyResponses {
        /// Upper bound of pending responses.
        limit: usize,
    },
    /// The session's present state does not allow the command.
    #[error("not now: {0}")]
    Busy(&'static str),
    /// The command came after [`Command::Finish`].
    #[error("the session takes no more input: it was finished")]
    AfterFinish,
    /// A setting of a command is out of range.
    #[error("{field} is {value}: {allowed}")]
    BadValue {
        /// Path of the setting.
        field: &'static str,
        /// Rejected value of the setting.
        value: String,
        /// Description of the allowed values.
        allowed: String,
    },
    /// The model takes no audio.
    #[error("this model takes no audio: send text")]
    NoAudioInput,
    /// The model does not speak.
    #[error("this model does not speak: ask for a text response")]
    NoAudioOutput,
    /// The model only hears.
    #[error("this model only writes down what it hears: ask for a transcript")]
    NoResponses,
    /// The model writes no transcripts.
    #[error("this model does not transcribe audio")]
    NoTranscription,
    /// The model writes no translations.
    #[error("this model does not translate audio")]
    NoTranslation,
    /// The model's template has no tools.
    #[error("this model cannot call tools")]
    NoTools,
    /// The answer cannot be held to the requested form.
    #[error("{0}")]
    BadForm(String),
    /// The server of the language model gave no answer, or a broken one.
    #[error("{message}")]
    Thinker {
        /// Kind of the failure.
        kind: RemoteFailureKind,
        /// Sentence that names the server and a remedy.
        message: String,
    },
    /// No slot is free for an out-of-band response.
    #[error("all slots for out-of-band responses are taken: try again later")]
    OutOfMemory,
    /// A fault of another session ended the response.
    #[error("a fault elsewhere ended the response: ask again")]
    Interrupted,
    /// A timeout has passed. The session is over.
    #[error("{what} took longer than {limit_s} s")]
    TimedOut {
        /// Action that took too long.
        what: &'static str,
        /// Timeout in seconds.
        limit_s: u32,
    },
    /// The last item alone exceeds the context. In longer histories the oldest items are evicted.
    #[error("the prompt has {tokens} tokens, the context {limit}")]
    ContextFull {
        /// Number of the prompt's tokens.
        tokens: u32,
        /// Size of the context in tokens.
        limit: u32,
    },
    /// A stage computed NaN or infinity. The session is over; other sessions are not affected.
    #[error("the {stage} computed a value that is not finite")]
    NotFinite {
        /// Name of the stage.
        stage: &'static str,
    },
    /// The engine failed. The session is over.
    #[error("internal error in the {stage}: {message}")]
    Internal {
        /// Name of the stage.
        stage: &'static str,
        /// Details of the failure.
        message: String,
    },
}

impl SessionError {
    /// Creates a [`SessionError::BadValue`].
    pub fn bad(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::BadValue { field, value: value.to_string(), allowed: allowed.into() }
    }

    /// True if the session is over.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::Internal { .. } | Self::TimedOut { .. })
    }
}

/// Error of opening a session.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Every slot is taken.
    #[error("all {slots} session slots are taken: try again later")]
    Full {
        /// Number of slots.
        slots: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// Error of submitting a command; returns the command.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SubmitError {
    /// The command queue is full.
    #[error("the session's command queue is full")]
    Full(Box<Command>),
    /// The session has ended.
    #[error("the session has ended")]
    Ended(Box<Command>),
}
