//! `response.*`: one response, its items, parts and deltas.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ErrorBody;
use super::extension::EventExtension;
use super::item::{FunctionCall, FunctionCallOutput, Item, Message};
use super::literal;
use super::speech_synthesis::GivenTextRequest;
use super::session::{AudioFormat, MaxTokens, Modality};

literal!(
    /// The `object` of a response.
    ResponseObject = "realtime.response"
);

/// `response.create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseCreate {
    /// What differs from the session's configuration: [`Overrides`]. Kept as sent, so that fields that are not served can be
    /// named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
}

impl ResponseCreate {
    /// The parameters. The error names the wrong field.
    pub fn overrides(&self) -> Result<ResponseCreateParams, ErrorBody> {
        let Some(response) = &self.response else { return Ok(ResponseCreateParams::default()) };
        serde_path_to_error::deserialize(response).map_err(|error| ErrorBody::from_path(&error, "response"))
    }
}

/// Parameters of one response. Absent and `null` both mean the session's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseCreateParams {
    /// `["audio"]` or `["text"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_modalities: Option<Vec<Modality>>,
    /// Instructions for this response alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Upper bound of text tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<MaxTokens>,
    /// `auto`, or `none` for an out-of-band response: it adds no item to the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Input in place of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<InputItem>>,
    /// Function tools for this response alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// `auto` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Whether the response may hold more than one function call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Returned as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Voice and format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<OverrideAudio>,
    /// What Repartee adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repartee: Option<GivenTextRequest>,
}

/// One item of [`Overrides::input`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputItem {
    /// An item of the conversation.
    ItemReference {
        /// Its id.
        id: String,
    },
    /// A message of one role.
    Message(Message),
    /// A function call of the model.
    FunctionCall(FunctionCall),
    /// The result of a function call.
    FunctionCallOutput(FunctionCallOutput),
}

/// Audio settings of one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverrideAudio {
    /// Settings of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OverrideOutput>,
}

/// Output audio settings of one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverrideOutput {
    /// A voice's name, or an object with its `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<Value>,
    /// Format of the deltas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AudioFormat>,
}

/// `response.cancel`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseCancel {
    /// The response; absent for the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}

/// `response.created` and `response.done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseEvent {
    /// The response in its present state.
    pub response: Response,
    /// Repartee's extension of the event.
    #[serde(default, skip_serializing_if = "EventExtension::is_empty")]
    pub repartee: EventExtension,
}

/// One response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Always `realtime.response`.
    pub object: ResponseObject,
    /// Its id, `resp_...`.
    pub id: String,
    /// Its state.
    pub status: ResponseStatus,
    /// Why it ended; `null` before its end.
    pub status_details: Option<StatusDetails>,
    /// Its items; empty before its end.
    pub output: Vec<Item>,
    /// The conversation that it belongs to; `null` for an out-of-band response.
    pub conversation_id: Option<String>,
    /// `["audio"]` or `["text"]`.
    pub output_modalities: Vec<Modality>,
    /// Upper bound of text tokens.
    pub max_output_tokens: MaxTokens,
    /// Audio settings in effect.
    pub audio: ResponseAudio,
    /// Tokens used; `null` before its end.
    pub usage: Option<ResponseUsage>,
    /// As given in `response.create`.
    pub metadata: Option<Map<String, Value>>,
}

/// Audio settings in effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseAudio {
    /// Settings of the output.
    pub output: ResponseOutput,
}

/// Output audio settings in effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseOutput {
    /// The format of the deltas.
    pub format: AudioFormat,
    /// The voice.
    pub voice: String,
}

/// State of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// Being generated.
    InProgress,
    /// Complete.
    Completed,
    /// Cancelled by the client or by barge-in.
    Cancelled,
    /// Stopped by a limit.
    Incomplete,
    /// Ended by an error.
    Failed,
}

impl ResponseStatus {
    /// The value on the wire.
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

/// Why a response ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDetails {
    /// The status again.
    #[serde(rename = "type")]
    pub kind: ResponseStatus,
    /// Why it was cancelled or is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StatusReason>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResponseError>,
}

/// Why a response was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusReason {
    /// The caller began to speak.
    TurnDetected,
    /// The client cancelled it.
    ClientCancelled,
    /// The limit of tokens was reached.
    MaxOutputTokens,
}

/// Error of a failed response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseError {
    /// `server_error` or `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// [`super::ErrorKind::code`].
    pub code: Option<String>,
    /// Explanation for a person.
    pub message: String,
}

/// Tokens used by a response. One codec frame counts as one audio token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseUsage {
    /// All tokens.
    pub total_tokens: u32,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// Tokens of the response.
    pub output_tokens: u32,
    /// The prompt's by kind.
    pub input_token_details: ResponseInputTokens,
    /// The response's by kind.
    pub output_token_details: OutputTokens,
}

/// Tokens of the prompt by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseInputTokens {
    /// Text.
    pub text_tokens: u32,
    /// Audio.
    pub audio_tokens: u32,
    /// Of both, those that were in the cache.
    pub cached_tokens: u32,
}

/// Tokens of the response by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTokens {
    /// Text.
    pub text_tokens: u32,
    /// Codec frames.
    pub audio_tokens: u32,
}

/// `response.output_item.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputItem {
    /// Its response.
    pub response_id: String,
    /// Its place in the response.
    pub output_index: u32,
    /// The item.
    pub item: Item,
}

/// Address of a content part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    /// Its response.
    pub response_id: String,
    /// Its item.
    pub item_id: String,
    /// The item's place in the response.
    pub output_index: u32,
    /// The part's place in the item; always 0.
    pub content_index: u32,
}

/// `response.content_part.added` and `.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentPart {
    /// Address of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// The part.
    pub part: ContentPartBody,
}

/// A part under the names that these two events use: `audio` and `text`, not `output_audio` and `output_text`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPartBody {
    /// Audio; its bytes are in the deltas.
    Audio {
        /// Its text.
        transcript: String,
    },
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

/// Payload of the `delta` events of audio (base64), transcript and text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDelta {
    /// Address of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// What follows the deltas before.
    pub delta: String,
}

/// `response.output_audio_transcript.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptDone {
    /// Address of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// The whole transcript.
    pub transcript: String,
}

/// `response.output_text.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDone {
    /// Address of the part.
    #[serde(flatten)]
    pub part_ref: PartRef,
    /// The whole text.
    pub text: String,
}

/// `response.function_call_arguments.delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDelta {
    /// Address of the call.
    #[serde(flatten)]
    pub call: CallRef,
    /// The next piece of the JSON text.
    pub delta: String,
}

/// `response.function_call_arguments.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDone {
    /// Address of the call.
    #[serde(flatten)]
    pub call: CallRef,
    /// The function.
    pub name: String,
    /// The whole JSON text.
    pub arguments: String,
}

/// Address of a function call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRef {
    /// Its response.
    pub response_id: String,
    /// Its item.
    pub item_id: String,
    /// The item's place in the response.
    pub output_index: u32,
    /// The id that its `function_call_output` repeats.
    pub call_id: String,
}
