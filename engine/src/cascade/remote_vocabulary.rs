//! Ids of a language model behind a server: the bytes of texts, and marks between messages and calls. The server's own
//! vocabulary is not known here. No text encodes to a mark, so none can forge a role.

use std::sync::Arc;

use repartee_engine_api::{Role, Tool};
use serde::{Deserialize, Serialize};

use crate::elements::{AudioRows, Element, Message, MessageKind, MessagePart};
use crate::model::{PromptTemplate, ToolCallTokens, ToolTemplate};
use crate::text::{TextError, Tokenizer};

/// Marks of messages; the content follows.
pub const SYSTEM: u32 = 256;
pub const USER: u32 = 257;
pub const ASSISTANT: u32 = 258;
/// Call that the caller inserted: JSON of a [`WrittenCall`].
pub const CALLED: u32 = 259;
pub const RESULT: u32 = 260;
/// Marks of a call within a message of the model: name, arguments, end.
pub const CALL: u32 = 261;
pub const ARGUMENTS: u32 = 262;
pub const CALL_END: u32 = 263;

/// Bytes of text that count as one token in limits and estimates. English has about four in a token.
const TOKEN_BYTES: usize = 4;

/// A call as the text of a message.
#[derive(Debug, Serialize, Deserialize)]
pub struct WrittenCall {
    /// Name of the function.
    pub name: String,
    /// Arguments, as JSON text.
    pub arguments: String,
}

/// Creates the tokenizer whose ids are the bytes of a text.
///
/// # Errors
///
/// None can occur: its description is fixed.
pub fn tokenizer() -> Result<Tokenizer, TextError> {
    let vocabulary = (0..=u8::MAX).map(|byte| (letter(byte).to_string(), u32::from(byte).into()));
    let level =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let description = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "vocab": serde_json::Map::from_iter(vocabulary), "merges": []},
    });
    Tokenizer::from_bytes(description.to_string().as_bytes())
}

/// Letter of a byte in vocabularies of bytes: printable Latin-1 letters stand for themselves, the others are moved up.
fn letter(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let moved = (0..byte).filter(|&before| !is_printable(before)).count() as u32;
    char::from_u32(256 + moved).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Ids of a text.
pub fn bytes(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.bytes().map(u32::from)
}

/// Ids of a call within a message of the model.
pub fn call_ids(name: &str, arguments: &str) -> Vec<u32> {
    let marked = |mark: u32, text| std::iter::once(mark).chain(bytes(text));
    marked(CALL, name).chain(marked(ARGUMENTS, arguments)).chain([CALL_END]).collect()
}

/// Prompt template: each message behind its mark.
pub struct RemoteTemplate(ToolCallTokens);

impl RemoteTemplate {
    /// Creates the template.
    pub fn new() -> Self {
        let mark = |id| (id, String::new());
        Self(ToolCallTokens { open: mark(CALL), close: mark(CALL_END) })
    }
}

impl PromptTemplate for RemoteTemplate {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        let mut prompt = Vec::new();
        for message in history {
            let (mark, role) = match message.kind {
                MessageKind::System => (SYSTEM, Role::System),
                MessageKind::User => (USER, Role::User),
                MessageKind::Assistant => (ASSISTANT, Role::Assistant),
                MessageKind::ToolCall => (CALLED, Role::Assistant),
                MessageKind::ToolResult => (RESULT, Role::User),
            };
            prompt.push(Element::token(role, mark));
            for part in &message.parts {
                if let MessagePart::Text(ids) = part {
                    prompt.extend(ids.iter().map(|&id| Element::token(role, id)));
                }
            }
        }
        prompt
    }

    /// Text to read aloud has the assistant's role.
    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(ids.iter().map(|&id| Element::token(Role::Assistant, id)).collect())
    }

    /// The server is asked for the form.
    fn holds_forms(&self) -> bool {
        true
    }

    fn tools(&self) -> Option<&dyn ToolTemplate> {
        Some(self)
    }

    fn tokens(&self, positions: usize) -> usize {
        positions.div_ceil(TOKEN_BYTES)
    }
}

impl ToolTemplate for RemoteTemplate {
    /// The functions go with the request, not into a message.
    fn system(&self, instructions: &str, _: &[Tool]) -> String {
        instructions.to_owned()
    }

    fn call(&self, name: &str, arguments: &str) -> String {
        let call = WrittenCall { name: name.to_owned(), arguments: arguments.to_owned() };
        serde_json::to_string(&call).unwrap_or_default()
    }

    fn result(&self, output: &str) -> String {
        output.to_owned()
    }

    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_of_a_text_are_its_bytes(text in any::<String>()) {
            let tokenizer = tokenizer().unwrap();
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(&ids, &bytes(&text).collect::<Vec<_>>());
            prop_assert_eq!(tokenizer.decode(&ids), text);
        }
    }

    #[test]
    fn marks_have_no_text() {
        let tokenizer = tokenizer().unwrap();
        let ids: Vec<u32> = bytes("hi").chain([ASSISTANT, CALL_END]).collect();
        assert_eq!(tokenizer.decode(&ids), "hi");
        assert!(tokenizer.encodes_pieces());
        assert_eq!(tokenizer.common_prefix(&ids, "hi"), (4, 2));
    }
}
