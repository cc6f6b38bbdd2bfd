//! `conversation.item.*` and the items of a conversation.

use serde::{Deserialize, Serialize};

use super::extension::EventExtension;
use super::literal;

literal!(
    /// The `object` of an item.
    ItemObject = "realtime.item"
);

/// One entry of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    /// A message of one role.
    Message(Message),
    /// A function call of the model.
    FunctionCall(FunctionCall),
    /// The result of a function call.
    FunctionCallOutput(FunctionCallOutput),
}

impl Item {
    /// Its id, if it has one yet.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Message(message) => message.id.as_deref(),
            Self::FunctionCall(call) => call.id.as_deref(),
            Self::FunctionCallOutput(output) => output.id.as_deref(),
        }
    }

    /// Mutable access to its id.
    pub fn id_mut(&mut self) -> &mut Option<String> {
        match self {
            Self::Message(message) => &mut message.id,
            Self::FunctionCall(call) => &mut call.id,
            Self::FunctionCallOutput(output) => &mut output.id,
        }
    }

    /// Mutable access to its status.
    pub fn status_mut(&mut self) -> &mut ItemStatus {
        match self {
            Self::Message(message) => &mut message.status,
            Self::FunctionCall(call) => &mut call.status,
            Self::FunctionCallOutput(output) => &mut output.status,
        }
    }
}

/// A message of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// Its state.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ItemStatus,
    /// Who wrote or spoke it.
    pub role: ItemRole,
    /// Its parts.
    pub content: Vec<ItemContent>,
}

/// A function call of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// Its state.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ItemStatus,
    /// The id that its `function_call_output` repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The function.
    pub name: String,
    /// Its arguments, as JSON.
    pub arguments: String,
}

/// The result of a function call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCallOutput {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// Its state.
    #[serde(default, deserialize_with = "or_default")]
    pub status: ItemStatus,
    /// The `call_id` of the call.
    pub call_id: String,
    /// The result, as free text.
    pub output: String,
}

/// Reads `null` as the default: some clients write it for fields that they do not set.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// State of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// Being generated.
    InProgress,
    /// Complete.
    #[default]
    Completed,
    /// Cut short.
    Incomplete,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemRole {
    /// Instructions.
    System,
    /// The caller.
    User,
    /// The model.
    Assistant,
}

/// One part of a message. The wire has other names for the same parts in `response.content_part.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemContent {
    /// Text of the caller or the system.
    InputText {
        /// The text.
        text: String,
    },
    /// Audio of the caller. The audio itself is never sent back.
    InputAudio {
        /// Base64 of audio, from a client only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        audio: Option<String>,
        /// Always present; `null` unless it was transcribed.
        #[serde(default)]
        transcript: Option<String>,
    },
    /// Picture of the caller. No model here sees one: its place in the item is kept, its bytes are not.
    InputImage {
        /// A data URI, from a client only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image_url: Option<String>,
        /// How closely it is to be looked at: `auto`, `low` or `high`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ImageDetail>,
    },
    /// Text of the model.
    #[serde(alias = "text")]
    OutputText {
        /// The text.
        text: String,
    },
    /// Audio of the model. The audio itself is not accepted back: the transcript stands for it.
    OutputAudio {
        /// Its text.
        #[serde(default)]
        transcript: Option<String>,
    },
}

/// How closely a picture is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    /// As `high`.
    Auto,
    /// Coarsely.
    Low,
    /// Closely.
    High,
}

/// `conversation.item.create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCreate {
    /// Insert after this item; absent for the end, `root` for the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_item_id: Option<String>,
    /// The new item.
    pub item: Item,
}

/// `conversation.item.delete`, `.retrieve` and `.deleted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRef {
    /// The item.
    pub item_id: String,
}

/// `conversation.item.truncate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemTruncate {
    /// The item.
    pub item_id: String,
    /// The part of it; always 0.
    pub content_index: u32,
    /// How much of its audio remains. Clients compute it: fractions are cut off, and negative values are 0.
    #[serde(deserialize_with = "milliseconds")]
    pub audio_end_ms: u64,
}

fn milliseconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    // `as` saturates.
    f64::deserialize(deserializer).map(|ms| ms as u64)
}

/// `conversation.item.truncated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemTruncated {
    /// The item.
    pub item_id: String,
    /// The part of it; always 0.
    pub content_index: u32,
    /// How much of its audio remains.
    pub audio_end_ms: u64,
    /// Repartee's extension of the event.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

/// `conversation.item.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemAdded {
    /// The item before it, `null` for the first.
    pub previous_item_id: Option<String>,
    /// The item.
    pub item: Item,
    /// Repartee's extension of the event.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

/// `conversation.item.retrieved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRetrieved {
    /// The item.
    pub item: Item,
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
