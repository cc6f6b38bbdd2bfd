//! `conversation.item.*` events and the items of a conversation.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::extension::EventExtension;
use super::fields::{integer, name_of, within};
use super::literal::literal;

literal!(
    /// The `object` field of an item.
    ItemObject = "realtime.item"
);

/// Item of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    /// Message of one role.
    Message(Message),
    /// Function call by the model.
    FunctionCall(FunctionCall),
    /// Result of a function call.
    FunctionCallOutput(FunctionCallOutput),
}

/// Types of items.
const KINDS: &[&str] = &["message", "function_call", "function_call_output"];

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let item = Value::deserialize(deserializer)?;
        Self::read(name_of::<D::Error>(&item, "type", KINDS)?, item)
    }
}

impl Item {
    /// Reads an item of the type `kind`.
    pub(super) fn read<E: serde::de::Error>(kind: &str, mut item: Value) -> Result<Self, E> {
        match kind {
            "function_call" => within(item).map(Self::FunctionCall),
            "function_call_output" => within(item).map(Self::FunctionCallOutput),
            _ => {
                name_parts(&mut item);
                within(item).map(Self::Message)
            }
        }
    }

    /// Returns the item's id; `None` before one is assigned.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Message(message) => message.id.as_deref(),
            Self::FunctionCall(call) => call.id.as_deref(),
            Self::FunctionCallOutput(output) => output.id.as_deref(),
        }
    }

    /// Returns the item's id for mutation.
    pub fn id_mut(&mut self) -> &mut Option<String> {
        match self {
            Self::Message(message) => &mut message.id,
            Self::FunctionCall(call) => &mut call.id,
            Self::FunctionCallOutput(output) => &mut output.id,
        }
    }

    /// Returns the item's status for mutation.
    pub fn status_mut(&mut self) -> &mut ItemStatus {
        match self {
            Self::Message(message) => &mut message.status,
            Self::FunctionCall(call) => &mut call.status,
            Self::FunctionCallOutput(output) => &mut output.status,
        }
    }
}

/// Message of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Item id, unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Object type; always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// Status of the item.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ItemStatus,
    /// Author of the message.
    pub role: ItemRole,
    /// Content parts in order.
    pub content: Vec<ItemContent>,
}

/// Function call by the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Item id, unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Object type; always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// Status of its generation.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ItemStatus,
    /// Id of the call; its `function_call_output` repeats it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Name of the function.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
}

/// Result of a function call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCallOutput {
    /// Item id, unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Object type; always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// Status of its generation.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ItemStatus,
    /// Id of the call that this is the result of.
    pub call_id: String,
    /// Result as free text.
    pub output: String,
}

/// Deserializes `null` as the default: some clients send `null` for unset fields.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Status of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// Generation in progress.
    InProgress,
    /// Generation is complete.
    #[default]
    Completed,
    /// Generation ended early.
    Incomplete,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemRole {
    /// The system: instructions to the model.
    System,
    /// The user: the caller.
    User,
    /// The assistant: the model.
    Assistant,
}

/// Names the types of a message's parts that have none: the fields of a part tell it.
fn name_parts(message: &mut Value) {
    let assistant = message.get("role").is_some_and(|role| role == "assistant");
    let parts = message.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten();
    for part in parts.filter_map(Value::as_object_mut) {
        let has = |field: &str| part.get(field).is_some_and(|value| !value.is_null());
        if has("type") {
            continue;
        }
        let kind = match (assistant, has("text"), has("image_url")) {
            (true, true, _) => "output_text",
            (true, ..) => "output_audio",
            (false, true, _) => "input_text",
            (false, _, true) => "input_image",
            _ => "input_audio",
        };
        part.insert("type".to_owned(), kind.into());
    }
}

/// Fields of all types of parts.
#[derive(Deserialize)]
struct PartFields {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    audio: Option<String>,
    #[serde(default)]
    transcript: Option<String>,
    #[serde(default)]
    image_url: Option<String>,
    #[serde(default)]
    detail: Option<ImageDetail>,
}

/// Types of parts. The beta names of the output's parts are kept for conversations that were saved with them.
const PARTS: &[&str] = &["input_text", "input_audio", "input_image", "output_text", "output_audio", "text", "audio"];

impl<'de> Deserialize<'de> for ItemContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let part = Value::deserialize(deserializer)?;
        let kind = name_of::<D::Error>(&part, "type", PARTS)?;
        let PartFields { text, audio, transcript, image_url, detail } = within::<_, D::Error>(part)?;
        let text = || text.ok_or_else(|| <D::Error as serde::de::Error>::missing_field("text"));
        Ok(match kind {
            "input_text" => Self::InputText { text: text()? },
            "input_audio" => Self::InputAudio { audio, transcript },
            "input_image" => Self::InputImage { image_url, detail },
            "output_text" | "text" => Self::OutputText { text: text()? },
            _ => Self::OutputAudio { transcript },
        })
    }
}

