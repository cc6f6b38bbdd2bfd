//! Reader of SentencePiece's model file, a protobuf message. Fields that are not needed are skipped.

use super::error::TokenizerError;
use super::pieces::{Piece, PieceKind};

/// Upper bound of a model file, in bytes. The longest published ones have 5 MB.
pub const MAX_FILE: usize = 16 << 20;
/// Upper bound of pieces.
pub const MAX_PIECES: usize = 1 << 21;

/// Kind of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// Best path by scores.
    Unigram,
    /// Merging of neighbours.
    Bpe,
}

/// Contents of a model file that encoding and decoding need.
#[derive(Debug)]
pub struct ModelFile {
    pub kind: ModelKind,
    pub pieces: Vec<Piece>,
    pub unk_id: usize,
    pub byte_fallback: bool,
    pub whitespace_as_suffix: bool,
    pub charsmap: Vec<u8>,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
}

/// Reads a model file.
pub fn read(bytes: &[u8]) -> Result<ModelFile, TokenizerError> {
    TokenizerError::check_count("the file", bytes.len(), MAX_FILE)?;
    let mut made = ModelFile {
        kind: ModelKind::Unigram,
        pieces: Vec::new(),
        unk_id: 0,
        byte_fallback: false,
        whitespace_as_suffix: false,
        charsmap: Vec::new(),
        add_dummy_prefix: true,
        remove_extra_whitespaces: true,
        escape_whitespaces: true,
    };
    for field in Fields(bytes) {
        match field? {
            (1, FieldValue::Bytes(piece)) => {
                TokenizerError::check_count("pieces", made.pieces.len() + 1, MAX_PIECES)?;
                let at = made.pieces.len();
                made.pieces.push(read_piece(piece, at)?);
            }
            (2, FieldValue::Bytes(trainer)) => read_trainer(trainer, &mut made)?,
            (3, FieldValue::Bytes(normalizer)) => read_normalizer(normalizer, &mut made)?,
            _ => {}
        }
    }
    if made.pieces.is_empty() {
        return Err(TokenizerError::field("pieces", "there are none: this is not a SentencePiece model"));
    }
    // A model says where its unknown piece is, and marks it; the mark counts.
    if let Some(unknown) = made.pieces.iter().position(|piece| piece.kind == PieceKind::Unknown) {
        made.unk_id = unknown;
    }
    Ok(made)
}

fn read_piece(bytes: &[u8], at: usize) -> Result<Piece, TokenizerError> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
    for field in Fields(bytes) {
        match field? {
            (1, FieldValue::Bytes(text)) => {
                let text = std::str::from_utf8(text);
                piece.text =
                    text.map_err(|error| TokenizerError::field(format!("pieces[{at}]"), error.to_string()))?.to_owned();
            }
            (2, FieldValue::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, FieldValue::Varint(kind)) => {
                let known = i32::try_from(kind).ok().and_then(PieceKind::of_number);
                let unknown = || TokenizerError::field(format!("pieces[{at}].type"), format!("{kind} is not known"));
                piece.kind = known.ok_or_else(unknown)?;
            }
            _ => {}
        }
    }
    if piece.score.is_nan() {
        return Err(TokenizerError::field(format!("pieces[{at}].score"), "it is no number"));
    }
    Ok(piece)
}

fn read_trainer(bytes: &[u8], made: &mut ModelFile) -> Result<(), TokenizerError> {
    for field in Fields(bytes) {
        match field? {
            (3, FieldValue::Varint(kind)) => {
                made.kind = match kind {
                    1 => ModelKind::Unigram,
                    2 => ModelKind::Bpe,
                    other => {
                        return Err(TokenizerError::NotServed {
                            field: "trainer_spec.model_type".to_owned(),
                            value: match other {
                                3 => "WORD".to_owned(),
                                4 => "CHAR".to_owned(),
                                _ => other.to_string(),
                            },
                            served: "UNIGRAM, BPE".to_owned(),
                        });
                    }
                }
            }
            (24, FieldValue::Varint(suffix)) => made.whitespace_as_suffix = suffix != 0,
            (35, FieldValue::Varint(fallback)) => made.byte_fallback = fallback != 0,
            (40, FieldValue::Varint(id)) => made.unk_id = usize::try_from(id).unwrap_or(0),
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer(bytes: &[u8], made: &mut ModelFile) -> Result<(), TokenizerError> {
    for field in Fields(bytes) {
        match field? {
            (2, FieldValue::Bytes(charsmap)) => made.charsmap = charsmap.to_vec(),
            (3, FieldValue::Varint(value)) => made.add_dummy_prefix = value != 0,
            (4, FieldValue::Varint(value)) => made.remove_extra_whitespaces = value != 0,
            (5, FieldValue::Varint(value)) => made.escape_whitespaces = value != 0,
            _ => {}
        }
    }
    Ok(())
}

enum FieldValue<'a> {
    Varint(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
    Skipped,
}

/// Fields of a message: number and value.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, FieldValue<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => FieldValue::Varint(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Skipped)?,
            2 => {
                let count = usize::try_from(self.varint()?).ok()?;
                FieldValue::Bytes(self.take(count)?)
            }
            5 => FieldValue::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, FieldValue<'a>), TokenizerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| TokenizerError::NotATokenizer("not a SentencePiece model, or cut short".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_foreign_files_are_refused() {
        let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert_eq!(message(b""), "`pieces`: there are none: this is not a SentencePiece model");
        for bytes in [&b"version https://git-lfs.github.com/spec/v1\n"[..], &[0x0A, 0xFF, 0xFF, 0x03], &[0x0A]] {
            assert_eq!(message(bytes), "not a SentencePiece model, or cut short");
        }
        // A piece of the text "a" with kind 9; a model of words.
        assert_eq!(message(&[0x0A, 5, 0x0A, 1, b'a', 0x18, 9]), "`pieces[0].type`: 9 is not known");
        assert!(message(&[0x12, 2, 0x18, 3]).starts_with("`trainer_spec.model_type` is `WORD`, which is not served"));
        assert!(message(&[0x0A, 3, 0x0A, 1, 0xFF]).starts_with("`pieces[0]`: invalid utf-8"));
    }
}
