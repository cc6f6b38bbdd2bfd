//! How long a pause has to last before it ends the caller's turn.

/// How soon to take the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// Let the caller think.
    Low,
    /// In between.
    Medium,
    /// Quickly.
    High,
}

/// Judges pauses. A model that hears whether a sentence is complete goes here; it is asked once a pause, after
/// [`JUDGED_AFTER_MS`] of silence.
pub trait EndOfTurn: Send + std::fmt::Debug {
    /// How much of the turn's latest sound it wants to hear, in ms.
    fn memory_ms(&self) -> u64 {
        0
    }

    /// How much silence in all ends the turn now, in ms. `turn` is the turn's latest sound, the pause included, at
    /// [`super::vad::RATE`].
    fn patience_ms(&mut self, eagerness: Eagerness, turn: &[f32]) -> u64;
}

/// Silence after which a pause is judged, in ms.
pub const JUDGED_AFTER_MS: u64 = 200;

/// Waits for a fixed time, whatever was said.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitingTimes;

impl EndOfTurn for WaitingTimes {
    fn patience_ms(&mut self, eagerness: Eagerness, _: &[f32]) -> u64 {
        match eagerness {
            Eagerness::Low => 1_200,
            Eagerness::Medium => 700,
            Eagerness::High => 400,
        }
    }
}
