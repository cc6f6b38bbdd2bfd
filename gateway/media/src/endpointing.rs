//! Endpointing: the silence that ends the caller's turn.

/// Eagerness of endpointing: a higher value ends turns after less silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// Long silence; leaves the caller time to think.
    Low,
    /// Between low and high.
    Medium,
    /// Short silence; answers quickly.
    High,
}

impl Eagerness {
    /// Silence that ends a turn in ms, without a turn-detection model or until the model answers.
    pub fn fixed_ms(self) -> u64 {
        match self {
            Self::Low => 1_200,
            Self::Medium => 700,
            Self::High => 400,
        }
    }

    /// Silence that ends a turn judged unfinished by the model, in ms: the published maximum waits.
    pub fn maximum_ms(self) -> u64 {
        match self {
            Self::Low => 8_000,
            Self::Medium => 4_000,
            Self::High => 2_000,
        }
    }

    /// Minimum model probability of a finished turn, 0 to 1: the model's own threshold of 0.5, plus or minus 0.2.
    pub fn threshold(self) -> f32 {
        match self {
            Self::Low => 0.7,
            Self::Medium => 0.5,
            Self::High => 0.3,
        }
    }
}

/// Silence before the first question to the model in a pause, in ms.
pub const FIRST_QUESTION_MS: u64 = 200;

/// Further silence before the next question, in ms.
pub const NEXT_QUESTION_MS: u64 = 500;

/// Maximum audio of a question, the latest of the turn, in ms.
pub const CONTEXT_MS: u64 = 8_000;

/// Question to the turn-detection model: has the turn ended?
#[derive(Debug, Clone, PartialEq)]
pub struct TurnQuery {
    /// Number of the question within the session; the answer refers to it.
    pub id: u64,
    /// Latest audio of the turn, including the pause, at most [`CONTEXT_MS`], at [`super::vad::RATE`].
    pub turn: Vec<f32>,
}

/// State of the model's judgement of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PauseJudgement {
    /// Id of the unanswered question, if any.
    pub asked: Option<u64>,
    /// Silence at which the next question is due, in ms.
    pub due_ms: u64,
    /// True if the model judged the turn unfinished.
    pub unfinished: bool,
}

impl PauseJudgement {
    /// Initial state: no question was asked.
    pub const NONE: Self = Self { asked: None, due_ms: FIRST_QUESTION_MS, unfinished: false };

    /// Silence that ends the turn in this state, in ms.
    pub fn required_ms(&self, eagerness: Eagerness) -> u64 {
        if self.unfinished { eagerness.maximum_ms() } else { eagerness.fixed_ms() }
    }
}
