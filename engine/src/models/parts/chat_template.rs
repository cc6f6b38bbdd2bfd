//! Chat template of several families: each message stands between `<|im_start|>ROLE\n` and `<|im_end|>\n`, audio
//! between two special tokens.
//!
//! The system message lists tools. The assistant calls them between `<tool_call>` tags. Results stand in a user message
//! between `<tool_response>` tags. The wording is that of the published checkpoints.

use std::sync::Arc;

use repartee_engine_api::{Role, Tool};

use super::special_tokens::{SpecialTokens, TokenReader};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, ElementValue, Message, MessageKind, MessagePart};
use crate::model::{PromptTemplate, ToolCallTokens, ToolTemplate};
use crate::text::Tokenizer;

/// The chat template with the ids of one checkpoint.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    tokens: SpecialTokens,
    newline: u32,
    /// Content of the system message of a history that begins without one.
    instructions: Option<Vec<u32>>,
    /// `None` if the model has no tools, or if the vocabulary lacks the tokens of calls.
    tools: Option<Tools>,
    /// True if the model's own speech is part of its prompt.
    speech: bool,
}

/// Published template texts of tools.
#[derive(Debug, Clone)]
struct Tools {
    call_tokens: ToolCallTokens,
}

impl Tools {
    fn new(tokenizer: &Tokenizer) -> Option<Self> {
        let mark = |text: &str| Some((tokenizer.token_id(text)?, text.to_owned()));
        Some(Self { call_tokens: ToolCallTokens { open: mark("<tool_call>")?, close: mark("</tool_call>")? } })
    }
}

impl ChatTemplate {
    /// Creates the template without tools.
    ///
    /// # Errors
    ///
    /// If the tokenizer encodes a line break as more than one token.
    pub fn new(checkpoint: &Checkpoint, marks: SpecialTokens, tokenizer: &Tokenizer) -> Result<Self, CheckpointError> {
        let newline = TokenReader::new(checkpoint, tokenizer).word("\n")?;
        Ok(Self { tokens: marks, newline, instructions: None, tools: None, speech: false })
    }

    /// Adds tools, if the vocabulary has `<tool_call>` and `</tool_call>`.
    #[must_use]
    pub fn with_tools(self, tokenizer: &Tokenizer) -> Self {
        Self { tools: Tools::new(tokenizer), ..self }
    }

    /// Keeps the model's own speech in its prompt, as codes.
    #[must_use]
    pub fn with_speech(self) -> Self {
        Self { speech: true, ..self }
    }

    /// Adds a system message of these ids to histories that begin without one.
    #[must_use]
    pub fn with_instructions(self, ids: Vec<u32>) -> Self {
        Self { instructions: Some(ids), ..self }
    }

    /// Id of `<|im_end|>`.
    pub fn end_of_message(&self) -> u32 {
        self.tokens.im_end
    }

    /// Ids of `<|im_start|>assistant\n`, the header of a response.
    pub fn response_header(&self) -> [u32; 3] {
        [self.tokens.im_start, self.tokens.assistant, self.newline]
    }
}

/// Collects the positions of a prompt.
pub struct PromptWriter {
    /// Positions so far.
    pub elements: Vec<Element>,
    /// Role of the message that is being written.
    pub role: Role,
}

impl PromptWriter {
    /// Appends tokens of the message.
    pub fn tokens(&mut self, ids: &[u32]) {
        let role = self.role;
        self.elements.extend(ids.iter().map(|&id| Element::token(role, id)));
    }

    /// Appends the rows of encoded audio.
    pub fn audio(&mut self, windows: &[Arc<AudioRows>]) {
        let role = self.role;
        for window in windows {
            let row = |row| Element { role, value: ElementValue::Audio { window: Arc::clone(window), row } };
            self.elements.extend((0..window.count).map(row));
        }
    }
}

