//! A call of a function, in answers and in messages of requests.

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};
use serde_json::json;

/// Call of a function. The request repeats it in the message of the assistant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifier of the call.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments as JSON; `{}` if the server sends none.
    pub arguments: String,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut call = serializer.serialize_struct("ToolCall", 3)?;
        call.serialize_field("id", &self.id)?;
        call.serialize_field("type", "function")?;
        call.serialize_field("function", &json!({"name": self.name, "arguments": self.arguments}))?;
        call.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_call_is_written_as_sent() {
        let call = ToolCall { id: "call_1".into(), name: "weather".into(), arguments: "{\"city\":\"Ulm\"}".into() };
        let expected = json!({
            "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Ulm\"}"},
        });
        assert_eq!(serde_json::to_value(call).unwrap(), expected);
    }
}
