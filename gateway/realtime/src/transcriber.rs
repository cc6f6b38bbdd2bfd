//! Queue of the turns to transcribe.

use std::collections::VecDeque;
use std::time::Instant;

use repartee_engine_api::{ItemId, ResponseId};

/// Turn to transcribe.
#[derive(Debug)]
pub(super) struct PendingTranscript {
    /// Wire id of the turn's item.
    pub item_id: String,
    /// Engine id of the turn's item.
    pub item: ItemId,
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
