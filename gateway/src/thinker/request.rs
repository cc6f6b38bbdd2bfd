//! The engine's conversation as a request to the server.

use repartee_chat_client::{ChatMessage, ChatRequest, FunctionTool, ToolCall, ToolChoice};
use repartee_engine_api::{AnswerForm, JsonSchema, RemoteCall, RemoteMessage, RemoteRequest, Sampling, Tool};
use serde_json::{Value, json};

/// Converts a request. Parameters that not every server knows are left out: seed, top-k, repetition penalty.
pub(super) fn chat_request(request: RemoteRequest) -> ChatRequest {
    let (temperature, top_p) = match request.sampling {
        Some(Sampling { temperature, top_p, .. }) => {
            (Some(decimal(temperature)), (top_p < 1.0).then(|| decimal(top_p)))
        }
        None => (None, None),
    };
    let (tool_choice, response_format) = form(request.form);
    ChatRequest {
        messages: request.messages.into_iter().map(message).collect(),
        tools: request.tools.into_iter().map(function).collect(),
        tool_choice,
        response_format,
        temperature,
        top_p,
        max_tokens: request.max_tokens,
        include_usage: true,
        ..ChatRequest::default()
    }
}

/// Form of the answer, as the server reads it.
fn form(form: AnswerForm) -> (Option<ToolChoice>, Option<Value>) {
    match form {
        AnswerForm::Free => (None, None),
        AnswerForm::Calls => (Some(ToolChoice::Required), None),
        AnswerForm::Call(name) => (Some(ToolChoice::Function(name)), None),
        AnswerForm::JsonObject => (None, Some(json!({"type": "json_object"}))),
        AnswerForm::JsonSchema(JsonSchema { name, description, schema, strict }) => {
            // It was read from JSON.
            let schema: Value = serde_json::from_str(&schema).unwrap_or_default();
            let mut format = json!({"name": name, "schema": schema});
            if !description.is_empty() {
                format["description"] = description.into();
            }
            if let Some(strict) = strict {
                format["strict"] = strict.into();
            }
            (None, Some(json!({"type": "json_schema", "json_schema": format})))
        }
    }
}

/// The decimal number that a caller wrote: 0.7, not 0.699999988.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}

fn message(message: RemoteMessage) -> ChatMessage {
    match message {
        RemoteMessage::System(content) => ChatMessage::System { content },
        RemoteMessage::User(content) => ChatMessage::User { content },
        RemoteMessage::Assistant { text, calls } => {
            let call = |RemoteCall { id, name, arguments }| ToolCall { id, name, arguments };
            let content = Some(text).filter(|text| !text.is_empty());
            ChatMessage::Assistant { content, tool_calls: calls.into_iter().map(call).collect() }
        }
        RemoteMessage::ToolResult { call, output } => ChatMessage::Tool { tool_call_id: call, content: output },
    }
}

fn function(Tool { name, description, parameters }: Tool) -> FunctionTool {
    let description = Some(description).filter(|text| !text.is_empty());
    // The realtime session has checked that it is JSON.
    FunctionTool { name, description, parameters: serde_json::from_str(&parameters).ok(), strict: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_become_requests() {
        let call = RemoteCall { id: "call_1".into(), name: "find".into(), arguments: "{\"x\": 1}".into() };
        let tool =
            Tool { name: "find".into(), description: String::new(), parameters: "{\"type\": \"object\"}".into() };
        let request = chat_request(RemoteRequest {
            messages: vec![
                RemoteMessage::System("be brief".into()),
                RemoteMessage::User("hi".into()),
                RemoteMessage::Assistant { text: String::new(), calls: vec![call] },
                RemoteMessage::ToolResult { call: "call_1".into(), output: "7".into() },
            ],
            tools: vec![tool],
            form: AnswerForm::Call("find".into()),
            max_tokens: Some(9),
            sampling: Some(Sampling { temperature: 0.7, top_k: 20, top_p: 1.0, repetition_penalty: 1.1 }),
        });
        assert_eq!((request.temperature, request.top_p, request.max_tokens), (Some(0.7), None, Some(9)));
        assert_eq!(request.tool_choice, Some(ToolChoice::Function("find".into())));
        let tools = serde_json::to_value(&request.tools).unwrap();
        assert_eq!(tools, json!([{"name": "find", "parameters": {"type": "object"}}]));
        let messages = serde_json::to_value(&request.messages).unwrap();
        let function = json!({"name": "find", "arguments": "{\"x\": 1}"});
        assert_eq!(
            messages,
            json!([
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null,
                 "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "7"},
            ])
        );
        assert!(request.include_usage && request.seed.is_none() && request.extra.is_empty());
    }

    #[test]
    fn forms_have_their_wire_form() {
        let schema = JsonSchema {
            name: "city".into(),
            description: "where".into(),
            schema: r#"{"type": "object"}"#.into(),
            strict: Some(true),
        };
        let fields = json!({"name": "city", "description": "where", "schema": {"type": "object"}, "strict": true});
        let whole = json!({"type": "json_schema", "json_schema": fields});
        assert_eq!(form(AnswerForm::JsonSchema(schema)), (None, Some(whole)));
        assert_eq!(form(AnswerForm::JsonObject), (None, Some(json!({"type": "json_object"}))));
        assert_eq!(form(AnswerForm::Calls), (Some(ToolChoice::Required), None));
        assert_eq!(form(AnswerForm::Free), (None, None));
    }
}
