//! Errors of models that do not join.

use thiserror::Error;

/// Error of two models that do not join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CascadeError {
    /// The model that thinks speaks by itself.
    #[error("cascade.think: this model speaks by itself: serve it with --model, or choose a language model")]
    ThinkSpeaks,
    /// There is no part.
    #[error("cascade: set at least one part: hear, think or speak")]
    Empty,
    /// Nothing writes what is spoken.
    #[error("cascade.think: it is missing between a recogniser and a voice: set it, or leave one of them out")]
    NothingThinks,
    /// The model that hears is no recogniser.
    #[error("cascade.hear: this model is no recogniser: choose one that writes down what it hears")]
    HearAnswers,
    /// The model that thinks hears by itself.
    #[error("cascade.hear: the model that thinks hears by itself: leave cascade.hear out, or choose a language model")]
    ThinkHears,
    /// The model that thinks is a recogniser.
    #[error("cascade.think: this model only hears: choose a language model, and set it as cascade.hear")]
    ThinkOnlyHears,
    /// The model that speaks has no sound.
    #[error("cascade.speak: this model answers with text alone: choose one that speaks")]
    SpeakSilent,
    /// The model that speaks writes its own text.
    #[error("cascade.speak: this model speaks no given text: choose one that reads aloud")]
    SpeakWrites,
}
