//! `response.*`: requests, responses, and the items, content parts and deltas of a response.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::ErrorBody;
use super::extension::EventExtension;
use super::fields::{name_of, within};
use super::item::{FunctionCall, FunctionCallOutput, Item, Message};
use super::literal::literal;
use super::session::{AudioFormat, MaxTokens, Modality};
use super::speech_synthesis::GivenTextRequest;

literal!(
    /// The `object` field of a response.
    ResponseObject = "realtime.response"
);

/// Payload of `response.create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseCreate {
    /// Overrides of the session configuration; see [`ResponseCreateParams`]. Kept as sent, so that a warning can name unsupported
    /// fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
}

impl ResponseCreate {
    /// Parses the overrides.
    ///
    /// # Errors
    ///
    /// The error names the invalid field.
    pub fn overrides(&self) -> Result<ResponseCreateParams, ErrorBody> {
        let Some(response) = &self.response else { return Ok(ResponseCreateParams::default()) };
        serde_path_to_error::deserialize(response).map_err(|error| ErrorBody::from_path(&error, "response"))
    }
}

/// Parameters of one response. Absent and `null` both select the session's value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseCreateParams {
    /// Output modality: `["audio"]` or `["text"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_modalities: Option<Vec<Modality>>,
    /// Instructions for this response only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Maximum number of text tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<MaxTokens>,
    /// Conversation of the response: `auto`, or `none` for an out-of-band response, which adds no item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Model input that replaces the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<InputItem>>,
    /// Function tools for this response only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// Tool choice: `auto` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// True if the response may contain more than one function call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Client metadata, returned unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Voice and audio format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<OverrideAudio>,
    /// Repartee's extension of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repartee: Option<GivenTextRequest>,
}

/// Types of input items.
const INPUTS: &[&str] = &["message", "function_call", "function_call_output", "item_reference"];

impl<'de> Deserialize<'de> for InputItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Reference {
            id: String,
        }
        let item = Value::deserialize(deserializer)?;
        let kind = name_of::<D::Error>(&item, "type", INPUTS)?;
        if kind == "item_reference" {
            return within(item).map(|Reference { id }| Self::ItemReference { id });
        }
        Ok(match Item::read::<D::Error>(kind, item)? {
            Item::Message(message) => Self::Message(message),
            Item::FunctionCall(call) => Self::FunctionCall(call),
            Item::FunctionCallOutput(output) => Self::FunctionCallOutput(output),
        })
    }
}

/// One item of [`ResponseCreateParams::input`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputItem {
    /// Reference to an item of the conversation.
    ItemReference {
        /// Id of the item.
        id: String,
    },
    /// Message of one role.
    Message(Message),
    /// Function call by the model.
    FunctionCall(FunctionCall),
    /// Result of a function call.
    FunctionCallOutput(FunctionCallOutput),
}

/// Audio settings of one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverrideAudio {
    /// Output audio settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OverrideOutput>,
}

/// Output audio settings of one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverrideOutput {
    /// Name of a voice, or an object with its `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<Value>,
    /// Audio format of the deltas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AudioFormat>,
}

/// Payload of `response.cancel`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseCancel {
    /// Id of the response; absent for the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}

/// Payload of `response.created` and `response.done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseEvent {
    /// Response in its current state.
    pub response: Response,
    /// Warnings about settings that are served differently.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

/// Response resource of the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Object type; always `realtime.response`.
    pub object: ResponseObject,
    /// Id of the response, `resp_...`.
    pub id: String,
    /// Status of the response.
    pub status: ResponseStatus,
    /// Reason of the end; `null` while in progress.
    pub status_details: Option<StatusDetails>,
    /// Output items; empty while in progress.
    pub output: Vec<Item>,
    /// Id of the conversation; `null` for an out-of-band response.
    pub conversation_id: Option<String>,
    /// Output modality: `["audio"]` or `["text"]`.
    pub output_modalities: Vec<Modality>,
    /// Maximum number of text tokens.
    pub max_output_tokens: MaxTokens,
    /// Effective audio settings.
    pub audio: ResponseAudio,
    /// Tokens used; `null` while in progress.
    pub usage: Option<ResponseUsage>,
    /// Client metadata from `response.create`.
    pub metadata: Option<Map<String, Value>>,
}

