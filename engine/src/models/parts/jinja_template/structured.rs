//! Functions for templates that write them elsewhere than in the place of a message's content, as those of Llama 3 and
//! Mistral do: the template is given functions, calls and results as such.
//!
//! The session keeps texts. So the text of the system message has the functions behind a mark, and that of a call is JSON.
//! Both are read again before the template renders them, and so are calls that the model wrote.

use repartee_engine_api::{Role, Tool};
use repartee_text::template::{ChatInput, ChatMessage, ChatTemplate, ChatValue, CivilTime, TemplateError};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::repair::PromptMessage;
use super::tools::{result_message, tool_value};
use crate::elements::MessageKind;
use crate::model::{ToolCallTokens, ToolTemplate};
use crate::text::Tokenizer;

/// Stands before the functions in the text of a system message: a control character, which JSON never has.
const MARK: char = '\u{1e}';

/// Functions of a template that is given them as such.
#[derive(Debug, Clone, Copy)]
pub struct StructuredTools;

impl StructuredTools {
    /// Tries the template with functions; `None` if it leaves out a function, a call or a result, or writes calls in another
    /// form than those that are read in generated text.
    pub fn new(template: &ChatTemplate) -> Option<Self> {
        let tool = Tool {
            name: "find".to_owned(),
            description: "Finds.".to_owned(),
            parameters: "{\"type\": \"object\"}".to_owned(),
        };
        let call = || ChatMessage::call(&call_id(0), &tool.name, "{\"a\": 1}").ok();
        let rendered = |messages: Vec<ChatMessage>, tools: Option<Vec<ChatValue>>| {
            let input = ChatInput { messages, tools, ..ChatInput::default() };
            template.render(&input, CivilTime::from_seconds(0)).ok().map(|prompt| prompt.text())
        };
        let called = rendered(vec![ChatMessage::text("user", "Hi."), call()?], None)?;
        let (_, calls) = written_calls(&called)?;
        let expected = json!([{"name": "find", "arguments": {"a": 1}}]);
        if calls != *expected.as_array()? || called.contains("<tool_call>") {
            return None;
        }
        let whole = vec![
            ChatMessage::text("system", "(system)"),
            ChatMessage::text("user", "(user)"),
            call()?,
            result_message("(result)", &call_id(0), &tool.name),
            ChatMessage::text("assistant", "(answer)"),
            ChatMessage::text("user", "(end)"),
        ];
        let written = rendered(whole, Some(vec![tool_value(&tool)?]))?;
        let parts = ["(user)", &tool.description, "(result)", "(answer)", "(end)"];
        parts.iter().all(|part| written.contains(part)).then_some(Self)
    }
}

impl ToolTemplate for StructuredTools {
    fn system(&self, instructions: &str, tools: &[Tool]) -> String {
        // As texts, which keep the order of the parameters.
        let listed: Vec<String> = tools
            .iter()
            .map(|Tool { name, description, parameters }| {
                let [name, description] = [name, description].map(|text| Value::from(&text[..]));
                let parameters = if is_json(parameters) { parameters } else { "{}" };
                let function =
                    format!("{{\"name\": {name}, \"description\": {description}, \"parameters\": {parameters}}}");
                format!("{{\"type\": \"function\", \"function\": {function}}}")
            })
            .collect();
        format!("{instructions}{MARK}[{}]", listed.join(", "))
    }

    fn call(&self, name: &str, arguments: &str) -> String {
        let arguments = if is_json(arguments) { arguments } else { "{}" };
        format!("{{\"name\": {}, \"arguments\": {arguments}}}", Value::from(name))
    }

    fn result(&self, output: &str) -> String {
        output.to_owned()
    }

    fn call_tokens(&self) -> Option<&ToolCallTokens> {
        None
    }
}

/// Messages and functions as the template is given them.
#[derive(Debug, Default)]
pub struct StructuredPrompt {
    /// Messages, each call one of its own.
    pub messages: Vec<PromptMessage>,
    /// Functions; `None` if there are none.
    pub tools: Option<Vec<ChatValue>>,
}

