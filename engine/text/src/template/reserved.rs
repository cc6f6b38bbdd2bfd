//! Reserved characters: what a template's output has in the place of special tokens and around contents.
//!
//! They are characters of Unicode's planes 12 and 13, which no script uses. In a conversation they become U+FFFD.

/// First of the characters that stand for special tokens.
const SPECIAL: u32 = 0xD_0000;
/// First of the characters that begin a content.
const OPENS: u32 = 0xD_4000;
/// Character that ends a content.
pub const CLOSE: char = '\u{DFFFD}';
/// Distance of a character's twin.
const TWINS: u32 = 0xC_0000;
/// Upper bound of different special tokens.
pub const MAX_SPECIAL: usize = (OPENS - SPECIAL) as usize;
/// Upper bound of contents that are found again in one prompt.
pub const MAX_CONTENTS: usize = 0x8000;

/// Character that stands for a special token.
pub fn of_special(token: usize) -> Option<char> {
    (token < MAX_SPECIAL).then(|| char::from_u32(SPECIAL + token as u32)).flatten()
}

/// Special token that a character stands for.
pub fn special(c: char) -> Option<usize> {
    (SPECIAL..OPENS).contains(&u32::from(c)).then(|| (u32::from(c) - SPECIAL) as usize)
}

/// Character that begins a content.
pub fn open(content: usize) -> Option<char> {
    (content < MAX_CONTENTS).then(|| char::from_u32(OPENS + content as u32)).flatten()
}

/// Content that a character begins.
pub fn opened(c: char) -> Option<usize> {
    (OPENS..OPENS + MAX_CONTENTS as u32).contains(&u32::from(c)).then(|| (u32::from(c) - OPENS) as usize)
}

/// Twin of a character; the character itself beyond the Basic Multilingual Plane.
pub fn twin(c: char) -> char {
    let twin = (u32::from(c) < 0x1_0000).then(|| char::from_u32(TWINS + u32::from(c))).flatten();
    twin.unwrap_or(c)
}

/// Character that a twin stands for.
pub fn of_twin(c: char) -> Option<char> {
    (TWINS..SPECIAL).contains(&u32::from(c)).then(|| char::from_u32(u32::from(c) - TWINS)).flatten()
}

/// True for the characters that no text of a conversation may have.
pub fn is_reserved(c: char) -> bool {
    (TWINS..SPECIAL + 0x1_0000).contains(&u32::from(c))
}

/// Replaces reserved characters of a conversation's text.
pub fn scrub(text: &str) -> String {
    if text.chars().any(is_reserved) {
        text.chars().map(|c| if is_reserved(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
    } else {
        text.to_owned()
    }
}