/// Effective audio settings of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseAudio {
    /// Output audio settings.
    pub output: ResponseOutput,
}

/// Effective output audio settings of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseOutput {
    /// Audio format of the deltas.
    pub format: AudioFormat,
    /// Name of the voice.
    pub voice: String,
}

/// Status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// Generation in progress.
    InProgress,
    /// Generation is complete.
    Completed,
    /// Cancelled by the client or by barge-in.
    Cancelled,
    /// Stopped by the token limit.
    Incomplete,
    /// Ended by an error.
    Failed,
}

impl ResponseStatus {
    /// Returns the value on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// Reason of the end of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDetails {
    /// Status of the response.
    #[serde(rename = "type")]
    pub kind: ResponseStatus,
    /// Reason of a cancelled or incomplete response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StatusReason>,
    /// Error of a failed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResponseError>,
}

/// Reason of a cancelled or incomplete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusReason {
    /// Barge-in: the caller started to speak.
    TurnDetected,
    /// Cancelled by the client.
    ClientCancelled,
    /// Token limit reached.
    MaxOutputTokens,
}

/// Error of a failed response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseError {
    /// Class of the error: `server_error` or `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Error code: [`super::ErrorKind::code`].
    pub code: Option<String>,
    /// Explanation for a person.
    pub message: String,
}

/// Tokens used by a response. One codec frame counts as one audio token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseUsage {
    /// Sum of input and output tokens.
    pub total_tokens: u32,
    /// Number of prompt tokens.
    pub input_tokens: u32,
    /// Number of generated tokens.
    pub output_tokens: u32,
    /// Prompt tokens by modality.
    pub input_token_details: ResponseInputTokens,
    /// Generated tokens by modality.
    pub output_token_details: OutputTokens,
}

/// Prompt tokens by modality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseInputTokens {
    /// Number of text tokens.
    pub text_tokens: u32,
    /// Number of audio tokens.
    pub audio_tokens: u32,
    /// Number of prompt tokens, text and audio, found in the KV cache.
    pub cached_tokens: u32,
}

/// Generated tokens by modality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTokens {
    /// Number of text tokens.
    pub text_tokens: u32,
    /// Number of codec frames.
    pub audio_tokens: u32,
}

/// Payload of `response.output_item.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputItem {
    /// Id of the response.
    pub response_id: String,
    /// Index of the item in the response.
    pub output_index: u32,
    /// Item in its current state.
    pub item: Item,
}

/// Location of a content part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    /// Id of the response.
    pub response_id: String,
    /// Id of the item.
    pub item_id: String,
    /// Index of the item in the response.
    pub output_index: u32,
    /// Index of the part in the item; always 0.
    pub content_index: u32,
}

/// Payload of `response.content_part.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentPart {
    /// Location of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// Content of the part.
    pub part: ContentPartBody,
}

/// Content part in `response.content_part.*`. These events name the types `audio` and `text`, not `output_audio` and
/// `output_text`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPartBody {
    /// Spoken part; the deltas carry the audio bytes.
    Audio {
        /// Transcript of the audio.
        transcript: String,
    },
    /// Part without audio.
    Text {
        /// Text of the part.
        text: String,
    },
}

/// Payload of the `delta` events of audio (base64), transcript and text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDelta {
    /// Location of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// Next piece of the content.
    pub delta: String,
}

/// Payload of `response.output_audio_transcript.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptDone {
    /// Location of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// Complete transcript of the part.
    pub transcript: String,
}

/// Payload of `response.output_text.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDone {
    /// Location of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// Complete text of the part.
    pub text: String,
}

/// Payload of `response.function_call_arguments.delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDelta {
    /// Location of the call.
    #[serde(flatten)]
    pub call: CallRef,
    /// Next piece of the JSON arguments.
    pub delta: String,
}

/// Payload of `response.function_call_arguments.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDone {
    /// Location of the call.
    #[serde(flatten)]
    pub call: CallRef,
    /// Name of the function.
    pub name: String,
    /// Complete JSON arguments.
    pub arguments: String,
}

/// Location of a function call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRef {
    /// Id of the response.
    pub response_id: String,
    /// Id of the item.
    pub item_id: String,
    /// Index of the item in the response.
    pub output_index: u32,
    /// Id of the call; its `function_call_output` repeats it.
    pub call_id: String,
}