impl PromptTemplate for ChatTemplate {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut writer = PromptWriter { elements: Vec::new(), role: Role::System };
        let marks = &self.tokens;
        let end = [marks.im_end, self.newline];
        if let Some(instructions) = &self.instructions
            && history.first().is_none_or(|message| message.kind != MessageKind::System)
        {
            writer.tokens(&[marks.im_start, marks.system, self.newline]);
            writer.tokens(instructions);
            writer.tokens(&end);
        }
        let mut messages = history.iter().peekable();
        let mut continues = false;
        while let Some(message) = messages.next() {
            let (role, id) = match message.kind {
                MessageKind::System => (Role::System, marks.system),
                MessageKind::User | MessageKind::ToolResult => (Role::User, marks.user),
                MessageKind::Assistant | MessageKind::ToolCall => (Role::Assistant, marks.assistant),
            };
            writer.role = role;
            if continues {
                writer.tokens(&[self.newline]);
            } else {
                writer.tokens(&[marks.im_start, id, self.newline]);
            }
            for part in &message.parts {
                match part {
                    MessagePart::Text(ids) => writer.tokens(ids),
                    MessagePart::Audio(windows) => {
                        writer.tokens(&[marks.audio_start]);
                        writer.audio(windows);
                        writer.tokens(&[marks.audio_end]);
                    }
                    MessagePart::Speech(positions) => {
                        let positions = positions.iter().filter(|_| self.speech);
                        writer.elements.extend(positions.map(|codes| Element::codes(Arc::clone(codes))));
                    }
                }
            }
            // A call continues the assistant message before it; consecutive results share one user message.
            continues = matches!(
                (message.kind, messages.peek().map(|next| next.kind)),
                (MessageKind::Assistant | MessageKind::ToolCall, Some(MessageKind::ToolCall))
                    | (MessageKind::ToolResult, Some(MessageKind::ToolResult))
            );
            if !continues {
                writer.tokens(&end);
            }
        }
        if let Some(windows) = open {
            writer.role = Role::User;
            writer.tokens(&[marks.im_start, marks.user, self.newline, marks.audio_start]);
            writer.audio(windows);
        } else if respond {
            writer.role = Role::Assistant;
            writer.tokens(&self.response_header());
        }
        writer.elements
    }

    fn keeps_speech(&self) -> bool {
        self.speech
    }

    /// Text to read aloud has the assistant's role.
    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(ids.iter().map(|&id| Element::token(Role::Assistant, id)).collect())
    }

    fn tools(&self) -> Option<&dyn ToolTemplate> {
        self.tools.as_ref().map(|tools| tools as &dyn ToolTemplate)
    }
}

impl ToolTemplate for Tools {
    fn system(&self, instructions: &str, tools: &[Tool]) -> String {
        let mut text = String::from(instructions);
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(TOOLS_HEADER);
        for tool in tools {
            text.push('\n');
            text.push_str(&tool_json(tool));
        }
        text.push_str(TOOLS_FOOTER);
        text
    }

    fn call(&self, name: &str, arguments: &str) -> String {
        let name = serde_json::Value::from(name);
        format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
    }

    fn result(&self, output: &str) -> String {
        format!("<tool_response>\n{output}\n</tool_response>")
    }

    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.call_tokens)
    }
}

/// Published text before the list of tools.
const TOOLS_HEADER: &str = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
    You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
/// Published text after the list of tools.
const TOOLS_FOOTER: &str = "\n</tools>\n\nFor each function call, return a json object with function name and arguments \
    within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": \
    <args-json-object>}\n</tool_call>";

/// JSON of one tool, spaced like Python's `json.dumps`, as in the training data of the checkpoints.
fn tool_json(tool: &Tool) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "{{\"type\": \"function\", \"function\": {{\"name\": {}, \"description\": {}, \"parameters\": {}}}}}",
        text(&tool.name),
        text(&tool.description),
        spaced(&tool.parameters)
    )
}

