//! Texts of tools, of calls and of results, out of a chat template.
//!
//! The session keeps them as texts of messages. So the template is rendered with a tool, a call or a result, and what
//! it writes in the place of a message's content is that text. A template that writes tools elsewhere, or calls that no
//! tokens delimit, is given them as such; see [`structured`](super::structured).

use std::sync::Arc;

use repartee_engine_api::Tool;
use repartee_text::template::{ChatContent, ChatInput, ChatMessage, ChatTemplate, ChatValue, CivilTime};

use crate::model::{ToolCallTokens, ToolTemplate};
use crate::text::Tokenizer;

/// Tokens that delimit a call.
const CALL: [&str; 2] = ["<tool_call>", "</tool_call>"];
/// Content in whose place a text is looked for.
const PROBE: &str = "(probe)";
/// Id of a call in a rendering; templates that check ids ask for nine letters or digits.
const CALL_ID: &str = "call00001";

/// Texts of one template.
#[derive(Debug, Clone)]
pub struct JinjaTools {
    template: Arc<ChatTemplate>,
    call_tokens: ToolCallTokens,
}

impl JinjaTools {
    /// Tries the template with tools; `None` if a conversation in texts, which `plain` renders, is not what the template
    /// makes of the calls and results themselves. `plain` is the same template, or that for conversations without tools.
    pub fn new(template: &Arc<ChatTemplate>, plain: &Arc<ChatTemplate>, tokenizer: &Tokenizer) -> Option<Self> {
        let [open, close] = CALL.map(|text| Some((tokenizer.token_id(text)?, text.to_owned())));
        let tools = Self { template: Arc::clone(template), call_tokens: ToolCallTokens { open: open?, close: close? } };
        tools.equals_template(plain).then_some(tools)
    }

    /// Compares a conversation in texts with the template's own.
    fn equals_template(&self, plain: &Arc<ChatTemplate>) -> bool {
        let tool = Tool {
            name: "find".to_owned(),
            description: "Finds.".to_owned(),
            parameters: "{\"type\": \"object\"}".to_owned(),
        };
        let arguments = "{\"a\": 1}";
        let parts = (
            self.system_text(PROBE, std::slice::from_ref(&tool)),
            self.call_text("find", arguments),
            self.result_text("{\"b\": 2}"),
        );
        let (Some(system), Some(call), Some(result)) = parts else { return false };
        if !system.contains(&tool.name)
            || !call.starts_with(CALL[0])
            || !call.ends_with(CALL[1])
            || !call.contains("\"arguments\"")
        {
            return false;
        }
        let own = || -> Option<Vec<ChatMessage>> {
            let calling = ChatMessage::call(CALL_ID, "find", arguments).ok()?;
            let answer = result_message("{\"b\": 2}", CALL_ID, "find");
            let ends = [ChatMessage::text("assistant", "So."), ChatMessage::text("user", "Bye.")];
            let begins = [ChatMessage::text("system", PROBE), ChatMessage::text("user", "Hi.")];
            Some(begins.into_iter().chain([calling, answer]).chain(ends).collect())
        };
        let in_texts = [
            ("system", system.as_str()),
            ("user", "Hi."),
            ("assistant", &call),
            ("user", &result),
            ("assistant", "So."),
            ("user", "Bye."),
        ];
        let in_texts = in_texts.map(|(role, text)| ChatMessage::text(role, text)).to_vec();
        let own = own().and_then(|messages| self.rendered(messages, Some(vec![tool_value(&tool)?])));
        let plain = Self { template: Arc::clone(plain), ..self.clone() };
        own.is_some() && own == plain.rendered(in_texts, None)
    }

    fn rendered(&self, messages: Vec<ChatMessage>, tools: Option<Vec<ChatValue>>) -> Option<String> {
        let conversation = ChatInput { messages, tools, ..ChatInput::default() };
        self.template.render(&conversation, CivilTime::from_seconds(0)).ok().map(|prompt| prompt.text())
    }

    /// The text that a rendering has in the place of the content of the message at `at`. Both are renderings of the
    /// same messages otherwise.
    fn in_place(&self, mut messages: Vec<ChatMessage>, at: usize, role: &str, own: &str) -> Option<String> {
        messages[at] = ChatMessage::text(role, PROBE);
        let framed = self.rendered(messages, None)?;
        let (before, after) = framed.split_once(PROBE)?;
        Some(own.strip_prefix(before)?.strip_suffix(after)?.to_owned())
    }

    fn system_text(&self, instructions: &str, tools: &[Tool]) -> Option<String> {
        let user = ChatMessage::text("user", "Hi.");
        let tools = tools.iter().map(tool_value).collect::<Option<Vec<_>>>()?;
        let with_instructions = vec![ChatMessage::text("system", instructions), user.clone()];
        let messages = if instructions.is_empty() { vec![user] } else { with_instructions.clone() };
        let own = self.rendered(messages, Some(tools))?;
        self.in_place(with_instructions, 0, "system", &own)
    }

    fn call_text(&self, name: &str, arguments: &str) -> Option<String> {
        let messages = vec![ChatMessage::text("user", "Hi."), ChatMessage::call(CALL_ID, name, arguments).ok()?];
        let own = self.rendered(messages.clone(), None)?;
        self.in_place(messages, 1, "assistant", &own)
    }

    fn result_text(&self, output: &str) -> Option<String> {
        let call = ChatMessage::call(CALL_ID, "find", "{}").ok()?;
        let messages = vec![ChatMessage::text("user", "Hi."), call, result_message(output, CALL_ID, "find")];
        let own = self.rendered(messages.clone(), None)?;
        self.in_place(messages, 2, "user", &own)
    }
}

impl ToolTemplate for JinjaTools {
    fn system(&self, instructions: &str, tools: &[Tool]) -> String {
        self.system_text(instructions, tools).unwrap_or_else(|| instructions.to_owned())
    }

    fn call(&self, name: &str, arguments: &str) -> String {
        let plain = || {
            let name = serde_json::Value::from(name);
            format!("{}\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{}", CALL[0], CALL[1])
        };
        self.call_text(name, arguments).unwrap_or_else(plain)
    }

    fn result(&self, output: &str) -> String {
        self.result_text(output).unwrap_or_else(|| output.to_owned())
    }

    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        Some(&self.call_tokens)
    }
}

/// Message with the result of the call of this id, of a function of this name.
pub fn result_message(output: &str, call_id: &str, name: &str) -> ChatMessage {
    ChatMessage {
        role: "tool".to_owned(),
        content: ChatContent::Text(output.to_owned()),
        fields: vec![("tool_call_id".to_owned(), call_id.into()), ("name".to_owned(), name.into())],
    }
}

/// A tool as an object of the chat completions API; `None` if its parameters are not JSON.
pub fn tool_value(tool: &Tool) -> Option<ChatValue> {
    let parameters = ChatValue::parse(&tool.parameters, "parameters").ok()?;
    let function = [
        ("name", tool.name.as_str().into()),
        ("description", tool.description.as_str().into()),
        ("parameters", parameters),
    ];
    Some(ChatValue::object([("type", "function".into()), ("function", ChatValue::object(function))]))
}
