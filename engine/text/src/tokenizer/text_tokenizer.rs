//! The tokenizer of a checkpoint, whatever files it is from.

use std::collections::BTreeMap;

use serde_json::Value;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;

use super::added;
use super::class_files::ClassFiles;
use super::error::{EncodeError, TokenizerError};
use super::gguf::{self, GgufModel, GgufVocabulary};
use super::sentencepiece::SentencePiece;
use super::token_bytes::Spelling;

/// Upper bound of tokenizer.json, in bytes. The longest published ones have 40 MB.
pub const MAX_JSON: usize = 256 << 20;
/// Space at the beginning of a word.
const WORD_SPACE: char = '\u{2581}';

/// Tokenizer of a checkpoint.
///
/// A text is encoded as its letters: a special token that is spelt out in it is not that token.
#[derive(Debug)]
pub struct TextTokenizer {
    model: Model,
    marks: BTreeMap<String, SpecialToken>,
    /// True if the first word of a text alone gets a space, and the library no longer adds it.
    first_space: bool,
    /// True if the first word of a text gets a space.
    adds_prefix: bool,
}

#[derive(Debug)]
enum Model {
    Library(Box<tokenizers::Tokenizer>),
    Pieces(Box<SentencePiece>),
}

/// A special token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpecialToken {
    pub id: u32,
    /// White space before it belongs to it.
    pub takes_before: bool,
    /// White space after it belongs to it.
    pub takes_after: bool,
}

