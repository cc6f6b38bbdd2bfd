//! Classes of characters: emoji, invisible ones, and scripts that are written without spaces.

/// Class of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharacterClass {
    /// Letter, digit, sign or mark that may have a sound.
    Text,
    /// Emoji, a picture or a bullet: silent.
    Picture,
    /// Part of the emoji before it, a joiner or a control character: silent.
    Invisible,
}

/// Blocks and single signs that are pictures: the blocks of emoji, dingbats and shapes.
const PICTURES: [(u32, u32); 12] = [
    (0x2139, 0x2139),
    (0x231A, 0x231B),
    (0x2328, 0x2328),
    (0x23CF, 0x23CF),
    (0x23E9, 0x23FA),
    (0x24C2, 0x24C2),
    (0x2500, 0x27BF),
    (0x2B00, 0x2BFF),
    (0x3030, 0x3030),
    (0x303D, 0x303D),
    (0x1F000, 0x1FAFF),
    (0x2022, 0x2023),
];

/// Joiners, variation selectors, tags, marks of direction, and the keycap.
const INVISIBLE: [(u32, u32); 9] = [
    (0x00AD, 0x00AD),
    (0x200B, 0x200B),
    (0x200E, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x2069),
    (0x20E3, 0x20E3),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE01EF),
];

/// Scripts whose words are not separated by spaces, and their punctuation: each character is a word of its own here.
const UNSPACED: [(u32, u32); 5] =
    [(0x2E80, 0x312F), (0x31A0, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)];

fn within(character: char, ranges: &[(u32, u32)]) -> bool {
    ranges.iter().any(|&(first, last)| (first..=last).contains(&u32::from(character)))
}

/// Returns the class of a character.
pub fn class(character: char) -> CharacterClass {
    if character.is_ascii() && !character.is_control() || is_arrow(character) {
        CharacterClass::Text
    } else if character.is_control() || within(character, &INVISIBLE) {
        CharacterClass::Invisible
    } else if within(character, &PICTURES) {
        CharacterClass::Picture
    } else {
        CharacterClass::Text
    }
}

/// Sign that turns the digit before it into a key: the digit counts an item.
pub const KEYCAP: char = '\u{20E3}';

/// True for arrows to the right or both ways.
pub fn is_arrow(character: char) -> bool {
    matches!(character, '→' | '⇒' | '⟶' | '➜' | '➔' | '➡' | '➝' | '➞' | '↔' | '⟹')
}

/// True for a character of a script without spaces, or for its punctuation.
pub fn is_unspaced(character: char) -> bool {
    within(character, &UNSPACED) || ('\u{FF01}'..='\u{FF60}').contains(&character)
}

/// Meaning of a check mark or a cross that stands alone: true for a check mark.
pub fn verdict(character: char) -> Option<bool> {
    match character {
        '✅' | '✓' | '✔' | '☑' => Some(true),
        '❌' | '✗' | '✘' | '❎' | '✖' => Some(false),
        _ => None,
    }
}

/// True for a mark that ends a sentence or a clause.
pub fn is_pause(character: char) -> bool {
    ".,;:!?…。，！？；：、।؟،؛–—".contains(character)
}

/// True for a mark that closes a quotation or a bracket.
pub fn closes(character: char) -> bool {
    "\"'”’»“)]}」』）】".contains(character)
}

/// True for a mark that opens a quotation or a bracket.
pub fn opens(character: char) -> bool {
    "\"'“‘„«([{「『（【¿¡".contains(character)
}
