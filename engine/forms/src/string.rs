//! Strings of JSON, byte by byte: escapes, and letters of UTF-8.

/// Place within a letter of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Letter {
    /// Between two letters.
    Between,
    /// After a backslash.
    Escape,
    /// Before the first digit of `\u`.
    First,
    /// Before the second digit, after a `d`: a letter of two such codes is written as it is.
    AfterD,
    /// Before the last digits, as many as the number.
    Digits(u8),
    /// Before the last bytes of a letter, as many as the number.
    Bytes(u8),
    /// Before the last bytes of a letter, the first of them in a range.
    Ranged(u8, u8, u8),
}

impl Letter {
    /// All places, by their [`Letter::index`].
    pub const ALL: [Self; 14] = [
        Self::Between,
        Self::Escape,
        Self::First,
        Self::AfterD,
        Self::Digits(3),
        Self::Digits(2),
        Self::Digits(1),
        Self::Bytes(1),
        Self::Bytes(2),
        Self::Bytes(3),
        Self::Ranged(2, 0xA0, 0xBF),
        Self::Ranged(2, 0x80, 0x9F),
        Self::Ranged(3, 0x90, 0xBF),
        Self::Ranged(3, 0x80, 0x8F),
    ];

    /// Takes a byte of a string that goes on: the next place, and true if a letter is complete. `None` for a byte that no
    /// string goes on with, and for the quote that ends it.
    pub fn take(self, byte: u8) -> Option<(Self, bool)> {
        let next = match (self, byte) {
            (Self::Between, b'\\') => Self::Escape,
            (Self::Between, b'"') => return None,
            (Self::Between, 0x20..=0x7F) => return Some((Self::Between, true)),
            (Self::Between, 0xC2..=0xDF) => Self::Bytes(1),
            (Self::Between, 0xE0) => Self::Ranged(2, 0xA0, 0xBF),
            (Self::Between, 0xED) => Self::Ranged(2, 0x80, 0x9F),
            (Self::Between, 0xE1..=0xEF) => Self::Bytes(2),
            (Self::Between, 0xF0) => Self::Ranged(3, 0x90, 0xBF),
            (Self::Between, 0xF1..=0xF3) => Self::Bytes(3),
            (Self::Between, 0xF4) => Self::Ranged(3, 0x80, 0x8F),
            (Self::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                return Some((Self::Between, true));
            }
            (Self::Escape, b'u') => Self::First,
            (Self::First, b'd' | b'D') => Self::AfterD,
            (Self::First, digit) if digit.is_ascii_hexdigit() => Self::Digits(3),
            (Self::AfterD, b'0'..=b'7') => Self::Digits(2),
            (Self::Digits(1), digit) if digit.is_ascii_hexdigit() => return Some((Self::Between, true)),
            (Self::Digits(left), digit) if digit.is_ascii_hexdigit() => Self::Digits(left - 1),
            (Self::Bytes(1), 0x80..=0xBF) => return Some((Self::Between, true)),
            (Self::Bytes(left), 0x80..=0xBF) => Self::Bytes(left - 1),
            (Self::Ranged(left, low, high), byte) if (low..=high).contains(&byte) => Self::Bytes(left - 1),
            _ => return None,
        };
        Some((next, false))
    }

    /// Bytes that complete the letter.
    pub fn more(self) -> u32 {
        match self {
            Self::Between => 0,
            Self::Escape => 1,
            Self::First => 4,
            Self::AfterD => 3,
            Self::Digits(left) | Self::Bytes(left) | Self::Ranged(left, ..) => u32::from(left),
        }
    }

    /// Index within [`Letter::ALL`].
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the bytes are letters of a string.
    fn is_string(bytes: &[u8]) -> bool {
        let mut at = Letter::Between;
        bytes.iter().all(|byte| Letter::take(at, *byte).map(|(next, _)| at = next).is_some()) && at == Letter::Between
    }

    #[test]
    fn letters_are_those_of_json() {
        let mut texts: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        let starts = [
            &b"\\"[..],
            b"\\u",
            b"\\ud",
            b"\\uD8",
            b"\\u00e",
            b"\xC3",
            b"\xE0",
            b"\xE0\xA0",
            b"\xED",
            b"\xED\x9F",
            b"\xF0\x90",
            b"\xF4",
            b"\xF4\x8F\xBF",
        ];
        for start in starts {
            for byte in 0..=255_u8 {
                texts.extend(
                    [
                        &[byte][..],
                        &[byte, b'0'],
                        &[byte, b'0', b'0'],
                        &[byte, b'0', b'0', b'0'],
                        &[byte, 0x80],
                        &[byte, 0x80, 0x80],
                    ]
                    .map(|end| [start, end].concat()),
                );
            }
        }
        for text in texts {
            let json = [b"\"", &text[..], b"\""].concat();
            let expected = serde_json::from_slice::<String>(&json).is_ok();
            assert_eq!(is_string(&text), expected, "{:?}", String::from_utf8_lossy(&json));
        }
    }

    #[test]
    fn every_place_has_an_index() {
        for (index, place) in Letter::ALL.into_iter().enumerate() {
            assert_eq!(place.index(), index);
        }
    }
}
