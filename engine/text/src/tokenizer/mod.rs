//! Tokenizers of published checkpoints: text to token ids and back.
//!
//! - `text_tokenizer`: the tokenizer, whatever files it is from
//! - `added`: tokens that stand beside a vocabulary
//! - `bpe`: merging of neighbours by the score of the whole
//! - `class_files`: vocab.json and merges.txt of a known tokenizer class
//! - `error`: typed errors
//! - `gguf`: vocabulary of a GGUF file
//! - `normalizer`: SentencePiece's normalisation of a text
//! - `patterns`: the ways to cut a text before merging, by their names in GGUF files
//! - `pieces`: the pieces of a SentencePiece vocabulary
//! - `prompt`: encoding of a rendered prompt
//! - `protobuf`: reader of SentencePiece's model file
//! - `sentencepiece`: SentencePiece's encoding and decoding
//! - `token_bytes`: bytes of tokens
//! - `unigram`: the best path through a text by the scores of its pieces

mod added;
mod bpe;
mod class_files;
mod error;
mod gguf;
mod normalizer;
mod patterns;
mod pieces;
mod prompt;
mod protobuf;
mod sentencepiece;
mod text_tokenizer;
mod token_bytes;
mod unigram;

pub use added::AddedToken;
pub use class_files::ClassFiles;
pub use error::{EncodeError, TokenizerError};
pub use gguf::GgufVocabulary;
pub use prompt::EncodedPiece;
pub use text_tokenizer::TextTokenizer;
