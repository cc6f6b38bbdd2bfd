//! Pieces of spoken text, and the map from spoken text back to written text.

use std::ops::Range;

/// Piece of spoken text: a word as it is spoken, or the punctuation of a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpokenPiece {
    /// Spoken text; not empty. A piece that begins a word begins with the space before it. The texts of all pieces, one
    /// after another, are the spoken text.
    pub text: String,
    /// Bytes of the written text that the piece stands for. The ranges of pieces follow each other and do not overlap;
    /// what is between them is silent.
    pub written: Range<usize>,
    /// True if the next piece belongs to the same number, date, unit or name, so that no pause may separate them.
    pub joins_next: bool,
}

/// Map from positions in the spoken text to positions in the written text.
///
/// It holds two numbers for each piece, so its memory is proportional to the response.
#[derive(Debug, Clone, Default)]
pub struct WrittenMap {
    /// End of each piece in the spoken text and in the written text, in bytes.
    ends: Vec<(usize, usize)>,
    /// Length of the written text, once it is complete.
    complete: Option<usize>,
}

impl WrittenMap {
    /// Adds the next piece.
    pub fn push(&mut self, piece: &SpokenPiece) {
        self.ends.push((self.spoken_len() + piece.text.len(), piece.written.end));
    }

    /// Ends the text, whose written form is `written_len` bytes long: silent text at its end counts as heard with the last
    /// piece.
    pub fn finish(&mut self, written_len: usize) {
        self.complete = Some(written_len);
    }

    /// Returns the length of the spoken text so far, in bytes.
    pub fn spoken_len(&self) -> usize {
        self.ends.last().map_or(0, |&(spoken, _)| spoken)
    }

    /// Returns the length of the written text, in bytes, of which `spoken` bytes of the spoken text were heard. A piece
    /// counts only if all of it was heard. The result never shrinks as `spoken` grows.
    pub fn written_end(&self, spoken: usize) -> usize {
        let heard = self.ends.partition_point(|&(end, _)| end <= spoken);
        match self.complete {
            Some(complete) if heard == self.ends.len() => complete,
            _ => heard.checked_sub(1).map_or(0, |last| self.ends[last].1),
        }
    }
}
