//! Messages to the thread of recordings.

use std::time::Duration;

/// Side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Sound of whoever is at the telephone.
    Caller,
    /// Sound of the model's answers, as it was sent.
    Answers,
}

impl Side {
    /// Ending of the side's file.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Caller => ".caller.wav",
            Self::Answers => ".answers.wav",
        }
    }
}

/// Sound of one side.
#[derive(Debug)]
pub(super) struct Piece {
    pub call: u64,
    pub side: Side,
    /// Time since the recording began.
    pub at: Duration,
    pub rate: u32,
    pub samples: Vec<i16>,
}

/// Message to the thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A call's recording begins: its number and its id.
    Begin(u64, String),
    Piece(Piece),
    End(u64),
}
