//! Tokens that stand beside a vocabulary, with ids of their own or of the vocabulary.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::error::TokenizerError;

/// Upper bound of added tokens.
pub const MAX_ADDED: usize = 1 << 18;
/// Upper bound of an added token's text, in bytes.
const MAX_CONTENT: usize = 4_096;

/// A token that stands beside a vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Id of the token.
    pub id: u32,
    /// Text of the token.
    pub content: String,
    /// True for a mark: a text that spells it is not it.
    pub special: bool,
}

/// Reads the field `added_tokens_decoder` of tokenizer_config.json: objects by their ids.
pub fn of_config(decoder: &BTreeMap<String, Value>) -> Result<Vec<AddedToken>, TokenizerError> {
    let field = "added_tokens_decoder";
    TokenizerError::check_count(field, decoder.len(), MAX_ADDED)?;
    let token = |(id, token): (&String, &Value)| {
        let number = id.parse().map_err(|_| TokenizerError::field(field, format!("`{id}` is no id")))?;
        let content = token.get("content").and_then(Value::as_str);
        let content = content.ok_or_else(|| TokenizerError::field(field, format!("`{id}` has no `content`")))?;
        let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
        Ok(AddedToken { id: number, content: content.to_owned(), special })
    };
    let mut tokens = decoder.iter().map(token).collect::<Result<Vec<_>, TokenizerError>>()?;
    tokens.sort_by_key(|token| token.id);
    Ok(tokens)
}

/// Texts of tokens that are found in a text, the longest first at each place.
#[derive(Debug, Clone, Default)]
pub struct TokenFinder {
    by_first: HashMap<u8, Vec<(String, u32)>>,
}

impl TokenFinder {
    /// Creates a finder; empty texts and those over 4 KiB are never found.
    pub fn new(tokens: impl IntoIterator<Item = (String, u32)>) -> Self {
        let mut by_first: HashMap<u8, Vec<(String, u32)>> = HashMap::new();
        for (text, id) in tokens {
            if let Some(first) = text.bytes().next()
                && text.len() <= MAX_CONTENT
            {
                by_first.entry(first).or_default().push((text, id));
            }
        }
        for tokens in by_first.values_mut() {
            // Sorted, so that a lookup reads those with the same beginning alone.
            tokens.sort();
        }
        Self { by_first }
    }

    /// Length and id of the longest token that `text` begins with.
    pub fn at(&self, text: &str) -> Option<(usize, u32)> {
        let tokens = self.by_first.get(&text.bytes().next()?)?;
        // All tokens that `text` begins with sort before it, the longest last; others with a common beginning stand
        // between them.
        let mut end = tokens.partition_point(|(token, _)| token.as_str() <= text);
        while end > 0 {
            let (token, id) = &tokens[end - 1];
            if text.starts_with(token.as_str()) {
                return Some((token.len(), *id));
            }
            let common = token.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
            if common == 0 {
                return None;
            }
            // A shorter token ends within the common beginning, and sorts before everything that goes on from it.
            let limit = (0..=common).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            end = tokens[..end - 1].partition_point(|(token, _)| token.as_str() <= &text[..limit]);
        }
        None
    }

    /// Splits a text at the tokens in it: text before a token, and the token; the rest of the text last.
    pub fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (&'a str, Option<u32>)> {
        let mut rest = Some(text);
        std::iter::from_fn(move || {
            let text = rest?;
            let found = if self.by_first.is_empty() {
                None
            } else {
                text.char_indices().find_map(|(at, _)| self.at(&text[at..]).map(|found| (at, found)))
            };
            match found {
                Some((at, (length, id))) => {
                    rest = Some(&text[at + length..]);
                    Some((&text[..at], Some(id)))
                }
                None => {
                    rest = None;
                    Some((text, None))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_token_is_found() {
        let tokens = ["a", "ab", "abcd", "abce", "b", "ä"].map(str::to_owned);
        let finder = TokenFinder::new(tokens.into_iter().zip(0..));
        let found = |text| finder.at(text);
        assert_eq!(found("abcx"), Some((2, 1)));
        assert_eq!(found("abcd"), Some((4, 2)));
        assert_eq!(found("abcf"), Some((2, 1)), "a longer token with the same beginning sorts between");
        assert_eq!(found("ac"), Some((1, 0)));
        assert_eq!((found("c"), found(""), found("äb")), (None, None, Some((2, 5))));
        let split: Vec<_> = finder.split("xabcya").collect();
        assert_eq!(split, [("x", Some(1)), ("cy", Some(0)), ("", None)]);
    }
}
