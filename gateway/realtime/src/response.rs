//! Responses of a session by state, queued, speculative, active, playing, and their wire form.

use std::collections::VecDeque;
use std::time::Instant;

use repartee_engine_api::{Command, EngineUsage, Event, FinishReason, ItemId, Respond, ResponseId};
use repartee_media::tempo::Tempo;
use repartee_protocol::item::{FunctionCall, Item, ItemContent, ItemObject, ItemRole, ItemStatus, Message};
use repartee_protocol::response::{
    CallRef, ContentPartBody, OutputTokens, PartRef, Response, ResponseAudio, ResponseInputTokens, ResponseObject,
    ResponseOutput, ResponseStatus, ResponseUsage, StatusDetails, StatusReason,
};
use repartee_protocol::session::{MaxTokens, Modality};
use serde_json::{Map, Value};

use super::given_text::GivenText;

/// Active or queued response.
#[derive(Debug)]
pub(super) struct ActiveResponse {
    /// Engine id of the response.
    pub engine_id: ResponseId,
    /// Wire id of the response.
    pub id: String,
    /// Engine id of the response's item.
    pub item: ItemId,
    /// Id of the conversation; `None` for an out-of-band response.
    pub conversation_id: Option<String>,
    /// Last item of the conversation at the start of the response, `root` for none; the response's items follow it.
    pub previous_item_id: String,
    /// True if the response must not overlap with another exclusive one.
    pub exclusive: bool,
    /// Output modality: audio with a transcript, or text.
    pub modality: Modality,
    /// Maximum number of text tokens.
    pub max_tokens: MaxTokens,
    /// Format and voice of the audio.
    pub output: ResponseOutput,
    /// Client metadata from `response.create`.
    pub metadata: Option<Map<String, Value>>,
    /// Warnings about settings that are served differently; empty after the announcement.
    pub warnings: Vec<String>,
    /// True if more than one function call is allowed.
    pub parallel_calls: bool,
    /// Announced items, in order.
    pub outputs: Vec<ResponseItem>,
    /// Samples sent or queued for playout.
    pub samples: u64,
    /// Change of the speed of the model's audio: its duration divided by that of the samples.
    pub speed: f64,
    /// Changes that speed.
    pub tempo: Tempo,
    /// Reason of the stop, until the engine confirms it.
    pub stopping: Option<StatusReason>,
    /// True if the engine was told to stop after the first function call. The response completes when the engine confirms.
    pub stopped_at_call: bool,
    /// Heard part in ms, to which the response's item is truncated at the end.
    pub truncate_at: Option<u64>,
    /// Truncation positions that the client requested, in ms; each gets an event at the end.
    pub truncations: Vec<u64>,
    /// True if a client's `response.cancel` ends with this response.
    pub cancelled: bool,
    /// True if an item of the response was deleted; the engine's item is updated at the end.
    pub deleted: bool,
    /// Given text of the response.
    pub given_text: Option<GivenText>,
}

/// Queued response; it starts when the exclusive responses before it have ended.
#[derive(Debug)]
pub(super) struct QueuedResponse {
    pub response: ActiveResponse,
    /// Command that starts it.
    pub respond: Respond,
    /// Commands with the given text received so far.
    pub text: Vec<Command>,
    /// Start of the caller's wait.
    pub since: Instant,
}

impl QueuedResponse {
    /// True if the response belongs to the conversation. Such a response is not announced to the client while queued.
    pub fn in_conversation(&self) -> bool {
        self.response.in_conversation()
    }
}

/// Response started before the turn has surely ended.
#[derive(Debug)]
pub(super) struct SpeculativeResponse {
    /// Engine id of the turn's item.
    pub item: ItemId,
    /// The response, unknown to the client until the commit.
    pub response: ActiveResponse,
    /// Time of the abort without a decision.
    pub deadline: Instant,
    /// Events held back until the commit.
    pub held: VecDeque<Event>,
}

/// Response with unplayed audio.
#[derive(Debug)]
pub(super) struct PlayingResponse {
    pub response: ResponseId,
    pub response_id: String,
    pub item_id: String,
    /// True if the response belongs to the conversation.
    pub in_conversation: bool,
    /// True once the first audio was sent.
    pub started: bool,
    /// Estimated heard position, in ms.
    pub heard_ms: u64,
    /// Change of the speed of the model's audio.
    pub speed: f64,
    /// Position last reported to the engine, in ms.
    pub reported_ms: u64,
}

impl PlayingResponse {
    pub fn new(response: &ActiveResponse, part: &PartRef) -> Self {
        Self {
            response: response.engine_id,
            response_id: response.id.clone(),
            item_id: part.item_id.clone(),
            in_conversation: response.in_conversation(),
            started: false,
            heard_ms: 0,
            speed: response.speed,
            reported_ms: 0,
        }
    }
}

/// Output item of a response.
#[derive(Debug)]
pub(super) struct ResponseItem {
    /// Wire id of the item.
    pub id: String,
    pub body: ItemBody,
    /// Status of the item.
    pub status: ItemStatus,
}

