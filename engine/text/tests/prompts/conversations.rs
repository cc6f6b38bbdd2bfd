//! Conversations of the fixtures.

use std::collections::BTreeMap;

use repartee_text::template::{ChatContent, ChatInput, ChatMessage, ChatValue, CivilTime};
use serde::Deserialize;

/// 2026-07-04, 15:06:09: the time of the fixtures.
pub fn now() -> CivilTime {
    CivilTime::from_seconds(1_783_177_569)
}

/// A conversation as the fixtures have it.
#[derive(Deserialize)]
pub struct SavedConversation {
    messages: Vec<BTreeMap<String, ChatValue>>,
    tools: Option<Vec<ChatValue>>,
    add_generation_prompt: bool,
    #[serde(default)]
    variables: BTreeMap<String, ChatValue>,
}

impl SavedConversation {
    /// The conversation as a template takes it.
    pub fn chat_input(self) -> ChatInput {
        let message = |mut saved: BTreeMap<String, ChatValue>| {
            let content = match saved.remove("content") {
                None => ChatContent::Absent,
                Some(value) => match value.text() {
                    Some(text) => ChatContent::Text(text.to_owned()),
                    None => ChatContent::Value(value),
                },
            };
            let role = saved.remove("role").unwrap().text().unwrap().to_owned();
            let mut fields: Vec<(String, ChatValue)> = saved.into_iter().collect();
            // The reference gives a template the reasoning under an older name too.
            if let Some((_, reasoning)) = fields.iter().find(|(name, _)| name == "reasoning_content").cloned() {
                fields.push(("thinking".to_owned(), reasoning));
            }
            ChatMessage { role, content, fields }
        };
        ChatInput {
            messages: self.messages.into_iter().map(message).collect(),
            tools: self.tools,
            add_generation_prompt: self.add_generation_prompt,
            variables: self.variables.into_iter().collect(),
        }
    }
}
