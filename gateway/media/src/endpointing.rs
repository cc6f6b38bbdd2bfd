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

/// Decides how much silence ends a turn. A model that judges whether a sentence is complete implements this; it is asked once
/// a pause, after [`MIN_SILENCE_MS`] of silence.
pub trait Endpointer: Send + std::fmt::Debug {
    /// How much of the turn's latest audio [`Self::silence_ms`] is given, in ms.
    fn context_ms(&self) -> u64 {
        0
    }

    /// Total silence that ends the turn in this pause, in ms. `turn` is the turn's latest audio, the pause included, at
    /// [`super::vad::RATE`].
    fn silence_ms(&mut self, eagerness: Eagerness, turn: &[f32]) -> u64;
}

/// Silence after which an [`Endpointer`] is asked, in ms.
pub const MIN_SILENCE_MS: u64 = 200;

/// Endpointing by a fixed silence for each [`Eagerness`], whatever was said.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedSilence;

impl Endpointer for FixedSilence {
    fn silence_ms(&mut self, eagerness: Eagerness, _: &[f32]) -> u64 {
        match eagerness {
            Eagerness::Low => 1_200,
            Eagerness::Medium => 700,
            Eagerness::High => 400,
        }
    }
}
