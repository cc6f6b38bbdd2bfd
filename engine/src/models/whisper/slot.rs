//! State of a recognition: the sound of its window, its last hypotheses, the run under way.

use repartee_engine_api::TranscriptDetails;

use super::agreement::MOST_AGREEMENTS;
use super::run::{Decoding, ScoredToken};
use super::window_encoding::WindowEncoding;
use super::word_alignment::WordAlignment;

/// Reason of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    /// More sound follows in this window.
    Growing,
    /// The window is full.
    Cut,
    /// The sound has ended.
    Final,
}

/// Next unit of work of a run.
#[derive(Debug)]
pub enum RunPhase {
    /// The sound is too short to hold a word.
    Nothing,
    /// The window is encoded, unit by unit.
    Encode(WindowEncoding),
    /// The next tokens are computed.
    Decode(Decoding),
    /// The text is complete; its words are timed, unit by unit.
    Align(Decoding, Box<WordAlignment>),
}

/// A decoding of the sound so far, or of all of it.
#[derive(Debug)]
pub struct Run {
    /// Reason of the run.
    pub kind: RunKind,
    /// Samples of this window.
    pub samples: usize,
    /// Next unit of work.
    pub phase: RunPhase,
    /// True if the longest window is encoded.
    pub whole: bool,
    /// Rows of the encoded window.
    pub encoded: Vec<f32>,
    /// Likeliest doubtful text so far, with its average.
    pub best: Option<(Vec<ScoredToken>, f32)>,
}

/// A recognition from its opening until its slot is freed.
#[derive(Debug)]
pub struct OpenSlot {
    /// Tells it from an earlier one of the slot, and its runs from each other.
    pub serial: u64,
    /// True for an English translation.
    pub translate: bool,
    /// Details of the text of a recording so far; `None` for live sound.
    pub details: Option<Box<TranscriptDetails>>,
    /// Index of the language that the caller named.
    pub given: Option<usize>,
    /// Index of the language, once a word is stable.
    pub language: Option<usize>,
    /// True if the sound is decoded at its end and where it fills the window alone.
    pub complete: bool,
    /// Tokens before the text: the caller's hints, then text of earlier windows.
    pub previous: Vec<u32>,
    /// Text of earlier windows.
    pub done: String,
    /// Samples of earlier windows.
    pub dropped: usize,
    /// Sound of this window.
    pub sound: Vec<f32>,
    /// Samples of this window at its last hypothesis.
    pub heard: usize,
    /// Last hypothesis for this window, token by token.
    pub text: Vec<ScoredToken>,
    /// Tokens of the hypotheses before, oldest first; at most [`MOST_AGREEMENTS`].
    pub before: Vec<Vec<u32>>,
    /// Number of hypotheses before the last one that agree on a stable word; `None` if growing text is never stable.
    pub agreements: Option<usize>,
    /// Number of stable tokens of `text`.
    pub stable: usize,
    /// True at the end of the sound.
    pub ended: bool,
    /// True after the final hypothesis.
    pub finished: bool,
    /// Run under way.
    pub run: Option<Run>,
}

impl OpenSlot {
    /// Run under way, with its serial number.
    pub fn running(&self) -> Option<(u64, &Run)> {
        self.run.as_ref().map(|run| (self.serial, run))
    }

    /// Tokens of the last hypothesis.
    pub fn ids(&self) -> Vec<u32> {
        self.text.iter().map(|(id, _)| *id).collect()
    }

    /// The last `count` hypotheses, oldest first; missing ones are empty.
    pub fn earlier(&self, count: usize) -> Vec<Vec<u32>> {
        let last = self.before.iter().cloned().chain([self.ids()]);
        let all: Vec<_> = std::iter::repeat_n(Vec::new(), count).chain(last).collect();
        all[all.len() - count..].to_vec()
    }

    /// Keeps the last hypothesis beside those before it.
    pub fn pass_hypothesis(&mut self) {
        let ids = self.ids();
        self.before.push(ids);
        let excess = self.before.len().saturating_sub(MOST_AGREEMENTS);
        self.before.drain(..excess);
    }
}
