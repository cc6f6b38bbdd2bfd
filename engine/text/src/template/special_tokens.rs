//! Special tokens in a template's source, in its variables and in its output.
//!
//! A template's own special tokens are replaced in its source, before it is compiled, by one reserved character each.
//! These characters leave the renderer as special tokens, and nothing else does: whatever a template does with the
//! texts of a conversation, they stay text.
//!
//! Some templates build special tokens, as `'<|' + role + '|>'` does. These are found in the output; the characters of
//! the conversation that could be part of one are replaced by twins before rendering and put back afterwards.

use std::collections::{BTreeSet, HashMap};

use super::reserved;

/// The special tokens of a checkpoint.
#[derive(Debug, Clone, Default)]
pub struct SpecialTokens {
    /// Spellings; a special token is an index of this list.
    spellings: Vec<String>,
    /// Special tokens by their first character, the longest spelling first.
    by_first: HashMap<char, Vec<usize>>,
    /// Characters of which every special token has at least one.
    guards: BTreeSet<char>,
}

impl SpecialTokens {
    /// Collects spellings; empty ones and those beyond [`reserved::MAX_SPECIAL`] are left out.
    pub fn new(spellings: impl IntoIterator<Item = String>) -> Self {
        let mut made = Self::default();
        let mut seen = BTreeSet::new();
        for spelling in spellings {
            if made.spellings.len() < reserved::MAX_SPECIAL
                && let Some(first) = spelling.chars().next()
                && seen.insert(spelling.clone())
            {
                made.by_first.entry(first).or_default().push(made.spellings.len());
                made.spellings.push(spelling);
            }
        }
        for tokens in made.by_first.values_mut() {
            tokens.sort_by_key(|token| std::cmp::Reverse(made.spellings[*token].len()));
        }
        let mut open: Vec<&String> = made.spellings.iter().collect();
        while !open.is_empty() {
            let mut counts: HashMap<char, usize> = HashMap::new();
            for spelling in &open {
                for c in spelling.chars().filter(|c| u32::from(*c) < 0x1_0000).collect::<BTreeSet<_>>() {
                    // Punctuation first: words of a conversation are less often touched.
                    *counts.entry(c).or_default() += if c.is_ascii_punctuation() { 1_000 } else { 1 };
                }
            }
            let Some((&guard, _)) = counts.iter().max_by_key(|(c, count)| (**count, **c)) else { break };
            made.guards.insert(guard);
            open.retain(|spelling| !spelling.contains(guard));
        }
        made
    }

    /// Spelling of a special token.
    pub fn spelling(&self, token: usize) -> &str {
        self.spellings.get(token).map_or("", String::as_str)
    }

    /// The special token with this spelling.
    pub fn find(&self, spelling: &str) -> Option<usize> {
        let tokens = self.by_first.get(&spelling.chars().next()?)?;
        tokens.iter().copied().find(|token| self.spellings[*token] == spelling)
    }

    /// The longest special token that `text` begins with.
    pub fn at(&self, text: &str) -> Option<usize> {
        let tokens = self.by_first.get(&text.chars().next()?)?;
        tokens.iter().copied().find(|token| text.starts_with(&self.spellings[*token]))
    }

    /// True if a text spells a special token.
    pub fn any_in(&self, text: &str) -> bool {
        text.char_indices().any(|(at, _)| self.at(&text[at..]).is_some())
    }

    /// Replaces special tokens in a template's own text by their characters. Those of letters and digits alone stay:
    /// they are words that a template may compare.
    pub fn replace(&self, text: &str, out: &mut String) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let found = self.at(rest).filter(|token| !self.spellings[*token].chars().all(char::is_alphanumeric));
            match found.and_then(|token| Some((token, reserved::of_special(token)?))) {
                Some((token, character)) => {
                    out.push(character);
                    rest = &rest[self.spellings[token].len()..];
                }
                None => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
    }

    /// Replaces the characters of a conversation's text that could be part of a special token by
    /// their twins.
    pub fn guard(&self, text: &str) -> String {
        let twin = |c: char| {
            if self.guards.contains(&c) { reserved::twin(c) } else { c }
        };
        text.chars().map(twin).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_mark_wins() {
        let tokens = SpecialTokens::new(["<a>", "<a>b", "word"].map(str::to_owned));
        let mut out = String::new();
        tokens.replace("x<a>bc<a> word", &mut out);
        let expected: String =
            ['x', reserved::of_special(1).unwrap(), 'c', reserved::of_special(0).unwrap(), ' ', 'w', 'o', 'r', 'd']
                .iter()
                .collect();
        assert_eq!(out, expected);
        assert!(tokens.any_in("a word") && !tokens.any_in("a wor"));
    }

    #[test]
    fn every_mark_has_a_guarded_character() {
        let tokens = SpecialTokens::new(["<|a|>", "<s>", "[INST]", "word"].map(str::to_owned));
        for spelling in &tokens.spellings {
            let guarded = tokens.guard(spelling);
            assert_ne!(&guarded, spelling);
            assert!(!tokens.any_in(&guarded), "{spelling}");
            assert_eq!(&guarded.chars().map(|c| reserved::of_twin(c).unwrap_or(c)).collect::<String>(), spelling);
        }
    }
}
