//! One answer while it is being made, and how it looks on the wire.

use repartee_engine::session::{FinishReason, ItemId, ResponseId, Usage as EngineUsage};
use serde_json::{Map, Value};

use crate::protocol::item::Item;
use crate::protocol::response::{
    InputTokens, OutputTokens, Part, PartName, Reason, Response, ResponseAudio, ResponseObject, ResponseOutput, Status,
    StatusDetails, Usage,
};
use crate::protocol::session::{MaxTokens, Modality};

/// One answer while it is being made.
#[derive(Debug)]
pub(super) struct Answer {
    /// Its name in the engine.
    pub response: ResponseId,
    /// Its name on the wire.
    pub id: String,
    /// The engine's name of its item.
    pub item: ItemId,
    /// The wire's name of its item.
    pub item_id: String,
    /// Sound with a transcript, or text.
    pub modality: Modality,
    /// Upper bound of text tokens.
    pub max_tokens: MaxTokens,
    /// How its sound is written.
    pub output: ResponseOutput,
    /// As the client gave it.
    pub metadata: Option<Map<String, Value>>,
    /// What was sent of its text.
    pub text: String,
    /// Samples that were handed on to be played or sent.
    pub samples: u64,
    /// Whether the client knows its item.
    pub announced: bool,
    /// Why it is being stopped; the engine has not confirmed yet.
    pub stopping: Option<Reason>,
    /// How much of it was heard, in ms, if its item is to be cut there at the end.
    pub truncate_at: Option<u64>,
}

impl Answer {
    /// How much sound was handed on.
    pub fn made_ms(&self, rate: u32) -> u64 {
        self.samples * 1_000 / u64::from(rate)
    }

    /// Where its only part stands.
    pub fn part_name(&self) -> PartName {
        PartName { response_id: self.id.clone(), item_id: self.item_id.clone(), output_index: 0, content_index: 0 }
    }

    /// Its only part, with all that was said so far.
    pub fn part(&self) -> Part {
        let text = self.text.clone();
        match self.modality {
            Modality::Audio => Part::Audio { transcript: text },
            Modality::Text => Part::Text { text },
        }
    }

    /// The response as the wire shows it.
    pub fn wire(&self, end: Option<(StatusDetails, Usage)>, output: Vec<Item>) -> Response {
        let (status_details, usage) = end.unzip();
        Response {
            object: ResponseObject::Value,
            id: self.id.clone(),
            status: status_details.as_ref().map_or(Status::InProgress, |details| details.kind),
            status_details,
            output,
            conversation_id: None,
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
