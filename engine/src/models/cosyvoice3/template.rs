//! Prompt of the family: instructions up to a mark, then the text to speak. The reference keeps no history, so the prompt
//! holds only the system messages and the last user message.

use std::sync::Arc;

use repartee_engine_api::Role;

use crate::elements::{AudioRows, Element, Message, MessageKind};
use crate::model::PromptTemplate;

/// Prompt template with the id of the mark after instructions.
#[derive(Debug, Clone)]
pub struct Template {
    /// Id of `<|endofprompt|>`.
    pub end_of_prompt: u32,
}

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        let mut instructions: Vec<u32> = Vec::new();
        let mut spoken: Vec<u32> = Vec::new();
        for message in history {
            match message.kind {
                MessageKind::System => instructions.extend(message.token_ids()),
                MessageKind::User => spoken = message.token_ids().collect(),
                MessageKind::Assistant | MessageKind::ToolCall | MessageKind::ToolResult => {}
            }
        }
        if !instructions.is_empty() {
            instructions.push(self.end_of_prompt);
        }
        let instructions = instructions.into_iter().map(|id| Element::token(Role::System, id));
        instructions.chain(spoken.into_iter().map(|id| Element::token(Role::User, id))).collect()
    }

    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(ids.iter().map(|&id| Element::token(Role::User, id)).collect())
    }
}
