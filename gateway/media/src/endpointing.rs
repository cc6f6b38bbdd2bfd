//! Endpointing: how much silence ends the caller's turn.

/// How soon to take the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// Leaves the caller time to think.
    Low,
    /// Between the two.
    Medium,
    /// Answers quickly.
    High,
}

impl Eagerness {
    /// Silence that ends a turn whatever was said, in ms: without a model that judges, or for as long as it has not.
    pub fn fixed_ms(self) -> u64 {
        match self {
            Self::Low => 1_200,
            Self::Medium => 700,
            Self::High => 400,
        }
    }

    /// Silence that ends a turn which a model judges unfinished, in ms: the published maximum waits.
    pub fn maximum_ms(self) -> u64 {
        match self {
            Self::Low => 8_000,
            Self::Medium => 4_000,
            Self::High => 2_000,
        }
    }

    /// Probability from which a turn has ended, 0 to 1: the model's own threshold, and as much above and below it.
    pub fn threshold(self) -> f32 {
        match self {
            Self::Low => 0.7,
            Self::Medium => 0.5,
            Self::High => 0.3,
        }
    }
}

/// Silence after which a model is asked first in a pause, in ms.
pub const FIRST_QUESTION_MS: u64 = 200;

/// Further silence after which it is asked again, in ms.
pub const NEXT_QUESTION_MS: u64 = 500;

/// How much of the turn's latest audio a model is given, in ms.
pub const CONTEXT_MS: u64 = 8_000;

/// A question to a model: has the turn ended?
#[derive(Debug, Clone, PartialEq)]
pub struct TurnQuery {
    /// Which question of the session this is; the answer names it.
    pub id: u64,
    /// The turn's latest audio, at most [`CONTEXT_MS`], the pause included, at [`super::vad::RATE`].
    pub turn: Vec<f32>,
}

/// What a model has said of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PauseJudgement {
    /// The question that is not answered yet.
    pub asked: Option<u64>,
    /// Silence at which the next question is due, in ms.
    pub due_ms: u64,
    /// It was answered that the caller goes on.
    pub unfinished: bool,
}

impl PauseJudgement {
    /// Nothing yet.
    pub const NONE: Self = Self { asked: None, due_ms: FIRST_QUESTION_MS, unfinished: false };

    /// Silence that ends the turn as things stand, in ms.
    pub fn required_ms(&self, eagerness: Eagerness) -> u64 {
        if self.unfinished { eagerness.maximum_ms() } else { eagerness.fixed_ms() }
    }
}
