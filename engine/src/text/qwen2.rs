//! Tokenizer class `Qwen2Tokenizer` of transformers, built from the files that it writes without tokenizer.json:
//! vocab.json, merges.txt, and the added tokens of tokenizer_config.json.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::checkpoint::{Checkpoint, CheckpointError};

/// Maps each token to its id.
const VOCABULARY: &str = "vocab.json";
/// Pairs of tokens, in merge order.
const MERGES: &str = "merges.txt";
/// Tokenizer class and its added tokens.
const CONFIG: &str = "tokenizer_config.json";
/// Classes that pre-tokenise with [`CUTS`].
const CLASSES: [&str; 2] = ["Qwen2Tokenizer", "Qwen2TokenizerFast"];
/// Regex that splits text into words before merging; `PRETOKENIZE_REGEX` of the reference.
const CUTS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

#[derive(Deserialize)]
struct TokenizerConfig {
    tokenizer_class: String,
    #[serde(default)]
    add_prefix_space: bool,
    added_tokens_decoder: BTreeMap<String, Value>,
}

/// True if the checkpoint has vocab.json and merges.txt.
pub fn is_present(checkpoint: &Checkpoint) -> bool {
    checkpoint.has_file(VOCABULARY) && checkpoint.has_file(MERGES)
}

/// Builds a tokenizer.json equivalent to the class's own files.
pub fn tokenizer_json(checkpoint: &Checkpoint) -> Result<Vec<u8>, CheckpointError> {
    let config: TokenizerConfig = required(checkpoint, CONFIG)?;
    if !CLASSES.contains(&config.tokenizer_class.as_str()) {
        let message = format!(
            "`{}` without tokenizer.json cannot be loaded, only {}: save the tokenizer with a tokenizer.json",
            config.tokenizer_class,
            CLASSES.join(" and ")
        );
        return Err(wrong(checkpoint, CONFIG, "tokenizer_class", message));
    }
    let vocabulary: BTreeMap<String, u32> = required(checkpoint, VOCABULARY)?;
    let merges = merges(checkpoint)?;
    let added = config.added_tokens_decoder.into_iter().map(|(id, token)| {
        let number: u32 =
            id.parse().map_err(|_| wrong(checkpoint, CONFIG, "added_tokens_decoder", format!("`{id}` is no id")))?;
        let Value::Object(mut token) = token else {
            return Err(wrong(checkpoint, CONFIG, "added_tokens_decoder", format!("`{id}` is no object")));
        };
        token.insert("id".to_owned(), number.into());
        Ok((number, Value::Object(token)))
    });
    // Sorted by id, because a token's id follows from its position.
    let added: BTreeMap<u32, Value> = added.collect::<Result<_, CheckpointError>>()?;
    let file = json!({
        "version": "1.0",
        "added_tokens": added.into_values().collect::<Vec<_>>(),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": CUTS}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": config.add_prefix_space, "trim_offsets": true, "use_regex": false},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    });
    Ok(file.to_string().into_bytes())
}

fn merges(checkpoint: &Checkpoint) -> Result<Vec<(String, String)>, CheckpointError> {
    let bytes = checkpoint.bytes(MERGES)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| CheckpointError::NotATokenizer {
        file: checkpoint.label(MERGES),
        message: error.to_string(),
    })?;
    let lines = text.lines().enumerate();
    let is_version = |number: usize, line: &str| number == 0 && line.starts_with("#version");
    let pairs = lines.filter(|(number, line)| !line.is_empty() && !is_version(*number, line));
    let pair = |(number, line): (usize, &str)| match line.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok((left.to_owned(), right.to_owned())),
        _ => {
            let message = format!("line {}: two tokens and one space are expected", number + 1);
            Err(CheckpointError::NotATokenizer { file: checkpoint.label(MERGES), message })
        }
    };
    pairs.map(pair).collect()
}

fn required<T: serde::de::DeserializeOwned>(checkpoint: &Checkpoint, file: &str) -> Result<T, CheckpointError> {
    let missing = || CheckpointError::FileMissing { file: checkpoint.label(file) };
    checkpoint.json_file(file)?.ok_or_else(missing)
}

fn wrong(checkpoint: &Checkpoint, file: &str, field: &str, message: String) -> CheckpointError {
    CheckpointError::WrongField { file: checkpoint.label(file), field: field.to_owned(), message }
}
