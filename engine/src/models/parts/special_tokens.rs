//! Special tokens: their ids by name, from the tokenizer. An error names the token.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::text::Tokenizer;

/// Special token ids of a checkpoint, as its chat template uses them.
#[derive(Debug, Clone, Copy)]
pub struct SpecialTokens {
    /// Id of `<|im_start|>`.
    pub im_start: u32,
    /// Id of `<|im_end|>`.
    pub im_end: u32,
    /// Id of `system`.
    pub system: u32,
    /// Id of `user`.
    pub user: u32,
    /// Id of `assistant`.
    pub assistant: u32,
    /// Id that stands before audio.
    pub audio_start: u32,
    /// Id that stands after audio.
    pub audio_end: u32,
}

/// Reader of ids by name.
#[derive(Clone, Copy)]
pub struct TokenReader<'a> {
    checkpoint: &'a Checkpoint,
    tokenizer: &'a Tokenizer,
}

impl<'a> TokenReader<'a> {
    /// Creates a reader of the tokenizer of `checkpoint`.
    pub fn new(checkpoint: &'a Checkpoint, tokenizer: &'a Tokenizer) -> Self {
        Self { checkpoint, tokenizer }
    }

    /// Id of an added token, such as `<|im_start|>`.
    pub fn special(&self, name: &str) -> Result<u32, CheckpointError> {
        let missing = || self.wrong("added_tokens", format!("`{name}` is missing"));
        self.tokenizer.token_id(name).ok_or_else(missing)
    }

    /// Id of a text that must be one token, such as `user`.
    pub fn word(&self, text: &str) -> Result<u32, CheckpointError> {
        match &self.text(text)?[..] {
            &[id] => Ok(id),
            _ => Err(self.wrong("model", format!("{text:?} must be one token"))),
        }
    }

    /// Ids of a text.
    pub fn text(&self, text: &str) -> Result<Vec<u32>, CheckpointError> {
        self.tokenizer.encode(text).map_err(|error| self.wrong("model", error.to_string()))
    }

    fn wrong(&self, field: &str, message: String) -> CheckpointError {
        CheckpointError::WrongField { file: self.checkpoint.label("tokenizer.json"), field: field.to_owned(), message }
    }
}
