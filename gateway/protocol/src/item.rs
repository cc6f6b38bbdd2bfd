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
    /// A function that the model called.
    FunctionCall(FunctionCall),
    /// What a function answered.
    FunctionCallOutput(FunctionCallOutput),
}

impl Item {
    /// Its name, if it has one yet.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Message(message) => message.id.as_deref(),
            Self::FunctionCall(call) => call.id.as_deref(),
            Self::FunctionCallOutput(output) => output.id.as_deref(),
        }
    }

    /// Where its name stands.
    pub fn id_mut(&mut self) -> &mut Option<String> {
        match self {
            Self::Message(message) => &mut message.id,
            Self::FunctionCall(call) => &mut call.id,
            Self::FunctionCallOutput(output) => &mut output.id,
        }
    }

    /// Where its status stands.
    pub fn status_mut(&mut self) -> &mut Status {
        match self {
            Self::Message(message) => &mut message.status,
            Self::FunctionCall(call) => &mut call.status,
            Self::FunctionCallOutput(output) => &mut output.status,
        }
    }
}

/// Something said by one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// How far it is.
    #[serde(default, deserialize_with = "or_default")]
    pub status: Status,
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: Vec<Content>,
}

/// A function that the model called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// How far it is.
    #[serde(default, deserialize_with = "or_default")]
    pub status: Status,
    /// What the answer to it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The function.
    pub name: String,
    /// Its arguments, as JSON.
    pub arguments: String,
}

/// What a function answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCallOutput {
    /// Unique within the conversation; a client may choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `realtime.item`.
    #[serde(default, deserialize_with = "or_default")]
    pub object: ItemObject,
    /// How far it is.
    #[serde(default, deserialize_with = "or_default")]
    pub status: Status,
    /// Which call it answers.
    pub call_id: String,
    /// The answer, as free text.
    pub output: String,
}

/// Some clients write what they do not choose as `null`.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
    /// Sound of the model. Sound itself is not taken back: the transcript stands for it.
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

/// `conversation.item.truncate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncate {
    /// Which item.
    pub item_id: String,
    /// Which part of it; always 0.
    pub content_index: u32,
    /// How much of its sound remains. Clients compute it: fractions are cut off, and what is negative is 0.
    #[serde(deserialize_with = "milliseconds")]
    pub audio_end_ms: u64,
}

fn milliseconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    // `as` saturates.
    f64::deserialize(deserializer).map(|ms| ms as u64)
}

/// `conversation.item.truncated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncated {
    /// Which item.
    pub item_id: String,
    /// Which part of it; always 0.
    pub content_index: u32,
    /// How much of its sound remains.
    pub audio_end_ms: u64,
    /// What was done differently from what was asked.
    #[serde(default, skip_serializing_if = "Remarks::is_empty")]
    pub repartee: Remarks,
}

/// What Repartee has to say about an event of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remarks {
    /// For a person.
    pub warnings: Vec<String>,
}

impl Remarks {
    fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }
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
        let Item::Message(message) = serde_json::from_value(text).unwrap() else { panic!("a message") };
        assert_eq!(message.id, None);
        assert_eq!(message.content, [Content::InputText { text: "hi".into() }]);
        let text = json!({"type": "function_call", "id": null, "object": null, "status": null, "name": "f",
            "arguments": "{}"});
        let Item::FunctionCall(call) = serde_json::from_value(text).unwrap() else { panic!("a call") };
        assert_eq!((call.status, call.call_id), (Status::Completed, None));
    }

    #[test]
    fn positions_are_any_number() {
        for (written, read) in [("0", 0), ("1.9", 1), ("-3", 0), ("1e300", u64::MAX)] {
            let text = format!(r#"{{"item_id": "a", "content_index": 0, "audio_end_ms": {written}}}"#);
            assert_eq!(serde_json::from_str::<Truncate>(&text).unwrap().audio_end_ms, read);
        }
    }
}