/// Content part of a message. `response.content_part.*` names the same parts differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemContent {
    /// Text by the caller or the system.
    InputText {
        /// Text of the part.
        text: String,
    },
    /// Audio by the caller. The server never sends the audio back.
    InputAudio {
        /// Base64 audio; set by clients only.
        #[serde(skip_serializing_if = "Option::is_none")]
        audio: Option<String>,
        /// Transcript of the audio. Always present; `null` unless transcribed.
        transcript: Option<String>,
    },
    /// Image by the caller. No model supports images: the part is kept, its bytes are dropped.
    InputImage {
        /// Data URI; set by clients only.
        #[serde(skip_serializing_if = "Option::is_none")]
        image_url: Option<String>,
        /// Requested resolution: `auto`, `low` or `high`.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<ImageDetail>,
    },
    /// Text by the model.
    OutputText {
        /// Text of the part.
        text: String,
    },
    /// Audio by the model. Clients send back the transcript only, not the audio.
    OutputAudio {
        /// Transcript of the audio.
        transcript: Option<String>,
    },
}

/// Requested resolution of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    /// Same as `high`.
    Auto,
    /// Low resolution suffices.
    Low,
    /// High resolution is needed.
    High,
}

/// Payload of `conversation.item.create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCreate {
    /// Id of the item to insert after; absent for the end, `root` for the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_item_id: Option<String>,
    /// Item to insert.
    pub item: Item,
}

/// Payload of `conversation.item.delete`, `.retrieve` and `.deleted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRef {
    /// Id of the item.
    pub item_id: String,
}

/// Payload of `conversation.item.truncate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemTruncate {
    /// Id of the item.
    pub item_id: String,
    /// Index of the content part; always 0.
    #[serde(deserialize_with = "integer")]
    pub content_index: u32,
    /// Duration of audio to keep. Clients may send any number: fractions are cut off, negative values become 0.
    #[serde(deserialize_with = "milliseconds")]
    pub audio_end_ms: u64,
}

fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    // `as` saturates.
    f64::deserialize(deserializer).map(|ms| ms as u64)
}

/// Payload of `conversation.item.truncated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemTruncated {
    /// Id of the item.
    pub item_id: String,
    /// Index of the content part; always 0.
    pub content_index: u32,
    /// Duration of audio kept.
    pub audio_end_ms: u64,
    /// Warning about a position beyond the played audio.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

/// Payload of `conversation.item.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemAdded {
    /// Id of the item before it; `null` for the first.
    pub previous_item_id: Option<String>,
    /// Item in its current state.
    pub item: Item,
    /// Warnings about content that the model cannot read.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

/// Payload of `conversation.item.retrieved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRetrieved {
    /// Item that the client requested.
    pub item: Item,
    /// Warnings about content that is left out.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn input_audio_carries_a_null_transcript() {
        let item = Item::Message(Message {
            id: Some("item_1".into()),
            object: ItemObject::Value,
            status: ItemStatus::Completed,
            role: ItemRole::User,
            content: vec![ItemContent::InputAudio { audio: None, transcript: None }],
        });
        assert_eq!(
            serde_json::to_value(item).unwrap(),
            json!({"type": "message", "id": "item_1", "object": "realtime.item", "status": "completed", "role": "user",
                "content": [{"type": "input_audio", "transcript": null}]})
        );
    }

    #[test]
    fn optional_item_fields_may_be_absent_or_null() {
        let text = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]});
        let Item::Message(message) = serde_json::from_value(text).unwrap() else { panic!("a message") };
        assert_eq!(message.id, None);
        assert_eq!(message.content, [ItemContent::InputText { text: "hi".into() }]);
        let text = json!({"type": "function_call", "id": null, "object": null, "status": null, "name": "f",
            "arguments": "{}"});
        let Item::FunctionCall(call) = serde_json::from_value(text).unwrap() else { panic!("a call") };
        assert_eq!((call.status, call.call_id), (ItemStatus::Completed, None));
    }

    #[test]
    fn audio_end_ms_accepts_any_number() {
        for (written, read) in [("0", 0), ("1.9", 1), ("-3", 0), ("1e300", u64::MAX)] {
            let text = format!(r#"{{"item_id": "a", "content_index": 0, "audio_end_ms": {written}}}"#);
            assert_eq!(serde_json::from_str::<ItemTruncate>(&text).unwrap().audio_end_ms, read);
        }
    }
}
