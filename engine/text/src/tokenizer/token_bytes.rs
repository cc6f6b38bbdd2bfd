//! Bytes of tokens.

use tokenizers::decoders::DecoderWrapper;

/// Spells a space in vocabularies of pieces.
const SPACE: char = '\u{2581}';

/// Way in which a vocabulary spells bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Each byte as one printable character.
    Bytes,
    /// As text, with U+2581 for a space; other bytes as `<0xAB>`.
    Pieces,
}

impl Spelling {
    /// Spelling that a decoder undoes; `None` for others.
    pub fn of_decoder(decoder: &DecoderWrapper) -> Option<Self> {
        match decoder {
            DecoderWrapper::ByteLevel(_) => Some(Self::Bytes),
            DecoderWrapper::Metaspace(_) | DecoderWrapper::ByteFallback(_) | DecoderWrapper::Replace(_) => {
                Some(Self::Pieces)
            }
            DecoderWrapper::Sequence(parts) => parts.get_decoders().iter().find_map(Self::of_decoder),
            _ => None,
        }
    }

    /// Bytes of a token; `None` if it spells none.
    pub fn bytes(self, token: &str) -> Option<Vec<u8>> {
        match self {
            Self::Bytes => token.chars().map(byte).collect(),
            Self::Pieces => Some(of_piece(token)),
        }
    }
}

/// Bytes of a piece.
pub fn of_piece(piece: &str) -> Vec<u8> {
    let hex = piece.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|hex| hex.len() == 2);
    match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => vec![byte],
        None => piece.replace(SPACE, " ").into_bytes(),
    }
}

/// True for a byte that byte-level vocabularies spell as the character of its number.
fn is_printed(byte: u32) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Byte of a character in byte-level vocabularies: the others are spelt from U+0100 on, in their order.
fn byte(c: char) -> Option<u8> {
    let number = u32::from(c);
    if is_printed(number) {
        return u8::try_from(number).ok();
    }
    let unprinted =
        (0..=0xFF_u32).filter(|byte| !is_printed(*byte)).nth(usize::try_from(number.checked_sub(0x100)?).ok()?);
    u8::try_from(unprinted?).ok()
}

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = ByteLevel::alphabet().into_iter().filter_map(byte).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(Spelling::Bytes.bytes("\u{120}\u{c3}\u{a9}"), Some(" \u{e9}".as_bytes().to_vec()));
        assert_eq!(Spelling::Bytes.bytes("\u{2581}"), None);
    }

    #[test]
    fn pieces_spell_spaces_and_bytes() {
        let bytes = |piece: &str| Spelling::Pieces.bytes(piece).unwrap();
        assert_eq!(bytes("\u{2581}the"), b" the");
        assert_eq!((bytes("<0x0A>"), bytes("<0xZZ>")), (vec![10], b"<0xZZ>".to_vec()));
    }
}
