//! Text that is spoken as it is written, in pieces like those of spoken text.

use crate::characters::is_unspaced;
use crate::piece::SpokenPiece;
use crate::token::MAX_TOKEN;

/// Cuts written text into its words, and changes nothing but white space. The pieces do not depend on how the text is split.
///
/// A word ends at white space, and in a script without spaces behind each character. A word of more than 256 bytes is passed
/// on in parts.
#[derive(Debug, Default)]
pub struct PlainText {
    /// Word that may go on.
    open: String,
    /// Number of bytes before it.
    at: usize,
    /// True if white space stands before it, and a word before that.
    spaced: bool,
    /// True once there is a word.
    begun: bool,
}

impl PlainText {
    /// Adds written text; returns the pieces that are certain now.
    pub fn push(&mut self, written: &str) -> Vec<SpokenPiece> {
        let mut pieces = Vec::new();
        for character in written.chars() {
            if character.is_whitespace() {
                self.end_word(&mut pieces);
                self.at += character.len_utf8();
                self.spaced = self.begun;
                continue;
            }
            let last = self.open.chars().next_back();
            let unspaced = last.is_some_and(|last| is_unspaced(last) || is_unspaced(character));
            if unspaced || self.open.len() + character.len_utf8() > MAX_TOKEN {
                self.end_word(&mut pieces);
            }
            self.open.push(character);
        }
        pieces
    }

    /// Ends the text; returns the rest of its pieces. Afterwards a new text begins, at position zero.
    pub fn finish(&mut self) -> Vec<SpokenPiece> {
        let mut pieces = Vec::new();
        self.end_word(&mut pieces);
        *self = Self::default();
        pieces
    }

    fn end_word(&mut self, pieces: &mut Vec<SpokenPiece>) {
        let word = std::mem::take(&mut self.open);
        if word.is_empty() {
            return;
        }
        let written = self.at..self.at + word.len();
        self.at = written.end;
        self.begun = true;
        let space = if std::mem::take(&mut self.spaced) { " " } else { "" };
        pieces.push(SpokenPiece { text: format!("{space}{word}"), written, joins_next: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_as_they_are_written() {
        let written = "  It *costs*\n\n$3.50,  你好。 So ";
        let mut text = PlainText::default();
        let mut pieces = text.push(written);
        pieces.extend(text.finish());
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(texts, ["It", " *costs*", " $3.50,", " 你", "好", "。", " So"]);
        for piece in &pieces {
            assert_eq!(&written[piece.written.clone()], piece.text.trim_start());
        }
        let one_by_one: Vec<SpokenPiece> =
            written.chars().flat_map(|c| text.push(c.encode_utf8(&mut [0; 4]))).collect();
        assert_eq!([one_by_one, text.finish()].concat(), pieces);
    }

    #[test]
    fn endless_words_come_in_parts() {
        let mut text = PlainText::default();
        let mut pieces = text.push(&"ä".repeat(300));
        pieces.extend(text.finish());
        assert_eq!(pieces.len(), 3);
        assert!(pieces.iter().all(|piece| piece.text.len() <= MAX_TOKEN && !piece.text.starts_with(' ')));
    }
}
