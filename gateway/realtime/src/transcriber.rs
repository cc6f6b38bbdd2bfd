//! Queue of the turns to transcribe.

use std::collections::VecDeque;
use std::time::Instant;

use repartee_engine_api::{ItemId, ResponseId};

/// Transcript of a turn that is still open, by a model that hears text.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenTranscript {
    /// Engine id of the item that the turn becomes.
    pub item: ItemId,
    /// True if the client knows the item's id already.
    pub announced: bool,
    /// Bytes of the text that the client got.
    pub sent: usize,
}

/// Turn to transcribe.
#[derive(Debug)]
pub(super) struct PendingTranscript {
    /// Wire id of the turn's item.
    pub item_id: String,
    /// Engine id of the turn's item.
    pub item: ItemId,
    /// Bytes of the text that the client got while the turn was open.
    pub sent: usize,
    /// Number of failed attempts.
    pub tries: u32,
}

/// Transcript in progress.
#[derive(Debug)]
pub(super) struct ActiveTranscript {
    /// Engine id of the transcript.
    pub response: ResponseId,
    /// Turn of the transcript; `None` after the item was deleted.
    pub turn: Option<PendingTranscript>,
    /// Text so far.
    pub text: String,
    /// Bytes of the text that the client got.
    pub sent: usize,
}

/// Queue of transcripts: at most one in progress, others waiting.
#[derive(Debug, Default)]
pub(super) struct Transcriber {
    /// Transcript in progress.
    pub active: Option<ActiveTranscript>,
    /// Turns that wait, in order.
    pub waiting: VecDeque<PendingTranscript>,
    /// Time of the next attempt, if the engine had no free slot.
    pub retry_at: Option<Instant>,
}

impl Transcriber {
    /// True if no transcript is in progress or waiting.
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.waiting.is_empty()
    }

    /// Time at which the next attempt is due; `None` without a retry.
    pub fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}
