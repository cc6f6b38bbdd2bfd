//! Vocabulary of a GGUF file.

use std::collections::HashMap;

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{DecoderWrapper, Tokenizer};

use super::error::TokenizerError;
use super::normalizer::{SPACE, Whitespace};
use super::patterns::{self, WordCuts};
use super::pieces::{Piece, PieceKind, Pieces};
use super::protobuf::ModelKind;
use super::sentencepiece::SentencePiece;

/// Upper bound of tokens and of merges.
const MAX_TOKENS: usize = 1 << 21;
/// Kinds of vocabulary that are served.
const MODELS: &str = "gpt2, llama";
/// Marks that end a message in published templates; files often name one of several.
const ENDS: [&str; 7] =
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>"];

/// The fields `tokenizer.ggml.*` of a GGUF file, as they stand in it.
#[derive(Debug, Clone, Default)]
pub struct GgufVocabulary {
    /// `model`: the kind of vocabulary.
    pub model: String,
    /// `pre`: the way to cut a text into words; `None` if it is absent.
    pub pre: Option<String>,
    /// `tokens`: texts of the tokens.
    pub tokens: Vec<String>,
    /// `scores`: scores of the tokens; empty if absent.
    pub scores: Vec<f32>,
    /// `token_type`: kinds of the tokens; empty if absent.
    pub types: Vec<i32>,
    /// `merges`: pairs of tokens with a space between them, in merge order; empty if absent.
    pub merges: Vec<String>,
    /// `bos_token_id`: id of the token that begins a prompt.
    pub bos_id: Option<u32>,
    /// `eos_token_id`: id of the token that ends a response.
    pub eos_id: Option<u32>,
    /// `unknown_token_id`: id of what no token spells.
    pub unk_id: Option<u32>,
    /// `padding_token_id`: id that fills a batch.
    pub pad_id: Option<u32>,
    /// `eot_token_id` and `eom_token_id`: further ids that end a response.
    pub other_ends: Vec<u32>,
    /// `add_bos_token`: prompts begin with the bos token.
    pub add_bos: Option<bool>,
    /// `add_space_prefix`: a space is added before the first word.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`: of several spaces one stays; none at the ends.
    pub remove_extra_whitespaces: Option<bool>,
}

impl GgufVocabulary {
    /// True if prompts without a chat template begin with the bos token.
    pub fn adds_bos(&self) -> bool {
        self.add_bos.unwrap_or(self.model == "llama")
    }

    /// Spelling of a token.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(String::as_str)
    }

    /// Ids that end a response: those that the file names, and marks that are spelt as published ends of a message.
    pub fn ends(&self) -> Vec<u32> {
        let mut ends: Vec<u32> = self.eos_id.into_iter().chain(self.other_ends.iter().copied()).collect();
        for (id, text) in (0..).zip(&self.tokens) {
            let is_mark = matches!(self.kind(id as usize), Ok(PieceKind::Control | PieceKind::Unknown));
            if ENDS.contains(&text.as_str()) && is_mark && !ends.contains(&id) {
                ends.push(id);
            }
        }
        ends
    }

    /// Variables of chat templates, `bos_token` and the like, with the spellings of their tokens.
    pub fn template_variables(&self) -> Vec<(String, String)> {
        let named = [
            ("bos_token", self.bos_id),
            ("eos_token", self.eos_id),
            ("unk_token", self.unk_id),
            ("pad_token", self.pad_id),
        ];
        let spelt = |(name, id): (&str, Option<u32>)| Some((name.to_owned(), self.token(id?)?.to_owned()));
        named.into_iter().filter_map(spelt).collect()
    }

    /// Checks counts and ids.
    fn check(&self) -> Result<(), TokenizerError> {
        let field = |name: &str| format!("tokenizer.ggml.{name}");
        TokenizerError::check_count(&field("tokens"), self.tokens.len(), MAX_TOKENS)?;
        TokenizerError::check_count(&field("merges"), self.merges.len(), MAX_TOKENS)?;
        if self.tokens.is_empty() {
            return Err(TokenizerError::field(field("tokens"), "there are none"));
        }
        for (name, count) in [("scores", self.scores.len()), ("token_type", self.types.len())] {
            if count != 0 && count != self.tokens.len() {
                let message = format!("it has {count} entries for {} tokens", self.tokens.len());
                return Err(TokenizerError::field(field(name), message));
            }
        }
        let ids = [
            ("bos_token_id", self.bos_id),
            ("eos_token_id", self.eos_id),
            ("unknown_token_id", self.unk_id),
            ("padding_token_id", self.pad_id),
        ];
        for (name, id) in ids {
            if let Some(id) = id.filter(|id| *id as usize >= self.tokens.len()) {
                let message = format!("{id} is no id of {} tokens", self.tokens.len());
                return Err(TokenizerError::field(field(name), message));
            }
        }
        Ok(())
    }

    /// Kind of a token. The tokens that the file names by their use are marks, whatever kind they have.
    fn kind(&self, id: usize) -> Result<PieceKind, TokenizerError> {
        let number = self.types.get(id).copied().unwrap_or(1);
        let kind = PieceKind::of_number(number).ok_or_else(|| {
            TokenizerError::field(format!("tokenizer.ggml.token_type[{id}]"), format!("{number} is not known"))
        })?;
        let named = [self.bos_id, self.eos_id, self.pad_id];
        let is_named = named.iter().flatten().chain(&self.other_ends).any(|named| *named as usize == id);
        Ok(if is_named && kind != PieceKind::Unknown { PieceKind::Control } else { kind })
    }
}

