//! ChatInput, as a chat template is given it.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

use super::error::TemplateError;
use super::reserved;
use super::special_tokens::SpecialTokens;

/// A JSON value; the order of its fields is kept.
#[derive(Debug, Clone)]
pub struct ChatValue(pub(super) Value);

impl ChatValue {
    /// Parses JSON. `field` names it in errors.
    ///
    /// # Errors
    ///
    /// If the text is not JSON, or over 128 values are nested.
    pub fn parse(json: &str, field: &str) -> Result<Self, TemplateError> {
        match serde_json::from_str(json) {
            Ok(value) => Ok(Self(value)),
            Err(error) => Err(TemplateError::NotJson { field: field.to_owned(), message: error.to_string() }),
        }
    }

    /// Creates a list.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self(items.into_iter().map(|item| item.0).collect())
    }

    /// Creates an object.
    pub fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self(Value::from_pairs(fields.into_iter().map(|(name, value)| (name, value.0))))
    }

    /// The text, if the value is one.
    pub fn text(&self) -> Option<&str> {
        self.0.as_str()
    }

    /// Returns a copy with every string, keys included, mapped.
    fn map(&self, text: &dyn Fn(&str) -> String) -> Value {
        map_strings(&self.0, text)
    }
}

impl From<&str> for ChatValue {
    fn from(text: &str) -> Self {
        Self(Value::from(text))
    }
}

impl From<bool> for ChatValue {
    fn from(value: bool) -> Self {
        Self(Value::from(value))
    }
}

impl<'de> Deserialize<'de> for ChatValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self)
    }
}

/// Content of a message.
#[derive(Debug, Clone, Default)]
pub enum ChatContent {
    /// The message has no field `content`.
    #[default]
    Absent,
    /// The field as a text, which the prompt's segments find again.
    Text(String),
    /// Any other value, such as a list of parts, or null.
    Value(ChatValue),
}

/// A message of a conversation.
#[derive(Debug, Clone)]
pub struct ChatMessage {
    /// Role: system, user, assistant, tool, or a role that the template knows.
    pub role: String,
    /// The field `content`, which templates copy, trim or look into.
    pub content: ChatContent,
    /// Other fields, such as `tool_calls`, `tool_call_id`, `name`, `reasoning_content`.
    pub fields: Vec<(String, ChatValue)>,
}

impl ChatMessage {
    /// Creates a message of text.
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: ChatContent::Text(text.into()), fields: Vec::new() }
    }

    /// Creates an assistant's message that calls one function; `arguments` is JSON.
    ///
    /// # Errors
    ///
    /// If the arguments are not JSON.
    pub fn call(id: &str, name: &str, arguments: &str) -> Result<Self, TemplateError> {
        let arguments = ChatValue::parse(arguments, "arguments")?;
        let function = ChatValue::object([("name", name.into()), ("arguments", arguments)]);
        let call = ChatValue::object([("type", "function".into()), ("id", id.into()), ("function", function)]);
        let fields = vec![("tool_calls".to_owned(), ChatValue::list([call]))];
        Ok(Self { role: "assistant".to_owned(), content: ChatContent::Text(String::new()), fields })
    }
}

/// Input of a rendering: messages, tools and variables.
#[derive(Debug, Clone, Default)]
pub struct ChatInput {
    /// Messages, in order.
    pub messages: Vec<ChatMessage>,
    /// Functions that the model may call, as objects of the chat completions API; `None` if there are none.
    pub tools: Option<Vec<ChatValue>>,
    /// True if the header of the model's turn follows the messages.
    pub add_generation_prompt: bool,
    /// Other variables, such as `enable_thinking`.
    pub variables: Vec<(String, ChatValue)>,
}

/// Changes of a conversation's texts before they are rendered.
#[derive(Debug, Clone, Copy)]
pub struct TextChanges<'a> {
    /// Encloses contents in characters that find them in the output.
    pub enclose: bool,
    /// Replaces characters that could be part of a mark.
    pub guard: Option<&'a SpecialTokens>,
}

impl TextChanges<'_> {
    fn text(&self, text: &str) -> String {
        let text = reserved::scrub(text);
        self.guard.map_or_else(|| text.clone(), |marks| marks.guard(&text))
    }

    /// Encloses the content of message `index` within its leading and trailing white space, so that a template can trim
    /// it.
    fn content(&self, index: usize, text: &str) -> String {
        let text = self.text(text);
        let (core, before) = core(&text);
        match reserved::open(index) {
            Some(open) if self.enclose && !core.is_empty() => {
                let after = &text[before + core.len()..];
                format!("{}{open}{core}{}{after}", &text[..before], reserved::CLOSE)
            }
            _ => text,
        }
    }

    /// Messages as the template sees them.
    pub fn messages(&self, conversation: &ChatInput) -> Value {
        let message = |(index, message): (usize, &ChatMessage)| {
            let mut fields = vec![("role".to_owned(), Value::from(self.text(&message.role)))];
            match &message.content {
                ChatContent::Absent => {}
                ChatContent::Text(text) => fields.push(("content".to_owned(), Value::from(self.content(index, text)))),
                ChatContent::Value(value) => fields.push(("content".to_owned(), self.value(value))),
            }
            fields.extend(message.fields.iter().map(|(name, value)| (name.clone(), self.value(value))));
            Value::from_pairs(fields)
        };
        conversation.messages.iter().enumerate().map(message).collect()
    }

    /// A value as the template sees it.
    pub fn value(&self, value: &ChatValue) -> Value {
        value.map(&|text| self.text(text))
    }
}

/// Text without white space at its ends, and its offset.
pub fn core(text: &str) -> (&str, usize) {
    let from_core = text.trim_start_matches(super::python::is_space);
    (from_core.trim_end_matches(super::python::is_space), text.len() - from_core.len())
}

fn map_strings(value: &Value, text: &dyn Fn(&str) -> String) -> Value {
    match (value.kind(), value.as_str()) {
        (_, Some(string)) => Value::from(text(string)),
        (ValueKind::Map, _) => {
            let keys = value.try_iter().into_iter().flatten();
            let pair = |key: Value| {
                let item = value.get_item(&key).unwrap_or_default();
                (map_strings(&key, text), map_strings(&item, text))
            };
            Value::from_pairs(keys.map(pair))
        }
        (ValueKind::Seq, _) => value.try_iter().into_iter().flatten().map(|item| map_strings(&item, text)).collect(),
        _ => value.clone(),
    }
}
