//! Messages of a completion's conversation.

use repartee_protocol::ErrorBody;
use repartee_protocol::fields::{name_of, within};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A message of a conversation.
#[derive(Debug)]
pub(super) enum Message {
    System { content: Content },
    User { content: Content },
    Assistant { content: Option<Content>, audio: Option<Value>, calls: Vec<Call> },
    Tool { call_id: String, content: Content },
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            #[serde(default)]
            content: Option<Content>,
            #[serde(default)]
            audio: Option<Value>,
            #[serde(default)]
            tool_calls: Option<Vec<Call>>,
            #[serde(default)]
            tool_call_id: Option<String>,
        }
        let message = Value::deserialize(deserializer)?;
        let role = name_of::<D::Error>(&message, "role", &["system", "developer", "user", "assistant", "tool"])?;
        let Fields { content, audio, tool_calls, tool_call_id } = within::<_, D::Error>(message)?;
        if role == "assistant" {
            return Ok(Self::Assistant { content, audio, calls: tool_calls.unwrap_or_default() });
        }
        let content = content.ok_or_else(|| D::Error::missing_field("content"))?;
        Ok(match role {
            "user" => Self::User { content },
            "tool" => {
                let call_id = tool_call_id.ok_or_else(|| D::Error::missing_field("tool_call_id"))?;
                Self::Tool { call_id, content }
            }
            _ => Self::System { content },
        })
    }
}

/// Call of a function in a message of the assistant.
#[derive(Debug, Deserialize)]
pub(super) struct Call {
    /// Id that its result names.
    pub id: String,
    pub function: CalledFunction,
}

#[derive(Debug, Deserialize)]
pub(super) struct CalledFunction {
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
}

/// Content of a message.
#[derive(Debug)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<RequestPart>),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            parts @ Value::Array(_) => within(parts).map(Self::Parts),
            _ => Err(Error::custom("a content is a string or an array of parts")),
        }
    }
}

/// A part of a content.
#[derive(Debug)]
pub(super) enum RequestPart {
    Text { text: String },
    Refusal { refusal: String },
    InputAudio { input_audio: InputAudio },
}

impl<'de> Deserialize<'de> for RequestPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct TextPart {
            text: String,
        }
        #[derive(Deserialize)]
        struct RefusalPart {
            refusal: String,
        }
        #[derive(Deserialize)]
        struct AudioPart {
            input_audio: InputAudio,
        }
        let part = Value::deserialize(deserializer)?;
        match name_of::<D::Error>(&part, "type", &["text", "refusal", "input_audio"])? {
            "text" => within(part).map(|TextPart { text }| Self::Text { text }),
            "refusal" => within(part).map(|RefusalPart { refusal }| Self::Refusal { refusal }),
            _ => within(part).map(|AudioPart { input_audio }| Self::InputAudio { input_audio }),
        }
    }
}

/// Sound in a content.
#[derive(Debug, Deserialize)]
pub(super) struct InputAudio {
    /// A sound file in base64. Its bytes tell its format; the field `format` is ignored.
    pub data: String,
}

/// Text or audio of a message.
pub(super) enum ContentPart {
    Text(String),
    Audio { data: String, at: String },
}

/// Parts of the content at `at`; neighbouring texts are joined.
pub(super) fn content_parts(content: Content, at: &str) -> Result<Vec<ContentPart>, ErrorBody> {
    let parts = match content {
        Content::Text(text) => return Ok(vec![ContentPart::Text(text)]),
        Content::Parts(parts) => parts,
    };
    let mut pieces = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        match part {
            // Adjacent text parts become one text.
            RequestPart::Text { text } | RequestPart::Refusal { refusal: text } => match pieces.last_mut() {
                Some(ContentPart::Text(before)) => {
                    before.push('\n');
                    before.push_str(&text);
                }
                _ => pieces.push(ContentPart::Text(text)),
            },
            RequestPart::InputAudio { input_audio } => {
                pieces
                    .push(ContentPart::Audio { data: input_audio.data, at: format!("{at}[{index}].input_audio.data") });
            }
        }
    }
    Ok(pieces)
}
