//! One response while it is active, and its form on the wire.

use repartee_engine_api::{FinishReason, ItemId, ResponseId, EngineUsage};
use repartee_protocol::item::{ItemContent, FunctionCall, Item, ItemObject, Message, ItemRole, ItemStatus};
use repartee_protocol::response::{
    CallRef, ResponseInputTokens, OutputTokens, ContentPartBody, PartRef, StatusReason, Response, ResponseAudio, ResponseObject,
    ResponseOutput, ResponseStatus, StatusDetails, ResponseUsage,
};
use repartee_protocol::session::{MaxTokens, Modality};
use serde_json::{Map, Value};

use super::speech_synthesis::GivenText;

/// An active response.
#[derive(Debug)]
pub(super) struct ActiveResponse {
    /// The engine's id of it.
    pub engine_id: ResponseId,
    /// Its id on the wire.
    pub id: String,
    /// The engine's id of its item.
    pub item: ItemId,
    /// The conversation that it belongs to; `None` for an out-of-band response.
    pub conversation_id: Option<String>,
    /// The conversation's last item when it began (`root` if there was none): its own items follow that one.
    pub previous_item_id: String,
    /// Whether it must not overlap with another exclusive response.
    pub exclusive: bool,
    /// Audio with a transcript, or text.
    pub modality: Modality,
    /// Upper bound of text tokens.
    pub max_tokens: MaxTokens,
    /// Format and voice of its audio.
    pub output: ResponseOutput,
    /// As given in `response.create`.
    pub metadata: Option<Map<String, Value>>,
    /// What is served differently from what was asked, until the client was told.
    pub warnings: Vec<String>,
    /// Whether it may hold more than one function call.
    pub parallel_calls: bool,
    /// The items that the client was told of, in order.
    pub outputs: Vec<ResponseItem>,
    /// Samples handed on to be played or sent.
    pub samples: u64,
    /// Why it is being stopped, until the engine confirms.
    pub stopping: Option<StatusReason>,
    /// Whether the engine was told to stop after the first function call. It completes once the engine confirms.
    pub stopped_at_call: bool,
    /// Where its item is to be truncated at the end: how much of it was heard, in ms.
    pub truncate_at: Option<u64>,
    /// The position that the client gave for that.
    pub truncate_requested: Option<u64>,
    /// One of its items was deleted: it goes from the engine's at the end.
    pub deleted: bool,
    /// The given text that it reads.
    pub reading: Option<GivenText>,
}

/// One item of a response.
#[derive(Debug)]
pub(super) struct ResponseItem {
    /// Its id on the wire.
    pub id: String,
    pub body: ItemBody,
    /// Its state.
    pub status: ItemStatus,
}

/// Content of an item so far.
#[derive(Debug)]
pub(super) enum ItemBody {
    /// Text, or the transcript of audio.
    Message(String),
    /// A function call.
    Call {
        /// Index of the call in the response.
        call: u32,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl ActiveResponse {
    /// Whether its items belong to the conversation.
    pub fn in_conversation(&self) -> bool {
        self.conversation_id.is_some()
    }

    /// Whether the conversation's item `id` is one of its own.
    pub fn owns(&self, id: &str) -> bool {
        self.in_conversation() && self.outputs.iter().any(|output| output.id == id)
    }

    /// Duration of the audio handed on, in ms.
    pub fn audio_ms(&self, rate: u32) -> u64 {
        self.samples * 1_000 / u64::from(rate)
    }

    /// Its message and its index among the items, if there is one yet.
    pub fn message(&self) -> Option<(usize, &ResponseItem)> {
        self.outputs.iter().enumerate().find(|(_, output)| matches!(output.body, ItemBody::Message(_)))
    }

    /// Text of its message so far.
    pub fn text(&self) -> &str {
        match self.message() {
            Some((_, ResponseItem { body: ItemBody::Message(text), .. })) => text,
            _ => "",
        }
    }

    /// Address of its message's content part.
    pub fn part_ref(&self) -> Option<PartRef> {
        let (index, output) = self.message()?;
        let (response_id, item_id) = (self.id.clone(), output.id.clone());
        Some(PartRef { response_id, item_id, output_index: index as u32, content_index: 0 })
    }

    /// Whether it holds a function call.
    pub fn has_call(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output.body, ItemBody::Call { .. }))
    }

    /// Address of the function call at `index`.
    pub fn call_ref(&self, index: usize) -> Option<CallRef> {
        let ResponseItem { id, body: ItemBody::Call { call_id, .. }, .. } = self.outputs.get(index)? else { return None };
        let (response_id, item_id, call_id) = (self.id.clone(), id.clone(), call_id.clone());
        Some(CallRef { response_id, item_id, output_index: index as u32, call_id })
    }

    /// Its message as a content part.
    pub fn part(&self) -> ContentPartBody {
        let text = self.text().to_owned();
        match self.modality {
            Modality::Audio => ContentPartBody::Audio { transcript: text },
            Modality::Text => ContentPartBody::Text { text },
        }
    }

    /// An item in its form on the wire.
    pub fn output_item(&self, output: &ResponseItem) -> Item {
        let (id, object, status) = (Some(output.id.clone()), ItemObject::Value, output.status);
        match &output.body {
            ItemBody::Message(text) => {
                let content = match self.modality {
                    Modality::Audio => ItemContent::OutputAudio { transcript: Some(text.clone()) },
                    Modality::Text => ItemContent::OutputText { text: text.clone() },
                };
                // The parts of an item in progress are announced one by one.
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

    /// The response in its form on the wire; `end` once it has ended.
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

    /// Why it ended, given the engine's reason.
    pub fn status_details(&self, reason: FinishReason) -> StatusDetails {
        let (kind, reason) = match (self.stopping, reason) {
            // What came after the stop was not sent, so it counts as cancelled even if the engine had completed it.
            (Some(reason), _) => (ResponseStatus::Cancelled, Some(reason)),
            (None, _) if self.stopped_at_call => (ResponseStatus::Completed, None),
            (None, FinishReason::Stop) => (ResponseStatus::Completed, None),
            (None, FinishReason::Length) => (ResponseStatus::Incomplete, Some(StatusReason::MaxOutputTokens)),
            (None, FinishReason::Cancelled) => (ResponseStatus::Cancelled, Some(StatusReason::ClientCancelled)),
        };
        StatusDetails { kind, reason, error: None }
    }
}

/// The engine's usage in its form on the wire.
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
