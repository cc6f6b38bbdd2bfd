//! Properties of a model's hearing, and details of its transcripts.

use std::time::Duration;

#[cfg(doc)]
use super::Listen;

/// Properties of a model's hearing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HearingInfo {
    /// Codes of the languages that the model knows; empty if it takes any hint.
    pub languages: Vec<String>,
    /// True if transcripts of recordings have the times of their words ([`Listen::recorded`]).
    pub word_times: bool,
    /// True if the model translates what it hears into English.
    pub translates: bool,
    /// Longest sound that a prompt has room for; `None` if that is not known, or sound is heard as text.
    pub longest: Option<Duration>,
}

/// Details of the transcript of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TranscriptDetails {
    /// Code of the language that was found; `None` if the model does not tell languages apart.
    pub language: Option<String>,
    /// Words in order; together they are the text.
    pub words: Vec<TimedWord>,
    /// Quality of the text.
    pub quality: TranscriptQuality,
}

/// A word of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedWord {
    /// Word as it stands in the text, with the space before it and the stops behind it.
    pub text: String,
    /// Tokens of the word.
    pub tokens: Vec<u32>,
    /// Begin of the word in its audio item.
    pub begin: Duration,
    /// End of the word in its audio item, not before its begin.
    pub end: Duration,
}

/// Properties by which a transcript can be doubted: of several windows the worst.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TranscriptQuality {
    /// Mean of the logarithms of the tokens' probabilities.
    pub average: f32,
    /// Length of the text divided by its compressed length.
    pub compression: f32,
    /// Probability that nothing was said.
    pub no_speech: f32,
    /// Temperature at which the text was decoded.
    pub temperature: f32,
}
