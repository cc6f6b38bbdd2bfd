//! What can go wrong, for the caller.

use thiserror::Error;

#[cfg(doc)]
use super::SessionHandle;
use super::{Command, ItemId};

/// Why a session could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// `Commit` without audio.
    #[error("no audio to commit: append some first")]
    NothingToCommit,
    /// The audio of one item is longer than the model takes.
    #[error("one audio item holds at most {limit_s} s of sound")]
    AudioTooLong {
        /// The limit in seconds.
        limit_s: u32,
    },
    /// `Respond` named a voice that the model lacks.
    #[error("unknown voice `{voice}`: this model has {known}")]
    UnknownVoice {
        /// What was asked for.
        voice: String,
        /// What there is.
        known: String,
    },
    /// An item id was used twice.
    #[error("item {0} exists already")]
    DuplicateItem(ItemId),
    /// An item was named that is not there.
    #[error("there is no item {0}")]
    UnknownItem(ItemId),
    /// More answers wait than a session may ask for.
    #[error("{limit} answers wait already: ask again when one is complete")]
    TooManyResponses {
        /// The limit.
        limit: usize,
    },
    /// What was asked for cannot be done at this moment.
    #[error("not now: {0}")]
    Busy(&'static str),
    /// Something came after [`Command::Finish`].
    #[error("the session was told that nothing would follow")]
    AfterFinish,
    /// A setting of a command is out of range.
    #[error("{field} is {value}: {allowed}")]
    BadValue {
        /// Which.
        field: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The model's prompt has no place for tools.
    #[error("this model cannot call tools")]
    NoTools,
    /// The memory of the engine is taken.
    #[error("the engine's memory for conversations is taken: try again later")]
    OutOfMemory,
    /// Something that the session waited for did not come: the session is over.
    #[error("{what} took longer than {limit_s} s")]
    TimedOut {
        /// What.
        what: &'static str,
        /// The limit in seconds.
        limit_s: u32,
    },
    /// The last item alone does not fit; of a history that is too long the oldest items are forgotten.
    #[error("the conversation holds {tokens} tokens, the model takes {limit}")]
    ContextFull {
        /// Tokens of the history.
        tokens: u32,
        /// The limit.
        limit: u32,
    },
    /// Not a number in the middle of the model: the session is over, its neighbours are not.
    #[error("the {stage} produced a value that is not finite")]
    NotFinite {
        /// Where.
        stage: &'static str,
    },
    /// The engine failed: the session is over.
    #[error("internal error in the {stage}: {message}")]
    Internal {
        /// Where.
        stage: &'static str,
        /// What it said.
        message: String,
    },
}

impl SessionError {
    /// A setting that is out of range.
    pub fn bad(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::BadValue { field, value: value.to_string(), allowed: allowed.into() }
    }

    /// Whether the session is over.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::Internal { .. } | Self::TimedOut { .. })
    }
}

/// Why a session could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Every slot is taken.
    #[error("all {slots} session slots are taken: try again later")]
    Full {
        /// How many there are.
        slots: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// Why a command could not be handed over. The command comes back.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SubmitError {
    /// The session has not taken the commands before it yet.
    #[error("the session's command queue is full")]
    Full(Box<Command>),
    /// The session has ended.
    #[error("the session has ended")]
    Ended(Box<Command>),
}
