//! Progress of an engine's start, enrolment of stored voices included.

/// Phase of an engine's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// Reads the checkpoint's configuration and the headers of its weight files.
    Opening,
    /// Reads weights and packs them for the device.
    Weights,
    /// Generates a first response.
    WarmUp,
    /// Enrols stored voices again. The owner of the recordings reports this phase.
    Voices,
}

impl StartStage {
    /// Name of the phase, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Weights => "weights",
            Self::WarmUp => "warm_up",
            Self::Voices => "voices",
        }
    }
}

/// Progress report of a start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartProgress {
    /// Phase that is under way.
    pub stage: StartStage,
    /// Share of the weights read, or of the voices enrolled, 0 to 1. Never falls within a phase.
    pub fraction: f32,
}

impl StartProgress {
    /// Start of the first phase; nothing has been read.
    pub const BEGIN: Self = Self { stage: StartStage::Opening, fraction: 0.0 };
}
