//! SentencePiece's encoding and decoding, of its own model files and of GGUF files that hold their pieces.

use super::added::{AddedToken, TokenFinder};
use super::bpe;
use super::error::TokenizerError;
use super::normalizer::{Normalizer, SPACE, Whitespace};
use super::pieces::{PieceKind, Pieces};
use super::protobuf::{self, ModelKind};
use super::token_bytes::of_piece;
use super::unigram::Unigram;

/// A vocabulary of pieces.
#[derive(Debug)]
pub struct SentencePiece {
    pieces: Pieces,
    normalizer: Normalizer,
    user_defined: TokenFinder,
    /// `None` for BPE.
    unigram: Option<Unigram>,
    /// Tokens beside the pieces, in the order of their ids.
    added: Vec<AddedToken>,
    /// Added tokens that are no marks.
    found: TokenFinder,
    /// Adds the space before the first word to each stretch between user-defined pieces too, as llama.cpp does.
    space_after_user_defined: bool,
}

impl SentencePiece {
    /// Reads a model file. `added` are tokens beside its pieces; one with the id of a piece says whether the piece is a
    /// mark.
    pub fn from_model(bytes: &[u8], added: &[AddedToken]) -> Result<Self, TokenizerError> {
        let mut file = protobuf::read(bytes)?;
        for token in added.iter().filter(|token| token.special) {
            // What the configuration calls special is no text, though the model finds it in one.
            if let Some(piece) = file.pieces.get_mut(token.id as usize).filter(|piece| piece.kind != PieceKind::Unknown)
            {
                piece.kind = PieceKind::Control;
            }
        }
        let whitespace = Whitespace {
            add_dummy_prefix: file.add_dummy_prefix,
            remove_extra: file.remove_extra_whitespaces,
            escape: file.escape_whitespaces,
            suffix: file.whitespace_as_suffix,
        };
        let pieces = Pieces::new(file.pieces, file.unk_id, file.byte_fallback);
        Self::new(pieces, file.kind, &file.charsmap, whitespace, added)
    }

    /// Creates a vocabulary.
    pub fn new(
        pieces: Pieces,
        kind: ModelKind,
        charsmap: &[u8],
        whitespace: Whitespace,
        added: &[AddedToken],
    ) -> Result<Self, TokenizerError> {
        let user_defined = pieces.iter().filter(|(_, piece)| piece.kind == PieceKind::UserDefined);
        let user_defined = TokenFinder::new(user_defined.map(|(id, piece)| (piece.text.clone(), id)));
        let normalizer = Normalizer::new(charsmap, user_defined.clone(), whitespace)?;
        let unigram = (kind == ModelKind::Unigram).then(|| Unigram::new(&pieces));
        let added = added.to_vec();
        let is_new = |token: &&AddedToken| {
            !token.special && pieces.get(token.id).is_none_or(|piece| piece.kind != PieceKind::UserDefined)
        };
        let found = TokenFinder::new(added.iter().filter(is_new).map(|token| (token.content.clone(), token.id)));
        Ok(Self { pieces, normalizer, user_defined, unigram, added, found, space_after_user_defined: false })
    }

    /// Adds the space before the first word after each user-defined piece too.
    pub fn with_space_after_user_defined(self) -> Self {
        let found = self.pieces.iter().filter(|(_, piece)| piece.kind == PieceKind::UserDefined);
        let found = TokenFinder::new(found.map(|(id, piece)| (piece.text.replace(SPACE, " "), id)));
        Self { space_after_user_defined: true, found, ..self }
    }

    /// Encodes a text. With `start` the space before the first word is added, if the vocabulary has it.
    pub fn encode(&self, text: &str, start: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut prefix = start;
        for (text, token) in self.found.split(text) {
            let normalized = self.normalizer.normalize(text, prefix);
            match &self.unigram {
                Some(unigram) => unigram.encode(&self.pieces, &normalized, &mut ids),
                None => bpe::encode(&self.pieces, &self.user_defined, &normalized, &mut ids),
            }
            ids.extend(token);
            prefix = self.space_after_user_defined;
        }
        ids
    }

