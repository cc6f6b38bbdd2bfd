//! Prompt of the reference: the chat template of Qwen's models, with the sentence that asks for text and sound in turn after the
//! instructions.

use std::sync::Arc;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, Message, MessageKind, MessagePart};
use crate::model::PromptTemplate;
use crate::models::parts::chat_template::ChatTemplate;
use crate::models::parts::special_tokens::{SpecialTokens, TokenReader};
use crate::text::Tokenizer;

/// Sentence that the model was taught to answer with five tokens and fifteen codes in turn, and the voice at its end.
const SPOKEN: &str = "请用文本和音频进行对话，交替生成5个文本token和15个音频token，音频部分使用发音人：";

/// Template with the ids of one checkpoint.
#[derive(Debug, Clone)]
pub struct Template {
    chat: ChatTemplate,
    /// Ids of [`SPOKEN`], and of the line before it.
    spoken: Vec<u32>,
    line: Vec<u32>,
    /// Ids that end a response.
    pub ends: Vec<u32>,
}

impl Template {
    /// Reads the ids, with the name of the voice.
    pub fn load(checkpoint: &Checkpoint, tokenizer: &Tokenizer, voice: &str) -> Result<Self, CheckpointError> {
        let tokens = TokenReader::new(checkpoint, tokenizer);
        let marks = SpecialTokens {
            im_start: tokens.special("<|im_start|>")?,
            im_end: tokens.special("<|im_end|>")?,
            system: tokens.word("system")?,
            user: tokens.word("user")?,
            assistant: tokens.word("assistant")?,
            audio_start: tokens.special("<|begofcAUDIO|>")?,
            audio_end: tokens.special("<|endofcAUDIO|>")?,
        };
        let (spoken, line) = (tokens.text(&format!("{SPOKEN}{voice}"))?, tokens.text("\n")?);
        let chat = ChatTemplate::new(checkpoint, marks, tokenizer)?.with_speech().with_instructions(spoken.clone());
        Ok(Self { chat, spoken, line, ends: vec![marks.im_end, tokens.special("<|endoftext|>")?] })
    }
}

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut history = history.to_vec();
        for message in history.iter_mut().filter(|message| message.kind == MessageKind::System) {
            let said: Vec<u32> = message.token_ids().collect();
            if !said.ends_with(&self.spoken) {
                let line = if said.is_empty() { &[][..] } else { &self.line };
                message.parts.push(MessagePart::Text([line, &self.spoken].concat()));
            }
        }
        self.chat.render(&history, open, respond)
    }

    fn keeps_speech(&self) -> bool {
        self.chat.keeps_speech()
    }
}
