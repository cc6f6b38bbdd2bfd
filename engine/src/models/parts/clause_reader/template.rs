//! Prompt of a voice that speaks a clause at a time: the text to speak.

use std::sync::Arc;

use repartee_engine_api::Role;

use crate::elements::{AudioRows, Element, Message, MessageKind};
use crate::model::PromptTemplate;

/// Prompt template of a voice that follows no instructions and keeps no history: the last user message, which is spoken. A
/// response whose text streams in speaks that text alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClauseTemplate;

impl PromptTemplate for ClauseTemplate {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        let last = history.iter().rev().find(|message| message.kind == MessageKind::User);
        last.into_iter().flat_map(Message::token_ids).map(|id| Element::token(Role::User, id)).collect()
    }

    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(ids.iter().map(|&id| Element::token(Role::User, id)).collect())
    }

    fn reads_clauses(&self) -> bool {
        true
    }
}