/// Content of an output item so far.
#[derive(Debug)]
pub(super) enum ItemBody {
    /// Text, or the transcript of audio.
    Message(String),
    /// Function call by the model.
    Call {
        /// Engine's index of the call in the response.
        call: u32,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl ActiveResponse {
    /// True if the response belongs to the conversation.
    pub fn in_conversation(&self) -> bool {
        self.conversation_id.is_some()
    }

    /// Time at which its given text ends without further client events; `None` if it takes no more.
    pub fn text_deadline(&self) -> Option<Instant> {
        self.given_text.as_ref()?.deadline().filter(|_| self.stopping.is_none())
    }

    /// True if the conversation's item `id` is an output item of this response.
    pub fn owns(&self, id: &str) -> bool {
        self.in_conversation() && self.outputs.iter().any(|output| output.id == id)
    }

    /// Duration of the audio sent or queued for playout, in ms.
    pub fn audio_ms(&self, rate: u32) -> u64 {
        self.samples * 1_000 / u64::from(rate)
    }

    /// Returns the message and its output index; `None` before it exists.
    pub fn message(&self) -> Option<(usize, &ResponseItem)> {
        self.outputs.iter().enumerate().find(|(_, output)| matches!(output.body, ItemBody::Message(_)))
    }

    /// Returns the message text so far.
    pub fn text(&self) -> &str {
        match self.message() {
            Some((_, ResponseItem { body: ItemBody::Message(text), .. })) => text,
            _ => "",
        }
    }

    /// Returns the location of the message's content part; `None` before the message exists.
    pub fn part_ref(&self) -> Option<PartRef> {
        let (index, output) = self.message()?;
        let (response_id, item_id) = (self.id.clone(), output.id.clone());
        Some(PartRef { response_id, item_id, output_index: index as u32, content_index: 0 })
    }

    /// True if there is a function call.
    pub fn has_call(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output.body, ItemBody::Call { .. }))
    }

    /// Returns the location of the function call at `index`; `None` if it is not a call.
    pub fn call_ref(&self, index: usize) -> Option<CallRef> {
        let ResponseItem { id, body: ItemBody::Call { call_id, .. }, .. } = self.outputs.get(index)? else {
            return None;
        };
        let (response_id, item_id, call_id) = (self.id.clone(), id.clone(), call_id.clone());
        Some(CallRef { response_id, item_id, output_index: index as u32, call_id })
    }

    /// Returns the message as a content part.
    pub fn part(&self) -> ContentPartBody {
        let text = self.text().to_owned();
        match self.modality {
            Modality::Audio => ContentPartBody::Audio { transcript: text },
            Modality::Text => ContentPartBody::Text { text },
        }
    }

    /// Converts an output item to its wire form.
    pub fn output_item(&self, output: &ResponseItem) -> Item {
        let (id, object, status) = (Some(output.id.clone()), ItemObject::Value, output.status);
        match &output.body {
            ItemBody::Message(text) => {
                let content = match self.modality {
                    Modality::Audio => ItemContent::OutputAudio { transcript: Some(text.clone()) },
                    Modality::Text => ItemContent::OutputText { text: text.clone() },
                };
                // An item in progress has no parts yet: `response.content_part.added` announces them.
                let content = if status == ItemStatus::InProgress { Vec::new() } else { vec![content] };
                Item::Message(Message { id, object, status, role: ItemRole::Assistant, content })
            }
            ItemBody::Call { call_id, name, arguments, .. } => Item::FunctionCall(FunctionCall {
                id,
                object,
                status,
                call_id: Some(call_id.clone()),
                name: name.clone(),
                arguments: arguments.clone(),
            }),
        }
    }

    /// Converts the response to its wire form; `end` is `None` while it is in progress.
    pub fn to_wire(&self, end: Option<(StatusDetails, ResponseUsage)>) -> Response {
        let (status_details, usage) = end.unzip();
        let output = match &status_details {
            Some(_) => self.outputs.iter().map(|output| self.output_item(output)).collect(),
            None => Vec::new(),
        };
        Response {
            object: ResponseObject::Value,
            id: self.id.clone(),
            status: status_details.as_ref().map_or(ResponseStatus::InProgress, |details| details.kind),
            status_details,
            output,
            conversation_id: self.conversation_id.clone(),
            output_modalities: vec![self.modality],
            max_output_tokens: self.max_tokens,
            audio: ResponseAudio { output: self.output.clone() },
            usage,
            metadata: self.metadata.clone(),
        }
    }

    /// Returns the status and reason of the end, given the engine's reason.
    pub fn status_details(&self, reason: FinishReason) -> StatusDetails {
        let (kind, reason) = match (self.stopping, reason) {
            // Output after the stop is not sent, so the response counts as cancelled even if the engine completed it.
            (Some(reason), _) => (ResponseStatus::Cancelled, Some(reason)),
            (None, _) if self.stopped_at_call => (ResponseStatus::Completed, None),
            (None, FinishReason::Stop) => (ResponseStatus::Completed, None),
            (None, FinishReason::Length) => (ResponseStatus::Incomplete, Some(StatusReason::MaxOutputTokens)),
            (None, FinishReason::Cancelled) => (ResponseStatus::Cancelled, Some(StatusReason::ClientCancelled)),
        };
        StatusDetails { kind, reason, error: None }
    }
}

/// Converts the engine's usage to its wire form.
pub(super) fn usage(engine: &EngineUsage) -> ResponseUsage {
    let input_tokens = engine.input_text_tokens + engine.input_audio_tokens;
    let output_tokens = engine.output_text_tokens + engine.output_audio_frames;
    ResponseUsage {
        total_tokens: input_tokens + output_tokens,
        input_tokens,
        output_tokens,
        input_token_details: ResponseInputTokens {
            text_tokens: engine.input_text_tokens,
            audio_tokens: engine.input_audio_tokens,
            cached_tokens: engine.cached_tokens,
        },
        output_token_details: OutputTokens {
            text_tokens: engine.output_text_tokens,
            audio_tokens: engine.output_audio_frames,
        },
    }
}