impl StructuredPrompt {
    /// Reads the texts of a history.
    pub fn read(history: Vec<PromptMessage>, tokenizer: &Tokenizer) -> Self {
        let mut read = Self::default();
        let kinds: Vec<MessageKind> = history.iter().map(|message| message.kind).collect();
        for (at, message) in history.into_iter().enumerate() {
            let is_called = matches!(kinds.get(at + 1), Some(MessageKind::ToolResult | MessageKind::ToolCall));
            match message.kind {
                MessageKind::System => read.system(message, tokenizer),
                MessageKind::Assistant if is_called => read.called(message, tokenizer),
                _ => read.messages.push(message),
            }
        }
        read
    }

    fn system(&mut self, message: PromptMessage, tokenizer: &Tokenizer) {
        let split = message
            .text
            .rsplit_once(MARK)
            .and_then(|(text, tools)| Some((text.to_owned(), serde_json::from_str::<Vec<ChatValue>>(tools).ok()?)));
        let Some((text, tools)) = split else { return self.messages.push(message) };
        self.tools = Some(tools);
        if !text.is_empty() {
            let ids = tokenizer.encode(&text).unwrap_or_default();
            self.messages.push(PromptMessage { text, ids, ..message });
        }
    }

    /// Adds an assistant's message whose calls have results: its text, and each call.
    fn called(&mut self, message: PromptMessage, tokenizer: &Tokenizer) {
        let Some((before, calls)) = written_calls(&message.text) else { return self.messages.push(message) };
        let text = before.trim();
        if !text.is_empty() {
            let ids = tokenizer.encode(text).unwrap_or_default();
            self.messages.push(PromptMessage { text: text.to_owned(), ids, ..message });
        }
        self.messages.extend(calls.iter().map(|call| PromptMessage {
            role: Role::Assistant,
            kind: MessageKind::ToolCall,
            text: call.to_string(),
            ids: Vec::new(),
        }));
    }
}

/// Message of the template for each of these; results belong to calls in their order.
pub fn chat_messages(
    messages: &[PromptMessage],
    role_name: fn(Role) -> &'static str,
) -> Result<Vec<ChatMessage>, TemplateError> {
    let (mut calls, mut results) = (Vec::new(), 0);
    let mut made = Vec::with_capacity(messages.len());
    for message in messages {
        made.push(match message.kind {
            MessageKind::ToolCall => {
                let call: Value = serde_json::from_str(&message.text).unwrap_or_default();
                let name = call["name"].as_str().unwrap_or_default().to_owned();
                let made = ChatMessage::call(&call_id(calls.len()), &name, &call["arguments"].to_string())?;
                calls.push(name);
                made
            }
            MessageKind::ToolResult => {
                let name = calls.get(results).map_or("", String::as_str);
                results += 1;
                result_message(&message.text, &call_id(results - 1), name)
            }
            MessageKind::System | MessageKind::User | MessageKind::Assistant => {
                ChatMessage::text(role_name(message.role), message.text.clone())
            }
        });
    }
    Ok(made)
}

/// Id of a call by its number; templates that check ids ask for nine letters or digits.
fn call_id(number: usize) -> String {
    format!("call{:05}", number % 100_000)
}

/// True for a text that is JSON.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The calls that a text ends in, each with `name` and `arguments`, and the text before them; `None` if there are none.
fn written_calls(text: &str) -> Option<(&str, Vec<Value>)> {
    text.match_indices(['{', '[']).find_map(|(at, _)| {
        let mut calls = Vec::new();
        let mut rest = &text[at..];
        // Calls follow one another, as objects or as lists of objects.
        loop {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let Some(Ok(value)) = values.next() else { break };
            let found: Option<Vec<Value>> = match value {
                Value::Array(list) => list.iter().map(call).collect(),
                one => call(&one).map(|call| vec![call]),
            };
            let Some(found) = found.filter(|found| !found.is_empty()) else { break };
            calls.extend(found);
            rest =
                rest[values.byte_offset()..].trim_start_matches(|c: char| c.is_whitespace() || [';', ','].contains(&c));
        }
        let before = text[..at].trim_end().trim_end_matches("```json").trim_end_matches("```");
        (!calls.is_empty()).then_some((before, calls))
    })
}

/// Call of an object in one of the published forms.
fn call(value: &Value) -> Option<Value> {
    let call = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let name = call.get("name")?.as_str()?;
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        None | Some(Value::Null) => json!({}),
        // Arguments in a string of their own.
        Some(Value::String(text)) => serde_json::from_str(text).ok()?,
        Some(arguments) => arguments.clone(),
    };
    arguments.is_object().then(|| json!({"name": name, "arguments": arguments}))
}
