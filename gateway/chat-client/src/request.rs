//! Requests: messages, tools and sampling, and their JSON.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::tool_call::ToolCall;

/// Fields that a request sets itself, or that change the form of the answer.
const RESERVED: &[&str] = &[
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "parallel_tool_calls",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The conversation is empty.
    #[error("it has no messages")]
    NoMessages,
    /// A field in `extra` that the request sets itself.
    #[error("extra.{0} is set by a field of its own")]
    Reserved(String),
    /// A number that JSON cannot hold.
    #[error("{0} is not finite")]
    NotFinite(&'static str),
    /// The JSON is over its limit.
    #[error("it has {size} bytes, over the limit of {limit}: leave out old messages")]
    TooLarge {
        /// Bytes of the request.
        size: usize,
        /// Maximum.
        limit: usize,
    },
    /// It cannot be written.
    #[error("it cannot be written: {0}")]
    Unwritable(String),
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum ChatMessage {
    /// Instructions to the model.
    System {
        /// Text.
        content: String,
    },
    /// Text of the user.
    User {
        /// Text.
        content: String,
    },
    /// Answer of the model.
    Assistant {
        /// Text; `None`, written as `null`, if it only called functions.
        content: Option<String>,
        /// Calls of functions.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// Result of a call.
    Tool {
        /// Identifier of the call.
        tool_call_id: String,
        /// The result.
        content: String,
    },
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunctionTool {
    /// Name that the model calls it by.
    pub name: String,
    /// Text that tells the model what it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// True to hold the model to the schema, where the server can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// Rule for calls of functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model calls nothing.
    None,
    /// At least one call.
    Required,
    /// A call of this function.
    Function(String),
}

impl ToolChoice {
    fn json(&self) -> Value {
        match self {
            Self::Auto => json!("auto"),
            Self::None => json!("none"),
            Self::Required => json!("required"),
            Self::Function(name) => json!({"type": "function", "function": {"name": name}}),
        }
    }
}

/// Name of the field for the maximum of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`, which most servers know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which some models of hosted services demand.
    MaxCompletionTokens,
}

/// Request for an answer. Fields that are `None` or empty are not sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatRequest {
    /// The conversation; at least one message.
    pub messages: Vec<ChatMessage>,
    /// Model; `None` for the client's.
    pub model: Option<String>,
    /// Functions that the model may call.
    pub tools: Vec<FunctionTool>,
    /// Rule for calls; sent only with functions.
    pub tool_choice: Option<ToolChoice>,
    /// False for at most one call; sent only with functions.
    pub parallel_tool_calls: Option<bool>,
    /// Form of the answer, as servers read it: `{"type": "json_schema", ...}`.
    pub response_format: Option<Value>,
    /// Temperature of the sampling; 0 is greedy.
    pub temperature: Option<f64>,
    /// Nucleus of the sampling, 0 to 1.
    pub top_p: Option<f64>,
    /// Maximum tokens of the answer.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Seed of the sampling.
    pub seed: Option<i64>,
    /// True to ask for the numbers of tokens.
    pub include_usage: bool,
    /// Other fields, sent as they are.
    pub extra: Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct ToolEntry<'a> {
    r#type: &'static str,
    function: &'a FunctionTool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [ChatMessage],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolEntry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

impl ChatRequest {
    /// Checks what does not depend on the model.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        if self.messages.is_empty() {
            return Err(RequestError::NoMessages);
        }
        for (name, value) in [("temperature", self.temperature), ("top_p", self.top_p)] {
            if value.is_some_and(|value| !value.is_finite()) {
                return Err(RequestError::NotFinite(name));
            }
        }
        match self.extra.keys().find(|name| RESERVED.contains(&name.as_str())) {
            Some(name) => Err(RequestError::Reserved(name.clone())),
            None => Ok(()),
        }
    }

    /// Returns the JSON of the request, at most `limit` bytes.
    pub(crate) fn body(&self, model: &str, field: MaxTokensField, limit: usize) -> Result<Bytes, RequestError> {
        let tools: Vec<_> = self.tools.iter().map(|function| ToolEntry { r#type: "function", function }).collect();
        let with_tools = !tools.is_empty();
        let body = Body {
            model,
            messages: &self.messages,
            stream: true,
            stream_options: self.include_usage.then_some(StreamOptions { include_usage: true }),
            tools,
            // Servers reject these without functions.
            tool_choice: self.tool_choice.as_ref().filter(|_| with_tools).map(ToolChoice::json),
            parallel_tool_calls: self.parallel_tool_calls.filter(|_| with_tools),
            response_format: self.response_format.as_ref(),
            temperature: self.temperature,
            top_p: self.top_p,
            max_tokens: self.max_tokens.filter(|_| field == MaxTokensField::MaxTokens),
            max_completion_tokens: self.max_tokens.filter(|_| field == MaxTokensField::MaxCompletionTokens),
            stop: &self.stop,
            seed: self.seed,
            extra: &self.extra,
        };
        let json = serde_json::to_vec(&body).map_err(|error| RequestError::Unwritable(error.to_string()))?;
        if json.len() > limit {
            return Err(RequestError::TooLarge { size: json.len(), limit });
        }
        Ok(json.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::User { content: text.to_owned() }
    }

    fn written(request: &ChatRequest) -> Value {
        let body = request.body("m", MaxTokensField::default(), 1 << 20).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn plain_request_has_three_fields() {
        let request = ChatRequest { messages: vec![user("hi")], ..ChatRequest::default() };
        let expected = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        assert_eq!(written(&request), expected);
    }

    #[test]
    fn every_field_is_written() {
        let call = ToolCall { id: "c1".into(), name: "f".into(), arguments: "{}".into() };
        let request = ChatRequest {
            messages: vec![
                ChatMessage::System { content: "be brief".into() },
                user("hi"),
                ChatMessage::Assistant { content: None, tool_calls: vec![call] },
                ChatMessage::Tool { tool_call_id: "c1".into(), content: "7".into() },
                ChatMessage::Assistant { content: Some("seven".into()), tool_calls: vec![] },
            ],
            model: None,
            tools: vec![FunctionTool {
                name: "f".into(),
                description: Some("adds".into()),
                parameters: Some(json!({"type": "object"})),
                strict: Some(true),
            }],
            tool_choice: Some(ToolChoice::Function("f".into())),
            parallel_tool_calls: Some(false),
            response_format: Some(json!({"type": "json_object"})),
            temperature: Some(0.7),
            top_p: Some(0.9),
            max_tokens: Some(64),
            stop: vec!["\n".into()],
            seed: Some(-7),
            include_usage: true,
            extra: Map::from_iter([("top_k".to_owned(), json!(20))]),
        };
        let expected = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "7"},
                {"role": "assistant", "content": "seven"},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {
                "name": "f", "description": "adds", "parameters": {"type": "object"}, "strict": true,
            }}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": false,
            "response_format": {"type": "json_object"},
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 64,
            "stop": ["\n"],
            "seed": -7,
            "top_k": 20,
        });
        assert_eq!(written(&request), expected);
        let body = request.body("m", MaxTokensField::MaxCompletionTokens, 1 << 20).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(64), None));
    }

    #[test]
    fn tool_choices_have_their_wire_form() {
        let choices = [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required];
        assert_eq!(choices.map(|choice| choice.json()), [json!("auto"), json!("none"), json!("required")]);
        let request = ChatRequest {
            messages: vec![user("hi")],
            tool_choice: Some(ToolChoice::Auto),
            parallel_tool_calls: Some(true),
            ..ChatRequest::default()
        };
        assert_eq!(written(&request).as_object().unwrap().len(), 3, "not sent without functions");
    }

    #[test]
    fn unusable_requests_are_refused() {
        let good = ChatRequest { messages: vec![user("hi")], ..ChatRequest::default() };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(ChatRequest::default().check(), Err(RequestError::NoMessages));
        let bad = ChatRequest { temperature: Some(f64::NAN), ..good.clone() };
        assert_eq!(bad.check(), Err(RequestError::NotFinite("temperature")));
        for name in RESERVED {
            let bad = ChatRequest { extra: Map::from_iter([((*name).to_owned(), json!(1))]), ..good.clone() };
            assert_eq!(bad.check(), Err(RequestError::Reserved((*name).to_owned())));
        }
        let size = good.body("m", MaxTokensField::default(), 1 << 20).unwrap().len();
        let error = good.body("m", MaxTokensField::default(), size - 1).unwrap_err();
        assert_eq!(error, RequestError::TooLarge { size, limit: size - 1 });
    }
}
