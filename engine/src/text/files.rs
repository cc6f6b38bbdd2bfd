//! Files of a checkpoint's tokenizer: tokenizer.json, or the files of a known tokenizer class, or a SentencePiece
//! model, or the vocabulary of a GGUF file.

use std::collections::BTreeMap;

use repartee_text::tokenizer::{ClassFiles, TextTokenizer, TokenizerError};
use serde::Deserialize;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, CheckpointError};

/// File that holds everything.
const TOKENIZER: &str = "tokenizer.json";
/// SentencePiece's model.
const MODEL: &str = "tokenizer.model";
/// Maps each token to its id.
const VOCABULARY: &str = "vocab.json";
/// Pairs of tokens, in merge order.
const MERGES: &str = "merges.txt";
/// Tokenizer class and its added tokens.
const CONFIG: &str = "tokenizer_config.json";

#[derive(Deserialize)]
struct ClassConfig {
    tokenizer_class: String,
    #[serde(default)]
    add_prefix_space: bool,
    added_tokens_decoder: BTreeMap<String, Value>,
}

/// The field of a SentencePiece model's configuration that counts here.
#[derive(Default, Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens_decoder: BTreeMap<String, Value>,
}

/// Reads the tokenizer; returns the label of its file too.
pub fn read(checkpoint: &Checkpoint) -> Result<(String, TextTokenizer), CheckpointError> {
    let has = |file| checkpoint.has_file(file);
    let (file, tokenizer) = if let Some(vocabulary) = checkpoint.gguf_vocabulary()? {
        (checkpoint.label(TOKENIZER), TextTokenizer::from_gguf(vocabulary))
    } else if !has(TOKENIZER) && has(VOCABULARY) && has(MERGES) {
        (checkpoint.label(VOCABULARY), TextTokenizer::from_json(&class_json(checkpoint)?))
    } else if !has(TOKENIZER) && has(MODEL) {
        let added: AddedTokens = checkpoint.json_file(CONFIG)?.unwrap_or_default();
        let file = checkpoint.label(MODEL);
        (file, TextTokenizer::from_sentencepiece(&checkpoint.bytes(MODEL)?, &added.added_tokens_decoder))
    } else {
        (checkpoint.label(TOKENIZER), TextTokenizer::from_json(&checkpoint.bytes(TOKENIZER)?))
    };
    match tokenizer {
        Ok(tokenizer) => Ok((file, tokenizer)),
        Err(error) => Err(refused(file, error)),
    }
}

/// Error of a tokenizer's file.
fn refused(file: String, error: TokenizerError) -> CheckpointError {
    match error {
        TokenizerError::WrongField { field, message } => CheckpointError::WrongField { file, field, message },
        other => CheckpointError::NotATokenizer { file, message: other.to_string() },
    }
}

/// A tokenizer.json equivalent to the files of a tokenizer class.
fn class_json(checkpoint: &Checkpoint) -> Result<Vec<u8>, CheckpointError> {
    let config: ClassConfig = required(checkpoint, CONFIG)?;
    let in_config = |error| refused(checkpoint.label(CONFIG), error);
    ClassFiles::check_class(&config.tokenizer_class).map_err(in_config)?;
    let vocabulary: BTreeMap<String, u32> = required(checkpoint, VOCABULARY)?;
    let not_a_tokenizer = |message: String| CheckpointError::NotATokenizer { file: checkpoint.label(MERGES), message };
    let merges = String::from_utf8(checkpoint.bytes(MERGES)?.into_owned());
    let files = ClassFiles {
        tokenizer_class: config.tokenizer_class,
        add_prefix_space: config.add_prefix_space,
        added_tokens: config.added_tokens_decoder,
        vocabulary,
        merges: merges.map_err(|error| not_a_tokenizer(error.utf8_error().to_string()))?,
    };
    files.tokenizer_json().map_err(|error| match error {
        TokenizerError::NotATokenizer(message) => not_a_tokenizer(message),
        other => in_config(other),
    })
}

fn required<T: serde::de::DeserializeOwned>(checkpoint: &Checkpoint, file: &str) -> Result<T, CheckpointError> {
    let missing = || CheckpointError::FileMissing { file: checkpoint.label(file) };
    checkpoint.json_file(file)?.ok_or_else(missing)
}
