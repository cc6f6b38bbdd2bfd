//! Prompt of the family: the instructions as a message, then the text to speak.
//!
//! The reference speaks one text at a time and keeps no history. So the prompt holds only the system messages and the
//! last user message, whose text is spoken. A response whose text streams in speaks only that text. Checkpoints that
//! follow no instructions get none.

use std::sync::Arc;

use repartee_engine_api::Role;

use super::config::Config;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, Message, MessageKind};
use crate::model::PromptTemplate;
use crate::models::parts::special_tokens::TokenReader;
use crate::text::Tokenizer;

/// Prompt template with the ids of one checkpoint.
#[derive(Debug, Clone)]
pub struct Template {
    /// Ids of `<|im_start|>user\n`; `None` if the checkpoint follows no instructions.
    instructions: Option<Vec<u32>>,
    /// Ids of `<|im_end|>\n`.
    end: Vec<u32>,
    newline: u32,
    /// Ids of `<|im_start|>assistant\n`.
    response: [u32; 3],
}

impl Template {
    /// Builds the template: special tokens come from the configuration, words from the tokenizer.
    pub fn new(checkpoint: &Checkpoint, config: &Config, tokenizer: &Tokenizer) -> Result<Self, CheckpointError> {
        let tokens = TokenReader::new(checkpoint, tokenizer);
        let [user, assistant, newline] = [tokens.word("user")?, tokens.word("assistant")?, tokens.word("\n")?];
        Ok(Self {
            instructions: config.follows_instructions.then(|| vec![config.im_start_token_id, user, newline]),
            end: vec![config.im_end_token_id, newline],
            newline,
            response: [config.im_start_token_id, assistant, newline],
        })
    }

    /// Ids of `<|im_start|>assistant\n`, the header of a response.
    pub fn response_header(&self) -> [u32; 3] {
        self.response
    }
}

fn elements(role: Role, ids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = Element> {
    ids.into_iter().map(move |id| Element::token(role, id))
}

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        let of = |kind| history.iter().filter(move |message| message.kind == kind);
        let mut prompt = Vec::new();
        if let Some(header) = &self.instructions {
            let mut instructions: Vec<u32> = Vec::new();
            for message in of(MessageKind::System).filter(|message| !message.is_empty()) {
                let between = (!instructions.is_empty()).then_some(self.newline);
                instructions.extend(between.into_iter().chain(message.token_ids()));
            }
            if !instructions.is_empty() {
                let all = header.iter().chain(&instructions).chain(&self.end);
                prompt.extend(elements(Role::System, all.copied()));
            }
        }
        if let Some(message) = of(MessageKind::User).next_back() {
            prompt.extend(elements(Role::User, message.token_ids()));
        }
        prompt
    }

    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(elements(Role::User, ids.iter().copied()).collect())
    }
}
