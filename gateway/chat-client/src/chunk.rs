//! JSON of an answer: a chunk of a stream, or a whole answer. It accepts the variants that servers send.

use serde::Deserialize;
use serde_json::Value;

use crate::event::TokenUsage;

/// `chat.completion.chunk` or `chat.completion`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChatChunk {
    pub choices: Option<Vec<ChatChoice>>,
    pub usage: Option<Value>,
    pub error: Option<Value>,
    /// `error` in place of an object `error`, with `message` and `code` beside it.
    pub object: Option<Value>,
    pub message: Option<Value>,
    pub code: Option<Value>,
}

/// One of the answers; only the first one is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChatChoice {
    pub index: Option<u64>,
    /// The piece of a stream, or the message of a whole answer.
    #[serde(alias = "message")]
    pub delta: Option<ChatDelta>,
    pub finish_reason: Option<String>,
}

/// Piece of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChatDelta {
    pub content: Option<ChatContent>,
    pub refusal: Option<String>,
    pub reasoning_content: Option<String>,
    pub reasoning: Option<String>,
    pub tool_calls: Option<Vec<ToolCallDelta>>,
}

/// Content: a text, or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ChatContent {
    Text(String),
    Parts(Vec<ContentPiece>),
}

/// Part of content: text, or a list of reasoning texts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContentPiece {
    pub text: Option<String>,
    pub thinking: Option<Vec<ThinkingPiece>>,
}

/// Text of reasoning within content.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ThinkingPiece {
    pub text: Option<String>,
}

/// Piece of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ToolCallDelta {
    pub index: Option<u64>,
    pub id: Option<String>,
    pub function: Option<FunctionDelta>,
}

/// Piece of the called function.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FunctionDelta {
    pub name: Option<String>,
    /// JSON in a text; some servers send the object itself.
    pub arguments: Option<Value>,
}

/// Message and code of an error object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WireError {
    pub message: String,
    pub code: Option<String>,
}

impl WireError {
    /// Reads `{"error": {"message", "code"}}`, `{"error": "…"}`, `{"detail": "…"}` and `{"message": "…"}`.
    pub fn of_body(body: &Value) -> Option<Self> {
        let error = body.get("error").filter(|error| !error.is_null());
        error.or_else(|| body.get("detail")).or_else(|| body.get("message").map(|_| body)).map(Self::of)
    }

    /// Reads an error object or an error text.
    pub fn of(error: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let field = |name: &str| error.get(name).and_then(text).filter(|text| !text.is_empty());
        Self {
            message: text(error).or_else(|| field("message")).unwrap_or_else(|| error.to_string()),
            code: field("code").or_else(|| field("type")),
        }
    }
}

/// Reads numbers of tokens; `None` if there are none. A number of a wrong kind counts as 0.
pub(crate) fn token_usage(usage: &Value) -> Option<TokenUsage> {
    let usage = usage.as_object().filter(|usage| !usage.is_empty())?;
    let number = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let detail = |group: &str, name: &str| usage.get(group).and_then(|it| it.get(name)?.as_u64()).unwrap_or(0);
    Some(TokenUsage {
        prompt_tokens: number("prompt_tokens"),
        cached_tokens: detail("prompt_tokens_details", "cached_tokens"),
        completion_tokens: number("completion_tokens"),
        reasoning_tokens: detail("completion_tokens_details", "reasoning_tokens"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_is_read_leniently() {
        let usage = json!({
            "prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46,
            "prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 6},
        });
        let expected = TokenUsage { prompt_tokens: 12, cached_tokens: 5, completion_tokens: 34, reasoning_tokens: 6 };
        assert_eq!(token_usage(&usage), Some(expected));
        let odd = json!({"prompt_tokens": "12", "completion_tokens": 34, "prompt_tokens_details": null});
        assert_eq!(token_usage(&odd), Some(TokenUsage { completion_tokens: 34, ..TokenUsage::default() }));
        assert_eq!((token_usage(&json!(null)), token_usage(&json!({}))), (None, None));
    }

    #[test]
    fn error_objects_of_many_servers_are_read() {
        let read = |body: Value| WireError::of_body(&body).map(|error| (error.message, error.code));
        let expected = |message: &str, code: Option<&str>| Some((message.to_owned(), code.map(str::to_owned)));
        assert_eq!(read(json!({"error": {"message": "no", "code": "bad_key"}})), expected("no", Some("bad_key")));
        assert_eq!(read(json!({"error": {"message": "no", "code": null, "type": "t"}})), expected("no", Some("t")));
        assert_eq!(read(json!({"error": {"message": "no", "code": 503}})), expected("no", Some("503")));
        assert_eq!(read(json!({"error": "no"})), expected("no", None));
        assert_eq!(read(json!({"detail": "Not Found"})), expected("Not Found", None));
        assert_eq!(read(json!({"object": "error", "message": "no", "code": 404})), expected("no", Some("404")));
        assert_eq!(read(json!({"error": {"x": 1}})), expected("{\"x\":1}", None));
        assert_eq!(read(json!({"choices": []})), None);
        assert_eq!(read(json!([1])), None);
    }
}
