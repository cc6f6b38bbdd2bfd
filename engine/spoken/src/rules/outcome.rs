//! Input and output of a rule.

use crate::affixes::{Affixes, is_capitalised};
use crate::token::Token;

/// Spoken form of one token; empty if the token is silent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpokenWord {
    pub text: String,
    /// True if no space separates it from the word before it.
    pub glued: bool,
    /// True if it belongs together with the next word.
    pub joins_next: bool,
}

impl SpokenWord {
    /// Makes a word.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), glued: false, joins_next: false }
    }

    /// Makes a mark of a pause, which follows the word before it.
    pub fn pause(text: &str) -> Self {
        Self { glued: true, ..Self::new(text) }
    }

    /// Joins it to the next word.
    pub fn joined(self) -> Self {
        Self { joins_next: true, ..self }
    }
}

/// Outcome of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOutcome {
    /// Spoken words of the first tokens, one for each; not empty.
    Spoken(Vec<SpokenWord>),
    /// The rule depends on the next token.
    Wait,
    /// The rule is not for these tokens.
    None,
}

impl RuleOutcome {
    /// Outcome for the first token alone.
    pub fn one(text: impl Into<String>) -> Self {
        Self::Spoken(vec![SpokenWord::new(text)])
    }

    /// Outcome for tokens that belong together.
    pub fn joined(texts: impl IntoIterator<Item = String>) -> Self {
        let mut words: Vec<_> = texts.into_iter().map(|text| SpokenWord::new(text).joined()).collect();
        if let Some(last) = words.last_mut() {
            last.joins_next = false;
        }
        Self::Spoken(words)
    }
}

/// Word before the tokens, as far as rules ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreviousWord {
    /// Word in small letters, without punctuation; empty at the beginning of a sentence.
    pub word: String,
    pub capitalised: bool,
    /// True if it ends with a digit.
    pub number: bool,
}

impl PreviousWord {
    /// Returns what rules may ask of a token's text.
    pub fn of(text: &str) -> Self {
        let Affixes { core, trail, .. } = Affixes::of(text);
        if trail.contains(['.', '!', '?', '…']) {
            return Self::default();
        }
        let number = core.ends_with(|c: char| c.is_numeric() || c == ')');
        Self { word: core.to_lowercase(), capitalised: is_capitalised(core), number }
    }

    /// True for a number or the name of a variable.
    pub fn is_operand(&self) -> bool {
        self.number || (self.word.chars().count() == 1 && self.word != "i")
    }
}

/// First tokens of the queue.
#[derive(Debug, Clone, Copy)]
pub struct TokenWindow<'a> {
    tokens: &'a [Token],
    /// True if a pause or the end of the text follows the last token.
    pub ended: bool,
    pub previous: &'a PreviousWord,
}

impl<'a> TokenWindow<'a> {
    /// Makes a window over tokens, of which there is at least one.
    pub fn new(tokens: &'a [Token], ended: bool, previous: &'a PreviousWord) -> Self {
        Self { tokens, ended, previous }
    }

    /// Returns the token at an index, if it is there.
    pub fn token(&self, index: usize) -> Option<&'a Token> {
        self.tokens.get(index)
    }

    /// Splits the token at an index; empty if there is none.
    pub fn affixes(&self, index: usize) -> Affixes<'a> {
        Affixes::of(self.token(index).map_or("", |token| &token.text))
    }

    /// True if the token at an index is not known yet.
    pub fn lacks(&self, index: usize) -> bool {
        !self.ended && self.tokens.len() <= index
    }

    /// True if a sentence may end before the token at an index: there is none, or it begins with a capital.
    pub fn sentence_ends_before(&self, index: usize) -> bool {
        self.token(index).is_none_or(|token| token.begins_line || is_capitalised(&token.text))
    }
}
