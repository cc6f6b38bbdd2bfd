//! Tokenizer class `Qwen2Tokenizer` of transformers, built from the files that it writes without tokenizer.json:
//! vocab.json, merges.txt, and the added tokens of tokenizer_config.json.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::TokenizerError;
use super::patterns::QWEN2;

/// Classes that cut a text into words with [`QWEN2`].
const CLASSES: [&str; 2] = ["Qwen2Tokenizer", "Qwen2TokenizerFast"];

/// Contents of the files of a tokenizer class.
#[derive(Debug, Clone)]
pub struct ClassFiles {
    /// `tokenizer_class` of tokenizer_config.json.
    pub tokenizer_class: String,
    /// `add_prefix_space` of tokenizer_config.json.
    pub add_prefix_space: bool,
    /// `added_tokens_decoder` of tokenizer_config.json: tokens by their ids.
    pub added_tokens: BTreeMap<String, Value>,
    /// Tokens and their ids, of vocab.json.
    pub vocabulary: BTreeMap<String, u32>,
    /// Text of merges.txt: two tokens a line, in merge order.
    pub merges: String,
}

impl ClassFiles {
    /// Checks the class, before the vocabulary is read.
    ///
    /// # Errors
    ///
    /// If the class is not one that is known without its tokenizer.json.
    pub fn check_class(tokenizer_class: &str) -> Result<(), TokenizerError> {
        if CLASSES.contains(&tokenizer_class) {
            return Ok(());
        }
        let message = format!(
            "`{tokenizer_class}` without tokenizer.json cannot be loaded, only {}: save the tokenizer with a tokenizer.json",
            CLASSES.join(" and ")
        );
        Err(TokenizerError::field("tokenizer_class", message))
    }

    /// Reads the lines of merges.txt.
    ///
    /// # Errors
    ///
    /// If a line does not have two tokens.
    pub fn merges(text: &str) -> Result<Vec<(String, String)>, TokenizerError> {
        let lines = text.lines().enumerate();
        let is_version = |number: usize, line: &str| number == 0 && line.starts_with("#version");
        let pairs = lines.filter(|(number, line)| !line.is_empty() && !is_version(*number, line));
        let pair = |(number, line): (usize, &str)| match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => Ok((left.to_owned(), right.to_owned())),
            _ => {
                let message = format!("line {}: two tokens and one space are expected", number + 1);
                Err(TokenizerError::NotATokenizer(message))
            }
        };
        pairs.map(pair).collect()
    }

    /// Builds a tokenizer.json equivalent to the class's own files.
    ///
    /// # Errors
    ///
    /// If the class is not known, a merge has not two tokens, or an added token has no id.
    pub fn tokenizer_json(self) -> Result<Vec<u8>, TokenizerError> {
        Self::check_class(&self.tokenizer_class)?;
        let merges = Self::merges(&self.merges)?;
        let field = "added_tokens_decoder";
        let added = self.added_tokens.into_iter().map(|(id, token)| {
            let number: u32 = id.parse().map_err(|_| TokenizerError::field(field, format!("`{id}` is no id")))?;
            let Value::Object(mut token) = token else {
                return Err(TokenizerError::field(field, format!("`{id}` is no object")));
            };
            token.insert("id".to_owned(), number.into());
            Ok((number, Value::Object(token)))
        });
        // Sorted by id, because a token's id follows from its position.
        let added: BTreeMap<u32, Value> = added.collect::<Result<_, TokenizerError>>()?;
        let file = json!({
            "version": "1.0",
            "added_tokens": added.into_values().collect::<Vec<_>>(),
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": self.add_prefix_space, "trim_offsets": true, "use_regex": false},
            ]},
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": self.vocabulary, "merges": merges},
        });
        Ok(file.to_string().into_bytes())
    }
}
