//! Settings of spoken text: how given text is made speakable.

use repartee_spoken::{SpokenLanguage, SpokenOptions};
use serde::{Deserialize, Serialize};

/// Maximum length of [`SpokenTextConfig::code_block`], in bytes.
pub const MAX_SENTENCE: usize = 200;

/// Settings of `[engine.spoken_text]`: the form in which given text reaches a voice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpokenTextConfig {
    /// True if text is made speakable: Markdown, numbers, dates, signs and links in words. False if it is spoken as it is
    /// written.
    pub enabled: bool,
    /// Language of the rules.
    #[serde(with = "LanguageName")]
    pub language: SpokenLanguage,
    /// Sentence in place of a block of code in English text; nothing if empty.
    pub code_block: String,
}

/// Names of languages in settings.
#[derive(Serialize, Deserialize)]
#[serde(remote = "SpokenLanguage", rename_all = "snake_case")]
enum LanguageName {
    Detected,
    English,
    Other,
}

impl Default for SpokenTextConfig {
    fn default() -> Self {
        let SpokenOptions { language, code_block } = SpokenOptions::default();
        Self { enabled: true, language, code_block }
    }
}

impl SpokenTextConfig {
    /// Options of spoken text; `None` if text is spoken as it is written.
    pub fn options(&self) -> Option<SpokenOptions> {
        let Self { enabled, language, ref code_block } = *self;
        enabled.then(|| SpokenOptions { language, code_block: code_block.clone() })
    }

    /// True if the sentence for blocks of code is short and in one line.
    pub fn has_valid_sentence(&self) -> bool {
        self.code_block.len() <= MAX_SENTENCE && !self.code_block.contains(char::is_control)
    }
}
