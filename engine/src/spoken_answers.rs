//! Settings of spoken answers: defaults of a language model in a cascade, whose text a voice speaks.

use serde::{Deserialize, Serialize};

/// Maximum length of [`SpokenAnswersConfig::instructions`], in bytes.
pub const MAX_INSTRUCTIONS: usize = 8 << 10;
/// Range of [`SpokenAnswersConfig::tokens`].
pub const TOKENS: std::ops::RangeInclusive<usize> = 1..=1 << 20;

/// Settings of `[engine.spoken_answers]`: defaults of answers that a cascade speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpokenAnswersConfig {
    /// Instructions of sessions that give none; a client's replace them. Empty for none.
    pub instructions: String,
    /// Upper bound of an answer's text tokens where a request gives none. A language model behind a server has its own.
    pub tokens: u32,
}

impl Default for SpokenAnswersConfig {
    fn default() -> Self {
        let instructions =
            "You are in a spoken conversation. Answer in one or two short sentences, in plain words: no lists, \
                            no headings, no code, no emoji, no markup."
                .to_owned();
        Self { instructions, tokens: 400 }
    }
}
