//! Prompt template of the family: a mark before and after each message; the prompt holds the model's own speech.

use std::sync::Arc;

use repartee_engine::internals::{AudioRows, Element, ElementValue, Message, MessageKind, MessagePart, PromptTemplate};
use repartee_engine_api::Role;

use super::sizes::{PIECE_FRAMES, TEXT_IDS};

/// Token that ends a message, and the text of a response.
pub const END: u32 = TEXT_IDS as u32;

/// Renders text, speech and audio in the order of the history.
pub struct Interleaved {
    /// True if it takes text that streams in.
    pub streams: bool,
}

/// Token that begins a message.
fn mark(role: Role) -> Element {
    let id = match role {
        Role::System => END + 1,
        Role::User => END + 2,
        Role::Assistant => END + 3,
    };
    Element::token(role, id)
}

fn audio(windows: &[Arc<AudioRows>]) -> impl Iterator<Item = Element> {
    let row = |window: &Arc<AudioRows>, row| ElementValue::Audio { window: Arc::clone(window), row };
    windows
        .iter()
        .flat_map(move |window| (0..window.count).map(move |at| Element { role: Role::User, value: row(window, at) }))
}

impl PromptTemplate for Interleaved {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut prompt = Vec::new();
        for message in history {
            let role = match message.kind {
                MessageKind::System => Role::System,
                MessageKind::User | MessageKind::ToolResult => Role::User,
                MessageKind::Assistant | MessageKind::ToolCall => Role::Assistant,
            };
            prompt.push(mark(role));
            for part in &message.parts {
                match part {
                    MessagePart::Text(ids) => prompt.extend(ids.iter().map(|&id| Element::token(role, id))),
                    MessagePart::Audio(windows) => prompt.extend(audio(windows)),
                    MessagePart::Speech(frames) => {
                        prompt.extend(frames.iter().map(|frame| Element::codes(Arc::clone(frame))))
                    }
                }
            }
            prompt.push(Element::token(role, END));
        }
        if let Some(windows) = open {
            prompt.push(mark(Role::User));
            prompt.extend(audio(windows));
        } else if respond {
            prompt.push(mark(Role::Assistant));
        }
        prompt
    }

    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        self.streams.then(|| ids.iter().map(|&id| Element::token(Role::User, id)).collect())
    }

    fn keeps_speech(&self) -> bool {
        true
    }

    fn tokens_before(&self, frame: usize) -> Option<usize> {
        Some(frame / PIECE_FRAMES + 1)
    }
}
