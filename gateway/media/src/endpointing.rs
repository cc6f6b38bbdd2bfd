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
}

/// Turn-detection model, as far as endpointing knows it: when it is asked, and what its probabilities mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseModel {
    /// The project's own network: asked early and often, and a probability sets the silence that ends the turn.
    Embedded,
    /// smart-turn v3: some tenths of a second of a core, so asked seldom, and its probability decides at once.
    SmartTurn,
}

impl PauseModel {
    /// Silence before the first question in a pause, in ms.
    pub fn first_question_ms(self) -> u64 {
        match self {
            Self::Embedded => 32,
            Self::SmartTurn => 200,
        }
    }

    /// Further silence before the next question, in ms.
    pub fn next_question_ms(self) -> u64 {
        match self {
            Self::Embedded => 80,
            Self::SmartTurn => 500,
        }
    }

    /// Maximum audio of a question, the latest of the turn, in ms.
    pub fn context_ms(self) -> u64 {
        match self {
            Self::Embedded => 3_200,
            Self::SmartTurn => 8_000,
        }
    }

    /// Silence that ends a turn which the model judged to have ended with `probability`, in ms.
    pub fn silence_ms(self, eagerness: Eagerness, probability: f32) -> u64 {
        match self {
            Self::Embedded => {
                let steps = match eagerness {
                    Eagerness::Low => &SILENCES_LOW,
                    Eagerness::Medium => &SILENCES_MEDIUM,
                    Eagerness::High => &SILENCES_HIGH,
                };
                let step = steps.iter().find(|(least, _)| probability >= *least);
                step.map_or(eagerness.fixed_ms(), |(_, silence_ms)| *silence_ms)
            }
            Self::SmartTurn if probability >= eagerness.threshold() => 0,
            Self::SmartTurn => eagerness.maximum_ms(),
        }
    }

    /// True if a response may begin before the turn has surely ended: a speculation is free, but not for nothing.
    pub fn speculates(self, probability: f32) -> bool {
        self == Self::Embedded && probability >= 0.3
    }
}

/// Silences that end a turn by the embedded network, in ms: each from a least probability on, the most probable first.
/// The recipe's step `choose` chooses them by speakers that neither train nor judge (models/turns/recipe).
type Silences = [(f32, u64); 6];
const SILENCES_HIGH: Silences = [(0.97, 0), (0.95, 80), (0.93, 160), (0.05, 320), (0.02, 480), (0.0, 640)];
const SILENCES_MEDIUM: Silences = [(0.97, 0), (0.95, 160), (0.93, 320), (0.9, 480), (0.02, 720), (0.0, 1_200)];
const SILENCES_LOW: Silences = [(0.99, 160), (0.98, 320), (0.97, 480), (0.05, 800), (0.02, 1_200), (0.0, 1_600)];

impl Eagerness {
    /// Silence that ends a turn judged unfinished by smart-turn, in ms: the published maximum waits.
    fn maximum_ms(self) -> u64 {
        match self {
            Self::Low => 8_000,
            Self::Medium => 4_000,
            Self::High => 2_000,
        }
    }

    /// Minimum probability of a finished turn by smart-turn, 0 to 1: its own threshold of 0.5, plus or minus 0.2.
    fn threshold(self) -> f32 {
        match self {
            Self::Low => 0.7,
            Self::Medium => 0.5,
            Self::High => 0.3,
        }
    }
}

/// Question to the turn-detection model: has the turn ended?
#[derive(Debug, Clone, PartialEq)]
pub struct TurnQuery {
    /// Number of the question within the session; the answer refers to it.
    pub id: u64,
    /// Latest audio of the turn, including the pause, at most [`PauseModel::context_ms`], at [`super::vad::RATE`].
    pub turn: Vec<f32>,
}

/// State of the model's judgement of a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PauseJudgement {
    /// Id of the unanswered question, if any.
    pub asked: Option<u64>,
    /// Silence at which the next question is due, in ms; `None` for the model's first one.
    pub due_ms: Option<u64>,
    /// Probability of the last answer.
    pub probability: Option<f32>,
}

impl PauseJudgement {
    /// Initial state: no question was asked.
    pub const NONE: Self = Self { asked: None, due_ms: None, probability: None };

    /// Returns the silence that ends the turn in this state, in ms; `model` if one judges pauses.
    pub fn required_ms(&self, eagerness: Eagerness, model: Option<PauseModel>) -> u64 {
        let judged = model.zip(self.probability);
        judged.map_or(eagerness.fixed_ms(), |(model, probability)| model.silence_ms(eagerness, probability))
    }
}
