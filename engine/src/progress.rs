//! How far the start of an engine has come, with the voices that it is taught.

/// What a starting engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// The checkpoint's configuration and the headers of its weight files are read.
    Opening,
    /// Weights are read and packed for the device.
    Weights,
    /// A first response is made.
    WarmUp,
    /// Voices out of recordings are enrolled again, by whoever keeps them.
    Voices,
}

impl StartStage {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Weights => "weights",
            Self::WarmUp => "warm_up",
            Self::Voices => "voices",
        }
    }
}

/// A moment of a start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartProgress {
    /// What is being done.
    pub stage: StartStage,
    /// The share of the weights that was read, or of the voices that were enrolled, 0 to 1. Never falls within a stage.
    pub fraction: f32,
}

impl StartProgress {
    /// Nothing was read yet.
    pub const BEGIN: Self = Self { stage: StartStage::Opening, fraction: 0.0 };
}
