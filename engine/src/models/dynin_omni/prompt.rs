//! Prompt of an utterance, after `t2s_gen_prompt` of the published code: a request to read the text, in the chat's form.

use super::config::Config;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::special_tokens::TokenReader;
use crate::text::{TextError, Tokenizer};

/// Request of vllm-omni 0.24.0.
const ASKED: &str = "Please read the following text naturally.";
/// Most tokens of an utterance's text.
const MOST_TEXT: usize = 64;
/// Marks that have a reserved id in the published vocabulary, whatever the tokenizer calls it.
const TASK: (&str, u32) = ("<|t2s|>", 126_099);
const BEGIN: (&str, u32) = ("<|soa|>", 126_097);
/// The same: end of the speech.
pub const END: (&str, u32) = ("<|eoa|>", 126_098);

/// Ids around a text.
pub struct PromptIds {
    tokenizer: Tokenizer,
    before: Vec<u32>,
    after: Vec<u32>,
    /// Id of the end of a speech.
    pub end: u32,
}

impl PromptIds {
    /// Looks the ids up.
    pub fn load(checkpoint: &Checkpoint, tokenizer: &Tokenizer, config: &Config) -> Result<Self, CheckpointError> {
        let reader = TokenReader::new(checkpoint, tokenizer);
        let reserved = |(name, id): (&str, u32)| match tokenizer.token_id(name) {
            Some(id) => Ok(id),
            None if (id as usize) < config.text_rows => Ok(id),
            None => reader.special(name),
        };
        let header = |role: &str| -> Result<Vec<u32>, CheckpointError> {
            let (begin, end) = (reader.special("<|start_header_id|>")?, reader.special("<|end_header_id|>")?);
            Ok([&[begin], &reader.text(role)?[..], &[end]].concat())
        };
        let before = [
            vec![reserved(TASK)?, reader.special("<|startoftext|>")?],
            header("user")?,
            reader.text(&format!("\n{ASKED}\n"))?,
        ];
        let after = [
            vec![reader.special("<|eot_id|>")?],
            header("assistant")?,
            reader.text("\n")?,
            vec![config.eos, reserved(BEGIN)?],
        ];
        Ok(Self { tokenizer: tokenizer.clone(), before: before.concat(), after: after.concat(), end: reserved(END)? })
    }

    /// Prompts of a text, up to the canvas; several if it is long.
    pub fn of(&self, text: &str) -> Result<Vec<Vec<u32>>, TextError> {
        let ids = self.tokenizer.encode(text)?;
        Ok(ids.chunks(MOST_TEXT).map(|ids| [&self.before[..], ids, &self.after].concat()).collect())
    }

    /// Positions of a prompt, at most.
    pub fn most_positions(&self) -> usize {
        self.before.len() + MOST_TEXT + self.after.len()
    }
}
