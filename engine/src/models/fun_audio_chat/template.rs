//! Prompt of the reference: the chat template of Qwen's models, with the sentence that asks for text and speech before the
//! instructions.

use std::sync::Arc;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, Message, MessageKind, MessagePart};
use crate::model::{PromptTemplate, ToolTemplate};
use crate::models::parts::chat_template::ChatTemplate;
use crate::models::parts::group_speech::stage::TextIds;
use crate::models::parts::special_tokens::{SpecialTokens, TokenReader};
use crate::text::Tokenizer;

/// System message that asks for text and speech.
const SPOKEN: &str = "You are asked to generate both text and speech tokens at the same time.";

/// Template with the ids of one checkpoint.
#[derive(Debug, Clone)]
pub struct Template {
    chat: ChatTemplate,
    /// Ids of [`SPOKEN`], and of the space behind it.
    spoken: Vec<u32>,
    space: Vec<u32>,
}

impl Template {
    /// Reads the ids.
    pub fn load(checkpoint: &Checkpoint, tokenizer: &Tokenizer, ids: TextIds) -> Result<Self, CheckpointError> {
        let tokens = TokenReader::new(checkpoint, tokenizer);
        let marks = SpecialTokens {
            im_start: tokens.special("<|im_start|>")?,
            im_end: tokens.special("<|im_end|>")?,
            system: tokens.word("system")?,
            user: tokens.word("user")?,
            assistant: tokens.word("assistant")?,
            audio_start: ids.begin,
            audio_end: ids.end,
        };
        let (spoken, space) = (tokens.text(SPOKEN)?, tokens.text(" ")?);
        let chat = ChatTemplate::new(checkpoint, marks, tokenizer)?.with_tools(tokenizer);
        Ok(Self { chat: chat.with_instructions(spoken.clone()), spoken, space })
    }

    /// Id of `<|im_end|>`.
    pub fn end_of_message(&self) -> u32 {
        self.chat.end_of_message()
    }
}

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut history = history.to_vec();
        for message in history.iter_mut().filter(|message| message.kind == MessageKind::System) {
            let said: Vec<u32> = message.token_ids().collect();
            if !said.starts_with(&self.spoken) {
                let space = if said.is_empty() { &[][..] } else { &self.space };
                message.parts.insert(0, MessagePart::Text([&self.spoken, space].concat()));
            }
        }
        self.chat.render(&history, open, respond)
    }

    fn tools(&self) -> Option<&dyn ToolTemplate> {
        self.chat.tools()
    }
}
