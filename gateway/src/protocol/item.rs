//! `conversation.item.*` and the items of a conversation.

use serde::{Deserialize, Serialize};

use super::literal;

literal!(
    /// The `object` of an item.
    ItemObject = "realtime.item"
);

/// One entry of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    /// Something said.
    Message(Message),
}

/// Something said by one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default)]
    pub object: ItemObject,
    /// How far it is.
    #[serde(default)]
    pub status: Status,
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: Vec<Content>,
}

/// How far an item is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is still being made.
    InProgress,
    /// It is whole.
    #[default]
    Completed,
    /// It was cut short.
    Incomplete,
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
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
pub enum Content {
    /// Text of the caller or the system.
    InputText {
        /// What is said.
        text: String,
    },
    /// Sound of the caller. Sound itself is never sent back.
    InputAudio {
        /// Base64 of sound, from a client only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        audio: Option<String>,
        /// Always there; `null` because the model hears without writing down.
        #[serde(default)]
        transcript: Option<String>,
    },
    /// Text of the model.
    #[serde(alias = "text")]
    OutputText {
        /// What is said.
        text: String,
    },
    /// Sound of the model.
    OutputAudio {
        /// What it says.
        #[serde(default)]
        transcript: Option<String>,
    },
}

/// `conversation.item.create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Insert after this item; absent for the end, `root` for the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_item_id: Option<String>,
    /// The new item.
    pub item: Item,
}

/// `conversation.item.delete`, `.retrieve` and `.deleted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Which item.
    pub item_id: String,
}

/// `conversation.item.truncate` and `.truncated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncate {
    /// Which item.
    pub item_id: String,
    /// Which part of it; always 0.
    pub content_index: u32,
    /// How much of its sound remains.
    pub audio_end_ms: u64,
}

/// `conversation.item.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The item before it, `null` for the first.
    pub previous_item_id: Option<String>,
    /// The item.
    pub item: Item,
}

/// `conversation.item.retrieved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The item.
    pub item: Item,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sound_of_the_caller_carries_a_null_transcript() {
        let item = Item::Message(Message {
            id: Some("item_1".into()),
            object: ItemObject::Value,
            status: Status::Completed,
            role: Role::User,
            content: vec![Content::InputAudio { audio: None, transcript: None }],
        });
        assert_eq!(
            serde_json::to_value(item).unwrap(),
            json!({"type": "message", "id": "item_1", "object": "realtime.item", "status": "completed", "role": "user",
                "content": [{"type": "input_audio", "transcript": null}]})
        );
    }

    #[test]
    fn a_client_may_leave_out_what_it_does_not_choose() {
        let text = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]});
        let Item::Message(message) = serde_json::from_value(text).unwrap();
        assert_eq!(message.id, None);
        assert_eq!(message.content, [Content::InputText { text: "hi".into() }]);
    }
}