    /// Decodes ids: marks and unknown ids become nothing, bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes: Vec<u8> = Vec::new();
        let mut first = true;
        for id in ids {
            if let Some(token) = self.added_token(*id) {
                if !token.special {
                    bytes.extend(token.content.as_bytes());
                    first = false;
                }
                continue;
            }
            let Some(piece) = self.pieces.get(*id) else { continue };
            match piece.kind {
                PieceKind::Control | PieceKind::Unknown => continue,
                PieceKind::Byte => bytes.extend(byte_of(&piece.text)),
                PieceKind::Normal | PieceKind::UserDefined | PieceKind::Unused => {
                    let Whitespace { add_dummy_prefix, remove_extra, suffix, .. } = self.normalizer.whitespace();
                    let dummy = first && (add_dummy_prefix || remove_extra) && !suffix;
                    let text = if dummy { piece.text.strip_prefix(SPACE).unwrap_or(&piece.text) } else { &piece.text };
                    for c in text.chars() {
                        bytes.extend((if c == SPACE { ' ' } else { c }).encode_utf8(&mut [0; 4]).as_bytes());
                    }
                }
            }
            first = false;
        }
        lossy(&bytes)
    }

    fn added_token(&self, id: u32) -> Option<&AddedToken> {
        self.added.binary_search_by_key(&id, |token| token.id).ok().map(|at| &self.added[at])
    }

    /// Id of a token by its spelling.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.added.iter().find(|token| token.content == text).map(|token| token.id).or_else(|| self.pieces.id(text))
    }

    /// Spelling of a token.
    pub fn token(&self, id: u32) -> Option<&str> {
        let added = self.added_token(id).map(|token| token.content.as_str());
        added.or_else(|| self.pieces.get(id).map(|piece| piece.text.as_str()))
    }

    /// Pieces that a text can have, and the bytes, each with its bytes.
    pub fn token_bytes(&self) -> Vec<(u32, Vec<u8>)> {
        let with_text = |kind: PieceKind| matches!(kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Byte);
        let pieces = self.pieces.iter().filter(|(id, piece)| with_text(piece.kind) && self.added_token(*id).is_none());
        pieces.map(|(id, piece)| (id, of_piece(&piece.text))).collect()
    }

    /// True if an id has a token that is not left out.
    pub fn is_used(&self, id: u32) -> bool {
        let piece = || self.pieces.get(id).is_some_and(|piece| piece.kind != PieceKind::Unused);
        self.added_token(id).is_some() || piece()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        let beyond = self.added.iter().filter(|token| token.id as usize >= self.pieces.len()).count();
        self.pieces.len() + beyond
    }

    /// Highest id of pieces and added tokens; `None` without any.
    pub fn highest(&self) -> Option<u32> {
        let of_pieces = u32::try_from(self.pieces.len()).ok().and_then(|count| count.checked_sub(1));
        of_pieces.max(self.added.last().map(|token| token.id))
    }

    /// Special tokens: id and spelling.
    pub fn special(&self) -> Vec<(u32, String)> {
        let is_special = |(id, kind): (u32, PieceKind)| match self.added_token(id) {
            Some(token) => token.special,
            None => matches!(kind, PieceKind::Control | PieceKind::Unknown),
        };
        let of_pieces = self.pieces.iter().filter(|(id, piece)| is_special((*id, piece.kind)));
        let beyond = self.added.iter().filter(|token| token.special && token.id as usize >= self.pieces.len());
        let of_pieces = of_pieces.map(|(id, piece)| (id, piece.text.clone()));
        of_pieces.chain(beyond.map(|token| (token.id, token.content.clone()))).collect()
    }

    /// True if a space is added before the first word.
    pub fn adds_prefix(&self) -> bool {
        self.normalizer.whitespace().add_dummy_prefix
    }
}

/// Byte of a piece such as `<0x0A>`.
fn byte_of(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// Text of bytes, with one U+FFFD for each byte that is no UTF-8.
fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}
