//! Prompt of the family, as text: the system messages, which are instructions, and the last user message, which is spoken.

use std::sync::Arc;

use repartee_engine_api::Role;

use crate::elements::{AudioRows, Element, Message, MessageKind};
use crate::model::PromptTemplate;
use crate::models::parts::clause_reader::ClauseTemplate;

/// Template of a voice that follows instructions and keeps no history.
#[derive(Debug, Clone, Copy, Default)]
pub struct Template;

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let system = history.iter().filter(|message| message.kind == MessageKind::System);
        let instructions = system.flat_map(Message::token_ids).map(|id| Element::token(Role::System, id));
        instructions.chain(ClauseTemplate.render(history, open, respond)).collect()
    }

    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        ClauseTemplate.streamed(ids)
    }

    fn reads_clauses(&self) -> bool {
        true
    }
}
