//! Errors of the engine's API.

use thiserror::Error;

#[cfg(doc)]
use super::SessionHandle;
use super::{Command, ItemId};

/// Why a voice was not enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnrolError {
    /// The model has a fixed list of voices.
    #[error("this model cannot take new voices: choose one of {known}")]
    Fixed {
        /// Its voices.
        known: String,
    },
    /// The recording cannot be used.
    #[error("the recording cannot be used: {reason}")]
    Recording {
        /// What to do about it.
        reason: String,
    },
    /// There is a voice of that name.
    #[error("there is a voice `{name}` already")]
    Taken {
        /// The name.
        name: String,
    },
}

/// Why a command or a response failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// There is no open audio.
    #[error("no audio to commit: append some first")]
    NothingToCommit,
    /// An audio item would exceed its limit.
    #[error("an audio item holds at most {limit_s} s")]
    AudioTooLong {
        /// The limit in seconds.
        limit_s: u32,
    },
    /// The model lacks the requested voice.
    #[error("unknown voice `{voice}`: this model has {known}")]
    UnknownVoice {
        /// The requested voice.
        voice: String,
        /// The model's voices.
        known: String,
    },
    /// An item of that id exists.
    #[error("item {0} exists already")]
    DuplicateItem(ItemId),
    /// There is no item of that id.
    #[error("there is no item {0}")]
    UnknownItem(ItemId),
    /// Too many responses of the session are pending.
    #[error("{limit} responses are pending already: try again when one is complete")]
    TooManyResponses {
        /// The limit.
        limit: usize,
    },
    /// The command is not possible in the session's present state.
    #[error("not now: {0}")]
    Busy(&'static str),
    /// A command after [`Command::Finish`].
    #[error("the session takes no more input: it was finished")]
    AfterFinish,
    /// A setting of a command is out of range.
    #[error("{field} is {value}: {allowed}")]
    BadValue {
        /// Path of the setting.
        field: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// The model hears nothing.
    #[error("this model takes no audio: send text")]
    NoAudioInput,
    /// The model's template has no tools.
    #[error("this model cannot call tools")]
    NoTools,
    /// No slot is free for an out-of-band response.
    #[error("all slots for out-of-band responses are taken: try again later")]
    OutOfMemory,
    /// A timeout has passed. The session is over.
    #[error("{what} took longer than {limit_s} s")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// The limit in seconds.
        limit_s: u32,
    },
    /// The last item alone exceeds the context; of longer histories the oldest items are evicted.
    #[error("the prompt has {tokens} tokens, the context {limit}")]
    ContextFull {
        /// Tokens of the prompt.
        tokens: u32,
        /// The limit.
        limit: u32,
    },
    /// A stage computed NaN or infinity. The session is over; other sessions are not affected.
    #[error("the {stage} computed a value that is not finite")]
    NotFinite {
        /// The stage.
        stage: &'static str,
    },
    /// The engine failed. The session is over.
    #[error("internal error in the {stage}: {message}")]
    Internal {
        /// The stage.
        stage: &'static str,
        /// Details.
        message: String,
    },
}

impl SessionError {
    /// [`SessionError::BadValue`].
    pub fn bad(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::BadValue { field, value: value.to_string(), allowed: allowed.into() }
    }

    /// Whether the session is over.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::Internal { .. } | Self::TimedOut { .. })
    }
}

/// Why a session was not opened.
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

/// Why a command was not submitted. Returns the command.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SubmitError {
    /// The command queue is full.
    #[error("the session's command queue is full")]
    Full(Box<Command>),
    /// The session has ended.
    #[error("the session has ended")]
    Ended(Box<Command>),
}
