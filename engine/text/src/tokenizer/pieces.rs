//! Pieces of a SentencePiece vocabulary, by id and by text.

use std::collections::HashMap;

/// Kind of a piece, as numbered in model files and in GGUF files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceKind {
    /// Found in a text by its score.
    Normal,
    /// Stands for what no piece spells.
    Unknown,
    /// A mark: no text is it.
    Control,
    /// Always found in a text, before anything else.
    UserDefined,
    /// Left out: a text that it spells is spelt by its parts.
    Unused,
    /// One byte of a character that no piece spells.
    Byte,
}

impl PieceKind {
    /// Kind of a number.
    pub fn of_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// An entry of a vocabulary; its id is its index.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Text, with U+2581 for a space.
    pub text: String,
    /// Logarithm of its probability, or the negative rank of its merge.
    pub score: f32,
    /// Way in which a text has it: by score, always, or never.
    pub kind: PieceKind,
}

/// Pieces of a vocabulary, indexed by their texts.
#[derive(Debug)]
pub struct Pieces {
    pieces: Vec<Piece>,
    /// Pieces that a text can have: normal, user-defined and unused ones.
    by_text: HashMap<String, u32>,
    /// The other pieces.
    reserved: HashMap<String, u32>,
    /// Piece of each byte, if there is one for all of them.
    bytes: Option<Vec<u32>>,
    unk_id: u32,
}

impl Pieces {
    /// Indexes a vocabulary. Of pieces with the same text the first one counts.
    pub fn new(pieces: Vec<Piece>, unk_id: usize, byte_fallback: bool) -> Self {
        let (mut by_text, mut reserved) = (HashMap::with_capacity(pieces.len()), HashMap::new());
        for (id, piece) in (0..).zip(&pieces) {
            let index = match piece.kind {
                PieceKind::Normal | PieceKind::UserDefined | PieceKind::Unused => &mut by_text,
                PieceKind::Unknown | PieceKind::Control | PieceKind::Byte => &mut reserved,
            };
            index.entry(piece.text.clone()).or_insert(id);
        }
        let byte = |byte: u8| reserved.get(&format!("<0x{byte:02X}>")).copied();
        let bytes = if byte_fallback { (0..=255).map(byte).collect() } else { None };
        Self { pieces, by_text, reserved, bytes, unk_id: u32::try_from(unk_id).unwrap_or(0) }
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Piece of an id.
    pub fn get(&self, id: u32) -> Option<&Piece> {
        self.pieces.get(id as usize)
    }

    /// All pieces by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Piece)> {
        (0..).zip(&self.pieces)
    }

    /// Id of a piece that a text can have.
    pub fn of_text(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// Id of a piece by its spelling, marks included.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.reserved.get(text).or_else(|| self.by_text.get(text)).copied()
    }

    /// Appends a text that no piece spells: its bytes, or one unknown piece for all of a run.
    pub fn push_unknown(&self, text: &str, ids: &mut Vec<u32>) {
        match &self.bytes {
            Some(bytes) => ids.extend(text.bytes().map(|byte| bytes[usize::from(byte)])),
            None if ids.last() == Some(&self.unk_id) => {}
            None => ids.push(self.unk_id),
        }
    }
}