/// A vocabulary as this crate encodes with it.
pub enum GgufModel {
    /// Merging of bytes.
    Bytes(Box<Tokenizer>),
    /// Merging of characters by score.
    Pieces(Box<SentencePiece>),
}

/// Builds the tokenizer of a GGUF file.
pub fn build(vocabulary: GgufVocabulary) -> Result<GgufModel, TokenizerError> {
    vocabulary.check()?;
    match vocabulary.model.as_str() {
        "gpt2" => {
            let cuts = patterns::of_name(vocabulary.pre.as_deref().unwrap_or("default"))?;
            bytes(vocabulary, cuts).map(|tokenizer| GgufModel::Bytes(Box::new(tokenizer)))
        }
        "llama" => pieces(vocabulary).map(|pieces| GgufModel::Pieces(Box::new(pieces))),
        other => Err(TokenizerError::NotServed {
            field: "tokenizer.ggml.model".to_owned(),
            value: other.to_owned(),
            served: MODELS.to_owned(),
        }),
    }
}

fn pieces(vocabulary: GgufVocabulary) -> Result<SentencePiece, TokenizerError> {
    if vocabulary.scores.is_empty() {
        return Err(TokenizerError::field("tokenizer.ggml.scores", "a vocabulary of the kind `llama` needs them"));
    }
    let kinds = (0..vocabulary.tokens.len()).map(|id| vocabulary.kind(id)).collect::<Result<Vec<_>, _>>()?;
    let whitespace = Whitespace {
        add_dummy_prefix: vocabulary.add_space_prefix.unwrap_or(true),
        remove_extra: vocabulary.remove_extra_whitespaces.unwrap_or(false),
        escape: true,
        suffix: false,
    };
    let unk_id = vocabulary.unk_id.unwrap_or(0) as usize;
    let parts = vocabulary.tokens.into_iter().zip(vocabulary.scores).zip(kinds);
    let piece = |((text, score), kind): ((String, f32), PieceKind)| {
        // Files have user-defined pieces with spaces, all others with U+2581.
        let text =
            if kind == PieceKind::UserDefined { text.replace(' ', SPACE.encode_utf8(&mut [0; 3])) } else { text };
        Piece { text, score, kind }
    };
    let pieces = parts.map(piece).collect();
    let pieces = Pieces::new(pieces, unk_id, true);
    let made = SentencePiece::new(pieces, ModelKind::Bpe, &[], whitespace, &[])?;
    Ok(if whitespace.add_dummy_prefix { made.with_space_after_user_defined() } else { made })
}

fn bytes(vocabulary: GgufVocabulary, cuts: WordCuts) -> Result<Tokenizer, TokenizerError> {
    if vocabulary.merges.is_empty() {
        return Err(TokenizerError::field("tokenizer.ggml.merges", "a vocabulary of the kind `gpt2` needs them"));
    }
    let mut added = Vec::new();
    for (id, text) in vocabulary.tokens.iter().enumerate() {
        match vocabulary.kind(id)? {
            PieceKind::Control | PieceKind::Unknown => added.push(tokenizers::AddedToken::from(text.as_str(), true)),
            PieceKind::UserDefined => added.push(tokenizers::AddedToken::from(text.as_str(), false).normalized(false)),
            PieceKind::Normal | PieceKind::Unused | PieceKind::Byte => {}
        }
    }
    let merges = merges(&vocabulary.merges)?;
    let mut ids: HashMap<String, u32> = HashMap::with_capacity(vocabulary.tokens.len());
    let unused: Vec<bool> = (0..vocabulary.tokens.len())
        .map(|id| vocabulary.kind(id).map(|kind| kind == PieceKind::Unused))
        .collect::<Result<_, _>>()?;
    // Converters fill ids without a token with unused ones.
    let used = (0..).zip(vocabulary.tokens).zip(unused).filter(|(_, unused)| !unused);
    for ((id, text), _) in used {
        if let Some(earlier) = ids.insert(text, id) {
            let message = format!("{earlier} and {id} are the same token");
            return Err(TokenizerError::field("tokenizer.ggml.tokens", message));
        }
    }
    library(ids, merges, cuts, added, None)
}

/// Splits pairs at their space. A token may begin with a space only in a vocabulary that does not merge bytes.
fn merges(lines: &[String]) -> Result<Vec<(String, String)>, TokenizerError> {
    let pair = |(at, line): (usize, &String)| match line.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => Ok((left.to_owned(), right.to_owned())),
        _ => {
            let message = "two tokens and one space are expected";
            Err(TokenizerError::field(format!("tokenizer.ggml.merges[{at}]"), message))
        }
    };
    lines.iter().enumerate().map(pair).collect()
}

/// Builds a tokenizer that merges bytes.
pub fn library(
    ids: HashMap<String, u32>,
    merges: Vec<(String, String)>,
    cuts: WordCuts,
    added: Vec<tokenizers::AddedToken>,
    normalizer: Option<tokenizers::NormalizerWrapper>,
) -> Result<Tokenizer, TokenizerError> {
    let wrong = |error: tokenizers::Error| TokenizerError::NotATokenizer(error.to_string());
    let vocabulary: tokenizers::models::bpe::Vocab = ids.into_iter().collect();
    let model =
        BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(cuts.whole_words).build().map_err(wrong)?;
    let mut tokenizer = Tokenizer::new(model);
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for pattern in cuts.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(wrong)?.into());
    }
    steps.push(ByteLevel::new(false, true, false).into());
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer.with_decoder(Some(DecoderWrapper::ByteLevel(ByteLevel::default())));
    tokenizer.with_normalizer(normalizer).map_err(wrong)?;
    tokenizer.add_tokens(added).map_err(wrong)?;
    Ok(tokenizer)
}