impl TextTokenizer {
    /// Reads the contents of a tokenizer.json. Saved truncation and padding are reset.
    ///
    /// # Errors
    ///
    /// If the bytes are no tokenizer.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        TokenizerError::check_count("the file", bytes.len(), MAX_JSON)?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(bytes);
        Self::from_library(tokenizer.map_err(|error| TokenizerError::NotATokenizer(error.to_string()))?)
    }

    /// Takes a tokenizer of the library.
    fn from_library(mut tokenizer: tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        tokenizer.with_padding(None);
        let wrong = |error: tokenizers::Error| TokenizerError::NotATokenizer(error.to_string());
        tokenizer.with_truncation(None).map_err(wrong)?;
        tokenizer.set_encode_special_tokens(true);
        let mut first_space = false;
        if let Some(PreTokenizerWrapper::Metaspace(metaspace)) = tokenizer.get_pre_tokenizer()
            && metaspace.get_prepend_scheme() == PrependScheme::First
            && metaspace.get_replacement() == WORD_SPACE
        {
            // The library takes each text for a beginning; the rest of a prompt is none.
            let mut metaspace = metaspace.clone();
            metaspace.set_prepend_scheme(PrependScheme::Never);
            tokenizer.with_pre_tokenizer(Some(PreTokenizerWrapper::Metaspace(metaspace)));
            first_space = true;
        }
        let added = tokenizer.get_added_tokens_decoder();
        let special = added.into_iter().filter(|(_, token)| token.special);
        let mark = |(id, token): (u32, tokenizers::AddedToken)| {
            (token.content, SpecialToken { id, takes_before: token.lstrip, takes_after: token.rstrip })
        };
        let marks = special.map(mark).collect();
        let mut made = Self { model: Model::Library(Box::new(tokenizer)), marks, first_space, adds_prefix: false };
        let first = made.encode("a").ok().and_then(|ids| made.token(*ids.first()?));
        made.adds_prefix = first.is_some_and(|token| token.starts_with([WORD_SPACE, '\u{120}']));
        Ok(made)
    }

    /// Reads a SentencePiece model file. `added_tokens` is the field `added_tokens_decoder` of tokenizer_config.json,
    /// empty without one: tokens beside the pieces, by their ids.
    ///
    /// # Errors
    ///
    /// If the bytes are no model of the kinds unigram or BPE.
    pub fn from_sentencepiece(bytes: &[u8], added_tokens: &BTreeMap<String, Value>) -> Result<Self, TokenizerError> {
        Ok(Self::of_pieces(SentencePiece::from_model(bytes, &added::of_config(added_tokens)?)?))
    }

    /// Builds the tokenizer of a GGUF file.
    ///
    /// # Errors
    ///
    /// If the vocabulary's kind or its way to cut words is not served, or a field is wrong.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self, TokenizerError> {
        match gguf::build(vocabulary)? {
            GgufModel::Bytes(tokenizer) => Self::from_library(*tokenizer),
            GgufModel::Pieces(pieces) => Ok(Self::of_pieces(*pieces)),
        }
    }

    /// Builds the tokenizer of a known class from its files.
    ///
    /// # Errors
    ///
    /// If the class is not known or a file is wrong.
    pub fn from_class_files(files: ClassFiles) -> Result<Self, TokenizerError> {
        Self::from_json(&files.tokenizer_json()?)
    }

    fn of_pieces(pieces: SentencePiece) -> Self {
        let mark = |(id, text): (u32, String)| (text, SpecialToken { id, takes_before: false, takes_after: false });
        let marks = pieces.special().into_iter().map(mark).collect();
        let adds_prefix = pieces.adds_prefix();
        Self { model: Model::Pieces(Box::new(pieces)), marks, first_space: false, adds_prefix }
    }

    /// Encodes a text, without special tokens.
    ///
    /// # Errors
    ///
    /// If the vocabulary cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        self.encode_part(text, true)
    }

    /// Encodes a text that is the beginning of a prompt, or of a stretch after a mark; or one that goes on.
    pub(super) fn encode_part(&self, text: &str, start: bool) -> Result<Vec<u32>, EncodeError> {
        let tokenizer = match &self.model {
            Model::Library(tokenizer) => tokenizer,
            Model::Pieces(pieces) => return Ok(pieces.encode(text, start)),
        };
        let encode = |text: &str| {
            let encoding = tokenizer.encode_fast(text, false);
            encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(|error| EncodeError(error.to_string()))
        };
        if self.first_space && start && self.first_needs_space(text) {
            return encode(&format!("{WORD_SPACE}{text}"));
        }
        encode(text)
    }

    /// True if the first word of a text gets a space.
    fn first_needs_space(&self, text: &str) -> bool {
        let Model::Library(tokenizer) = &self.model else { return false };
        let added = tokenizer.get_added_tokens_decoder();
        let mut added = added.values().filter(|token| !token.special);
        !text.is_empty() && !text.starts_with([' ', WORD_SPACE]) && !added.any(|token| text.starts_with(&token.content))
    }

    /// Decodes ids without special tokens; invalid UTF-8 becomes U+FFFD, unknown ids become nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.model {
            // Decoders of byte-level vocabularies do not fail; one that did would leave the text empty.
            Model::Library(tokenizer) => tokenizer.decode(ids, true).unwrap_or_default(),
            Model::Pieces(pieces) => pieces.decode(ids),
        }
    }

    /// Id of one token as the vocabulary spells it, special ones included.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match &self.model {
            Model::Library(tokenizer) => tokenizer.token_to_id(token),
            Model::Pieces(pieces) => pieces.id(token),
        }
    }

    /// Spelling of one token, special ones included.
    pub fn token(&self, id: u32) -> Option<String> {
        match &self.model {
            Model::Library(tokenizer) => tokenizer.id_to_token(id),
            Model::Pieces(pieces) => pieces.token(id).map(str::to_owned),
        }
    }

    /// Tokens with text, and their bytes: no special or added ones, nor unused pieces. None if the vocabulary spells bytes in an
    /// unknown way.
    pub fn token_bytes(&self) -> Vec<(u32, Vec<u8>)> {
        match &self.model {
            Model::Library(tokenizer) => {
                let Some(spelling) = tokenizer.get_decoder().and_then(Spelling::of_decoder) else { return Vec::new() };
                let added = tokenizer.get_added_tokens_decoder();
                let vocabulary = tokenizer.get_vocab(false).into_iter().filter(|(_, id)| !added.contains_key(id));
                vocabulary.filter_map(|(token, id)| Some((id, spelling.bytes(&token)?))).collect()
            }
            Model::Pieces(pieces) => pieces.token_bytes(),
        }
    }

    /// True if an id has a token that a text can have; special ones included, unused pieces not.
    pub fn has_token(&self, id: u32) -> bool {
        match &self.model {
            Model::Library(tokenizer) => tokenizer.id_to_token(id).is_some(),
            Model::Pieces(pieces) => pieces.is_used(id),
        }
    }

    /// Number of tokens, special ones included.
    pub fn vocab_size(&self) -> usize {
        match &self.model {
            Model::Library(tokenizer) => tokenizer.get_vocab_size(true),
            Model::Pieces(pieces) => pieces.len(),
        }
    }

    /// Token with the highest id.
    pub fn highest(&self) -> Option<(u32, String)> {
        match &self.model {
            Model::Library(tokenizer) => {
                let highest = tokenizer.get_vocab(true).into_iter().max_by_key(|(_, id)| *id);
                highest.map(|(token, id)| (id, token))
            }
            Model::Pieces(pieces) => {
                let id = pieces.highest()?;
                Some((id, pieces.token(id).unwrap_or_default().to_owned()))
            }
        }
    }

    /// Special tokens: id and spelling.
    pub fn special(&self) -> impl Iterator<Item = (u32, &str)> {
        self.marks.iter().map(|(text, mark)| (mark.id, text.as_str()))
    }

    /// True if the first word of a text gets a space, so that a text that goes on is encoded differently.
    pub fn adds_prefix(&self) -> bool {
        self.adds_prefix
    }

    /// True if the first word of a prompt gets a space, and no word after a mark does.
    pub(super) fn starts_once(&self) -> bool {
        self.first_space
    }

    /// The special token with this spelling.
    pub(super) fn mark(&self, text: &str) -> Option<SpecialToken> {
        self.marks.get(text).copied()
    }
}