/// Formats JSON with one space after each colon and comma and no other space outside strings. Fields keep their order.
fn spaced(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut string, mut escaped) = (false, false);
    for c in json.chars() {
        if string {
            out.push(c);
            string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            _ if c.is_ascii_whitespace() => {}
            ':' | ',' => out.extend([c, ' ']),
            _ => {
                string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    /// Tokenizer with one token for each byte, and the special tokens.
    fn tokenizer() -> Tokenizer {
        let mut alphabet: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
        alphabet.sort();
        let vocabulary: serde_json::Map<_, _> =
            alphabet.into_iter().enumerate().map(|(id, token)| (token, id.into())).collect();
        let added = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"].iter().enumerate().map(|(i, token)| {
            serde_json::json!({"id": 300 + i, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": false})
        });
        let level = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let file = serde_json::json!({
            "version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        });
        Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap()
    }

    fn template(tokenizer: &Tokenizer) -> ChatTemplate {
        let marks = SpecialTokens {
            im_start: 1000,
            im_end: 1001,
            system: 1002,
            user: 1003,
            assistant: 1004,
            audio_start: 1005,
            audio_end: 1006,
        };
        let newline = tokenizer.encode("\n").unwrap()[0];
        ChatTemplate { tokens: marks, newline, instructions: None, tools: None, speech: false }.with_tools(tokenizer)
    }

    /// Renders a prompt as text, special tokens included.
    fn written(tokenizer: &Tokenizer, history: &[Message]) -> String {
        let elements = template(tokenizer).render(history, None, true);
        let spelt = |element: &Element| match element.value {
            ElementValue::Token(1000) => "<|im_start|>".to_owned(),
            ElementValue::Token(1001) => "<|im_end|>".to_owned(),
            ElementValue::Token(1003) => "user".to_owned(),
            ElementValue::Token(1004) => "assistant".to_owned(),
            ElementValue::Token(id) => tokenizer.decode(&[id]),
            ElementValue::Audio { .. } | ElementValue::Codes(_) => String::new(),
        };
        elements.iter().map(spelt).collect()
    }

    #[test]
    fn tool_calls_and_results_equal_the_published_template() {
        let tokenizer = tokenizer();
        let tools = Tools::new(&tokenizer).unwrap();
        let encode = |text: &str| tokenizer.encode(text).unwrap();
        let call = |name: &str| Message::text(MessageKind::ToolCall, encode(&tools.call(name, "{\"a\": 1}")));
        let result = |output: &str| Message::text(MessageKind::ToolResult, encode(&tools.result(output)));
        let history = [
            Message::text(MessageKind::User, encode("Hi")),
            Message::text(MessageKind::Assistant, encode("Wait.")),
            call("x"),
            call("y"),
            result("1"),
            result("2"),
        ];
        assert_eq!(
            written(&tokenizer, &history),
            "<|im_start|>user\nHi<|im_end|>\n\
             <|im_start|>assistant\nWait.\n<tool_call>\n{\"name\": \"x\", \"arguments\": {\"a\": 1}}\n</tool_call>\n\
             <tool_call>\n{\"name\": \"y\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>\n\
             <|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n\
             <|im_start|>assistant\n"
        );
    }

    #[test]
    fn missing_instructions_are_the_templates() {
        let tokenizer = tokenizer();
        let encode = |text: &str| tokenizer.encode(text).unwrap();
        let template = ChatTemplate { tools: None, ..template(&tokenizer) }.with_instructions(encode("Help."));
        let written = |history: &[Message]| {
            let token = |element: &Element| match element.value {
                ElementValue::Token(id) if id < 1000 => tokenizer.decode(&[id]),
                ElementValue::Token(id) => format!("<{id}>"),
                ElementValue::Audio { .. } | ElementValue::Codes(_) => String::new(),
            };
            template.render(history, None, true).iter().map(token).collect::<String>()
        };
        let (opens, user) = ("<1000><1004>\n", Message::text(MessageKind::User, encode("Hi")));
        let asked = "<1000><1003>\nHi<1001>\n";
        assert_eq!(written(std::slice::from_ref(&user)), format!("<1000><1002>\nHelp.<1001>\n{asked}{opens}"));
        let system = Message::text(MessageKind::System, encode("Sing."));
        assert_eq!(written(&[system, user]), format!("<1000><1002>\nSing.<1001>\n{asked}{opens}"));
    }

    #[test]
    fn tools_follow_the_instructions() {
        let tokenizer = tokenizer();
        let tools = Tools::new(&tokenizer).unwrap();
        let tool = Tool {
            name: "find".to_owned(),
            description: "Looks: \"up\".".to_owned(),
            parameters: "{\"type\":\"object\",\n \"properties\":{\"b\":{},\"a:,\":{}}}".to_owned(),
        };
        let text = tools.system("Be brief.", &[tool]);
        assert!(text.starts_with("Be brief.\n\n# Tools\n\nYou may call"), "{text}");
        let listed = "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"find\", \"description\": \
            \"Looks: \\\"up\\\".\", \"parameters\": {\"type\": \"object\", \"properties\": {\"b\": {}, \"a:,\": {}}}}}\n</tools>";
        assert!(text.contains(listed), "{text}");
        assert!(
            text.ends_with("{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"),
            "{text}"
        );
    }
}
