//! How far the start of an engine has come.

/// What a starting engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// The checkpoint's configuration and the headers of its weight files are read.
    Opening,
    /// Weights are read and packed for the device.
    Weights,
    /// A first response is made.
    WarmUp,
}

impl StartStage {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Weights => "weights",
            Self::WarmUp => "warm_up",
        }
    }
}

/// A moment of a start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartProgress {
    /// What is being done.
    pub stage: StartStage,
    /// The share of the weights that was read, 0 to 1. Never falls.
    pub fraction: f32,
}

impl StartProgress {
    /// Nothing was read yet.
    pub const BEGIN: Self = Self { stage: StartStage::Opening, fraction: 0.0 };
}
