//! One answer while it is being made, and how it looks on the wire.

use repartee_engine_api::{FinishReason, ItemId, ResponseId, Usage as EngineUsage};
use repartee_protocol::item::{Content, FunctionCall, Item, ItemObject, Message, Role, Status as ItemStatus};
use repartee_protocol::response::{
    CallName, InputTokens, OutputTokens, Part, PartName, Reason, Response, ResponseAudio, ResponseObject,
    ResponseOutput, Status, StatusDetails, Usage,
};
use repartee_protocol::session::{MaxTokens, Modality};
use serde_json::{Map, Value};

/// One answer while it is being made.
#[derive(Debug)]
pub(super) struct Answer {
    /// Its name in the engine.
    pub response: ResponseId,
    /// Its name on the wire.
    pub id: String,
    /// The engine's name of its item.
    pub item: ItemId,
    /// The conversation that it belongs to; `None` if it leaves nothing behind.
    pub conversation_id: Option<String>,
    /// The conversation's last item when it was begun (`root` if there was none), behind which its own come.
    pub follows: String,
    /// Whether no other answer can be spoken beside it.
    pub exclusive: bool,
    /// Sound with a transcript, or text.
    pub modality: Modality,
    /// Upper bound of text tokens.
    pub max_tokens: MaxTokens,
    /// How its sound is written.
    pub output: ResponseOutput,
    /// As the client gave it.
    pub metadata: Option<Map<String, Value>>,
    /// The items that the client knows of, in their order.
    pub outputs: Vec<Output>,
    /// Samples that were handed on to be played or sent.
    pub samples: u64,
    /// Why it is being stopped; the engine has not confirmed yet.
    pub stopping: Option<Reason>,
    /// How much of it was heard, in ms, if its item is to be cut there at the end.
    pub truncate_at: Option<u64>,
    /// The position that the client named for that.
    pub truncate_asked: Option<u64>,
    /// Its item was deleted: the engine is to forget it at the end.
    pub deleted: bool,
}

/// One item of an answer.
#[derive(Debug)]
pub(super) struct Output {
    /// Its name on the wire.
    pub id: String,
    pub body: Body,
    /// How far it is.
    pub status: ItemStatus,
}

/// What an item of an answer holds so far.
#[derive(Debug)]
pub(super) enum Body {
    /// What is said.
    Said(String),
    /// A function that is called.
    Call {
        /// Which call of the answer.
        call: u32,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl Answer {
    /// Whether its items are entries of the conversation.
    pub fn is_remembered(&self) -> bool {
        self.conversation_id.is_some()
    }

    /// Whether the item `id` of the conversation is one of its own.
    pub fn owns(&self, id: &str) -> bool {
        self.is_remembered() && self.outputs.iter().any(|output| output.id == id)
    }

    /// How much sound was handed on.
    pub fn made_ms(&self, rate: u32) -> u64 {
        self.samples * 1_000 / u64::from(rate)
    }

    /// What is said, if anything was said yet, and its place among the items.
    pub fn said(&self) -> Option<(usize, &Output)> {
        self.outputs.iter().enumerate().find(|(_, output)| matches!(output.body, Body::Said(_)))
    }

    /// All that was said so far.
    pub fn text(&self) -> &str {
        match self.said() {
            Some((_, Output { body: Body::Said(text), .. })) => text,
            _ => "",
        }
    }

    /// Where what is said stands.
    pub fn part_name(&self) -> Option<PartName> {
        let (index, output) = self.said()?;
        let (response_id, item_id) = (self.id.clone(), output.id.clone());
        Some(PartName { response_id, item_id, output_index: index as u32, content_index: 0 })
    }

    /// Where the function call `index` stands.
    pub fn call_name(&self, index: usize) -> Option<CallName> {
        let Output { id, body: Body::Call { call_id, .. }, .. } = self.outputs.get(index)? else { return None };
        let (response_id, item_id, call_id) = (self.id.clone(), id.clone(), call_id.clone());
        Some(CallName { response_id, item_id, output_index: index as u32, call_id })
    }

    /// What is said as a content part.
    pub fn part(&self) -> Part {
        let text = self.text().to_owned();
        match self.modality {
            Modality::Audio => Part::Audio { transcript: text },
            Modality::Text => Part::Text { text },
        }
    }

    /// An item as the wire shows it.
    pub fn output_item(&self, output: &Output) -> Item {
        let (id, object, status) = (Some(output.id.clone()), ItemObject::Value, output.status);
        match &output.body {
            Body::Said(text) => {
                let content = match self.modality {
                    Modality::Audio => Content::OutputAudio { transcript: Some(text.clone()) },
                    Modality::Text => Content::OutputText { text: text.clone() },
                };
                // An item that is still being made has no parts yet: they are announced one by one.
                let content = if status == ItemStatus::InProgress { Vec::new() } else { vec![content] };
                Item::Message(Message { id, object, status, role: Role::Assistant, content })
            }
            Body::Call { call_id, name, arguments, .. } => Item::FunctionCall(FunctionCall {
                id,
                object,
                status,
                call_id: Some(call_id.clone()),
                name: name.clone(),
                arguments: arguments.clone(),
            }),
        }
    }

    /// The response as the wire shows it.
    pub fn wire(&self, end: Option<(StatusDetails, Usage)>) -> Response {
        let (status_details, usage) = end.unzip();
        let output = match &status_details {
            Some(_) => self.outputs.iter().map(|output| self.output_item(output)).collect(),
            None => Vec::new(),
        };
        Response {
            object: ResponseObject::Value,
            id: self.id.clone(),
            status: status_details.as_ref().map_or(Status::InProgress, |details| details.kind),
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

    /// Why it ended, given what the engine says.
    pub fn end(&self, reason: FinishReason) -> StatusDetails {
        let (kind, reason) = match (self.stopping, reason) {
            // What came after the stop was not sent, so the answer counts as stopped even if it was complete.
            (Some(reason), _) => (Status::Cancelled, Some(reason)),
            (None, FinishReason::Stop) => (Status::Completed, None),
            (None, FinishReason::Length) => (Status::Incomplete, Some(Reason::MaxOutputTokens)),
            (None, FinishReason::Cancelled) => (Status::Cancelled, Some(Reason::ClientCancelled)),
        };
        StatusDetails { kind, reason, error: None }
    }
}

/// The engine's count under the wire's names.
pub(super) fn usage(engine: &EngineUsage) -> Usage {
    let input_tokens = engine.input_text_tokens + engine.input_audio_tokens;
    let output_tokens = engine.output_text_tokens + engine.output_audio_frames;
    Usage {
        total_tokens: input_tokens + output_tokens,
        input_tokens,
        output_tokens,
        input_token_details: InputTokens {
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
