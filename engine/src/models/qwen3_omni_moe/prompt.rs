//! The family's chat template: each message between `<|im_start|>ROLE\n` and `<|im_end|>\n`, sound between
//! `<|audio_start|>` and `<|audio_end|>`.

use std::sync::Arc;

use super::config::Config;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::stage::{AudioRows, Element, Message, Prompt};
use crate::text::Tokenizer;

/// Writes prompts of this family.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    im_start: u32,
    im_end: u32,
    system: u32,
    user: u32,
    assistant: u32,
    newline: u32,
    audio_start: u32,
    audio_end: u32,
}

impl ChatTemplate {
    /// Takes the special ids from the configuration and the others from the tokenizer.
    pub fn new(checkpoint: &Checkpoint, config: &Config, tokenizer: &Tokenizer) -> Result<Self, CheckpointError> {
        let file = || checkpoint.label("tokenizer.json");
        let newline = match tokenizer.encode("\n").as_deref() {
            Ok(&[id]) => id,
            _ => {
                return Err(CheckpointError::WrongField {
                    file: file(),
                    field: "model".to_owned(),
                    message: "a line break must be one token".to_owned(),
                });
            }
        };
        let audio_end = config.thinker.audio_end_token_id.or_else(|| tokenizer.token_id("<|audio_end|>"));
        let audio_end = audio_end.ok_or_else(|| CheckpointError::WrongField {
            file: file(),
            field: "added_tokens".to_owned(),
            message: "`<|audio_end|>` is missing".to_owned(),
        })?;
        Ok(Self {
            im_start: config.im_start_token_id,
            im_end: config.im_end_token_id,
            system: config.system_token_id,
            user: config.user_token_id,
            assistant: config.assistant_token_id,
            newline,
            audio_start: config.thinker.audio_start_token_id,
            audio_end,
        })
    }

    /// `<|im_start|>assistant\n`: what an answer follows.
    pub fn answer_header(&self) -> [u32; 3] {
        [self.im_start, self.assistant, self.newline]
    }
}

/// Tokens and sound, one after the other.
struct Writer<T> {
    elements: Vec<Element<T>>,
    user: bool,
}

impl<T> Writer<T> {
    fn tokens(&mut self, ids: &[u32]) {
        let user = self.user;
        self.elements.extend(ids.iter().map(|&id| Element::Token { id, user }));
    }

    fn sound(&mut self, windows: &[Arc<AudioRows<T>>]) {
        for window in windows {
            self.elements.extend((0..window.count).map(|row| Element::Audio { window: Arc::clone(window), row }));
        }
    }
}

impl<T: Send + Sync> Prompt<T> for ChatTemplate {
    fn render(&self, history: &[Message<T>], open: Option<&[Arc<AudioRows<T>>]>, answer: bool) -> Vec<Element<T>> {
        let mut writer = Writer { elements: Vec::new(), user: false };
        let end = [self.im_end, self.newline];
        for message in history {
            let role = match message {
                Message::System(_) => self.system,
                Message::UserText(_) | Message::UserAudio(_) => self.user,
                Message::Assistant(_) => self.assistant,
            };
            writer.user = role == self.user;
            writer.tokens(&[self.im_start, role, self.newline]);
            match message {
                Message::System(ids) | Message::UserText(ids) | Message::Assistant(ids) => writer.tokens(ids),
                Message::UserAudio(windows) => {
                    writer.tokens(&[self.audio_start]);
                    writer.sound(windows);
                    writer.tokens(&[self.audio_end]);
                }
            }
            writer.tokens(&end);
        }
        if let Some(windows) = open {
            writer.user = true;
            writer.tokens(&[self.im_start, self.user, self.newline, self.audio_start]);
            writer.sound(windows);
        } else if answer {
            writer.user = false;
            writer.tokens(&self.answer_header());
        }
        writer.elements
    }
}
