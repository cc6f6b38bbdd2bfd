//! Punctuation around a word.

use crate::characters::{closes, opens};

/// Word between its opening and its closing punctuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affixes<'a> {
    /// Opening brackets and quotation marks.
    pub lead: &'a str,
    /// Word, with the signs that are a part of it.
    pub core: &'a str,
    /// Closing brackets and quotation marks, and marks of a pause.
    pub trail: &'a str,
}

impl<'a> Affixes<'a> {
    /// Splits a token's text. All of it is the word if it is punctuation alone.
    pub fn of(text: &'a str) -> Self {
        let core = text.trim_start_matches(opens);
        let lead = &text[..text.len() - core.len()];
        let bare = core.trim_end_matches(|c| closes(c) || ".,;:!?…".contains(c));
        if bare.is_empty() {
            return Self { lead: "", core: text, trail: "" };
        }
        // Brackets without anything between them belong to the word: `call()`.
        let call = bare.ends_with('(') && core[bare.len()..].starts_with(')');
        let (core, trail) = core.split_at(bare.len() + usize::from(call));
        Self { lead, core, trail }
    }

    /// True if a full stop follows the word.
    pub fn has_stop(&self) -> bool {
        self.trail.starts_with('.')
    }
}

/// True if the first letter of a word is a capital.
pub fn is_capitalised(text: &str) -> bool {
    text.trim_start_matches(opens).starts_with(char::is_uppercase)
}

/// True if a word begins with a digit, perhaps behind a sign of money.
pub fn begins_with_digit(text: &str) -> bool {
    text.trim_start_matches(opens)
        .trim_start_matches(['$', '€', '£', '-', '−', '~', '≈', '+'])
        .starts_with(|c: char| c.is_ascii_digit())
}
