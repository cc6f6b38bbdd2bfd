//! Splits PTX text into tokens.

use super::error::PtxError;

/// A token of PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name, a directive, an opcode with its modifiers, or a number.
    Word(String),
    /// A quoted string.
    Text,
    /// Any other character.
    Sign(char),
}

/// Splits a text into tokens with their lines.
pub fn tokens(text: &str) -> Result<Vec<(u32, Token)>, PtxError> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").ok_or_else(|| PtxError::new(line, "a comment that does not end"))?;
            end + 2
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or_else(|| PtxError::new(line, "a string that does not end"))?;
            found.push((line, Token::Text));
            end + 2
        } else if in_word(first) {
            let length = word_length(rest);
            found.push((line, Token::Word(rest[..length].to_owned())));
            length
        } else {
            if !first.is_whitespace() {
                found.push((line, Token::Sign(first)));
            }
            first.len_utf8()
        };
        line += rest[..taken].matches('\n').count() as u32;
        rest = &rest[taken..];
    }
    Ok(found)
}

fn in_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "_$%.".contains(sign)
}

/// Length of a word. It may contain `::`, as in `.L1::no_allocate`; a single colon ends a label.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at) {
            Some(&byte) if in_word(byte as char) => at += 1,
            Some(b':') if bytes.get(at + 1) == Some(&b':') => at += 2,
            _ => return at,
        }
    }
}
