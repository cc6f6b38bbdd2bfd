//! `response.*`: one answer, its items, parts and pieces.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::item::{FunctionCall, FunctionCallOutput, Item, Message};
use super::literal;
use super::session::{AudioFormat, MaxTokens, Modality};

literal!(
    /// The `object` of a response.
    ResponseObject = "realtime.response"
);

/// `response.create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Create {
    /// What differs from the session's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Overrides>,
}

/// What one answer does differently. Absent and `null` both mean "as the session says".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// `["audio"]` or `["text"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_modalities: Option<Vec<Modality>>,
    /// Instructions for this answer alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Upper bound of text tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<MaxTokens>,
    /// `auto`, or `none` for an answer that leaves nothing behind in the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// What to answer in place of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<InputItem>>,
    /// Function tools for this answer alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or a function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Returned as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<OverrideAudio>,
}

/// One item of an answer's own input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputItem {
    /// An item of the conversation.
    ItemReference {
        /// Which.
        id: String,
    },
    /// Something said.
    Message(Message),
    /// A function that the model called.
    FunctionCall(FunctionCall),
    /// What a function answered.
    FunctionCallOutput(FunctionCallOutput),
}

/// See [`Overrides::audio`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverrideAudio {
    /// How the answer sounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OverrideOutput>,
}

/// See [`Overrides::audio`].
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
pub struct Cancel {
    /// Which one; absent for the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}

/// `response.created` and `response.done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The answer as it stands.
    pub response: Response,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Always `realtime.response`.
    pub object: ResponseObject,
    /// Unique.
    pub id: String,
    /// How far it is.
    pub status: Status,
    /// Why it ended, `null` before.
    pub status_details: Option<StatusDetails>,
    /// What it said.
    pub output: Vec<Item>,
    /// The conversation that it belongs to, `null` for an answer outside of it.
    pub conversation_id: Option<String>,
    /// `["audio"]` or `["text"]`.
    pub output_modalities: Vec<Modality>,
    /// Upper bound of text tokens.
    pub max_output_tokens: MaxTokens,
    /// How it sounds.
    pub audio: ResponseAudio,
    /// What it took, `null` before its end.
    pub usage: Option<Usage>,
    /// What the client put into `response.create`.
    pub metadata: Option<Map<String, Value>>,
}

/// See [`Response::audio`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseAudio {
    /// How it sounds.
    pub output: ResponseOutput,
}

/// See [`Response::audio`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseOutput {
    /// The format of the deltas.
    pub format: AudioFormat,
    /// The voice.
    pub voice: String,
}

/// How far an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is being made.
    InProgress,
    /// It is whole.
    Completed,
    /// It was stopped.
    Cancelled,
    /// It hit a limit.
    Incomplete,
    /// It could not be made.
    Failed,
}

impl Status {
    /// The word on the wire.
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

/// Why an answer ended as it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusDetails {
    /// The status again.
    #[serde(rename = "type")]
    pub kind: Status,
    /// Why it was cancelled or is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// Why an answer was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The caller began to speak.
    TurnDetected,
    /// The client asked.
    ClientCancelled,
    /// The limit of tokens was reached.
    MaxOutputTokens,
}

/// Why an answer failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `server_error` or `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// See [`super::ErrorKind`].
    pub code: Option<String>,
    /// For a person.
    pub message: String,
}

/// What an answer took. One codec frame counts as one audio token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All tokens.
    pub total_tokens: u32,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// The prompt's.
    pub input_token_details: InputTokens,
    /// The answer's.
    pub output_token_details: OutputTokens,
}

/// Tokens of the prompt by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputTokens {
    /// Text.
    pub text_tokens: u32,
    /// Sound.
    pub audio_tokens: u32,
    /// Of both, those that were in the cache.
    pub cached_tokens: u32,
}

/// Tokens of the answer by kind.
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
    /// Whose it is.
    pub response_id: String,
    /// Its place in the response.
    pub output_index: u32,
    /// The item.
    pub item: Item,
}

/// Where a part stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartName {
    /// Whose it is.
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
    /// Where it stands.
    #[serde(flatten)]
    pub name: PartName,
    /// The part.
    pub part: Part,
}

/// A part under the names that these two events use: `audio` and `text`, not `output_audio` and `output_text`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Sound; its bytes are in the deltas.
    Audio {
        /// What it says.
        transcript: String,
    },
    /// Text.
    Text {
        /// What it says.
        text: String,
    },
}

/// A piece of sound (base64) or text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Where it belongs.
    #[serde(flatten)]
    pub name: PartName,
    /// The piece.
    pub delta: String,
}

/// `response.output_audio_transcript.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptDone {
    /// Where it belongs.
    #[serde(flatten)]
    pub name: PartName,
    /// The whole of it.
    pub transcript: String,
}

/// `response.output_text.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDone {
    /// Where it belongs.
    #[serde(flatten)]
    pub name: PartName,
    /// The whole of it.
    pub text: String,
}

/// `response.function_call_arguments.delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDelta {
    /// Where it belongs.
    #[serde(flatten)]
    pub name: CallName,
    /// The next piece of the JSON text.
    pub delta: String,
}

/// `response.function_call_arguments.done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentsDone {
    /// Where it belongs.
    #[serde(flatten)]
    pub call: CallName,
    /// The function.
    pub name: String,
    /// The whole of it.
    pub arguments: String,
}

/// Where a function call stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallName {
    /// Whose it is.
    pub response_id: String,
    /// Its item.
    pub item_id: String,
    /// The item's place in the response.
    pub output_index: u32,
    /// What the answer to it will name.
    pub call_id: String,
}
