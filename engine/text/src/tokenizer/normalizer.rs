//! SentencePiece's normalisation of a text: its table of replacements, white space, and the space before the first
//! word.

use super::added::TokenFinder;
use super::error::TokenizerError;

/// Space within a piece.
pub const SPACE: char = '\u{2581}';

/// Settings of the white space.
#[derive(Debug, Clone, Copy)]
pub struct Whitespace {
    /// Adds a space at the beginning, or at the end with `suffix`.
    pub add_dummy_prefix: bool,
    /// Drops spaces at both ends, and all but one between words.
    pub remove_extra: bool,
    /// Writes U+2581 for a space.
    pub escape: bool,
    /// Puts the added space at the end.
    pub suffix: bool,
}

/// Normaliser of one vocabulary.
#[derive(Debug)]
pub struct Normalizer {
    replacements: Option<Replacements>,
    /// User-defined pieces: never replaced.
    kept: TokenFinder,
    whitespace: Whitespace,
}

impl Normalizer {
    /// Creates a normaliser. `charsmap` is the compiled table of the model file, empty for none; `kept` are the
    /// user-defined pieces.
    pub fn new(charsmap: &[u8], kept: TokenFinder, whitespace: Whitespace) -> Result<Self, TokenizerError> {
        let replacements = if charsmap.is_empty() { None } else { Some(Replacements::new(charsmap)?) };
        Ok(Self { replacements, kept, whitespace })
    }

    /// Settings of the white space.
    pub fn whitespace(&self) -> Whitespace {
        self.whitespace
    }

    /// Normalises a text. Without `prefix` no space is added.
    pub fn normalize(&self, text: &str, prefix: bool) -> String {
        let Whitespace { add_dummy_prefix, remove_extra, escape, suffix } = self.whitespace;
        let mut rest = text;
        if remove_extra {
            while !rest.is_empty() {
                let (part, consumed) = self.part(rest);
                if part != " " {
                    break;
                }
                rest = &rest[consumed..];
            }
        }
        let mut out = String::with_capacity(text.len() + 3);
        if rest.is_empty() {
            return out;
        }
        let space = if escape { SPACE } else { ' ' };
        let adds = add_dummy_prefix && prefix;
        if adds && !suffix {
            out.push(space);
        }
        let mut after_space = remove_extra;
        while !rest.is_empty() {
            let (part, consumed) = self.part(rest);
            let part = if after_space { part.trim_start_matches(' ') } else { part };
            if !part.is_empty() {
                out.extend(part.chars().map(|c| if c == ' ' { space } else { c }));
                after_space = remove_extra && part.ends_with(' ');
            }
            rest = &rest[consumed..];
        }
        if remove_extra {
            out.truncate(out.trim_end_matches(space).len());
        }
        if adds && suffix {
            out.push(space);
        }
        out
    }

    /// Replacement of the beginning of a text, and the bytes that it stands for.
    fn part<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        if let Some((length, _)) = self.kept.at(text) {
            return (&text[..length], length);
        }
        if let Some((replacement, length)) = self.replacements.as_ref().and_then(|table| table.at(text)) {
            return (replacement, length);
        }
        let length = text.chars().next().map_or(0, char::len_utf8);
        (&text[..length], length)
    }
}

/// Compiled table: a double-array trie over bytes, whose values are offsets of texts that end with NUL.
#[derive(Debug)]
struct Replacements {
    units: Vec<u32>,
    texts: String,
}

impl Replacements {
    fn new(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let wrong = |message: &str| TokenizerError::field("normalizer_spec.precompiled_charsmap", message);
        let (size, rest) = bytes.split_first_chunk().ok_or_else(|| wrong("it is cut short"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let (units, texts) = rest.split_at_checked(size).ok_or_else(|| wrong("it is cut short"))?;
        let units =
            units.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])).collect();
        let texts = std::str::from_utf8(texts).map_err(|error| wrong(&error.to_string()))?.to_owned();
        Ok(Self { units, texts })
    }

    /// Replacement of the longest beginning of a text that the table has, and its length.
    fn at<'a>(&'a self, text: &str) -> Option<(&'a str, usize)> {
        let offset = |unit: u32| (unit >> 10) << ((unit & (1 << 9)) >> 6);
        let unit = |at: u32| self.units.get(at as usize).copied();
        let mut node = offset(unit(0)?);
        let mut longest = None;
        for (at, byte) in text.bytes().enumerate() {
            node ^= u32::from(byte);
            let Some(found) = unit(node).filter(|unit| unit & (1 << 31 | 0xFF) == u32::from(byte)) else { break };
            node ^= offset(found);
            if found >> 8 & 1 == 1 {
                longest = unit(node).map(|value| (value & 0x7FFF_FFFF, at + 1));
            }
        }
        let (value, length) = longest?;
        if !text.is_char_boundary(length) {
            return None;
        }
        let replacement = self.texts.get(value as usize..)?;
        Some((replacement.split('\0').next().unwrap_or_default(), length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_tables_replace_nothing() {
        // A root whose offset points past the end, and one whose value does.
        for units in [vec![u32::MAX], vec![1 << 10, (1 << 8) | u32::from(b'a')], vec![0; 4]] {
            let mut bytes = ((units.len() * 4) as u32).to_le_bytes().to_vec();
            bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
            let table = Replacements::new(&bytes).unwrap();
            assert_eq!(table.at("aé"), None);
        }
        let message = Replacements::new(&[9, 0, 0, 0, 1]).unwrap_err().to_string();
        assert_eq!(message, "`normalizer_spec.precompiled_charsmap`: it is cut short");
    }
}
