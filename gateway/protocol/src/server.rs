//! Server events and their wire names.

use serde::{Deserialize, Serialize};

use super::{decision, error, input_audio, item, output_audio, rate_limits, response, session, transcription};

/// A server event with its `event_id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerMessage {
    /// Id of the event, unique within the session.
    pub event_id: String,
    /// Payload of the event.
    #[serde(flatten)]
    pub event: ServerEvent,
}

/// All events that the server may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[allow(missing_docs, reason = "each variant is the event of its name; the types are documented")]
pub enum ServerEvent {
    #[serde(rename = "error")]
    Error(error::ErrorEvent),
    #[serde(rename = "session.created")]
    SessionCreated(session::SessionEvent),
    #[serde(rename = "session.updated")]
    SessionUpdated(session::SessionEvent),
    #[serde(rename = "input_audio_buffer.speech_started")]
    SpeechStarted(input_audio::SpeechStarted),
    #[serde(rename = "input_audio_buffer.speech_stopped")]
    SpeechStopped(input_audio::SpeechStopped),
    #[serde(rename = "input_audio_buffer.committed")]
    InputCommitted(input_audio::AudioCommitted),
    #[serde(rename = "input_audio_buffer.cleared")]
    InputCleared {},
    #[serde(rename = "input_audio_buffer.timeout_triggered")]
    TimeoutTriggered(input_audio::TimeoutTriggered),
    #[serde(rename = "input_audio_buffer.dtmf_event_received")]
    KeyReceived(input_audio::KeyReceived),
    #[serde(rename = "conversation.item.added")]
    ItemAdded(item::ItemAdded),
    #[serde(rename = "conversation.item.done")]
    ItemDone(item::ItemAdded),
    #[serde(rename = "conversation.item.deleted")]
    ItemDeleted(item::ItemRef),
    #[serde(rename = "conversation.item.retrieved")]
    ItemRetrieved(item::ItemRetrieved),
    #[serde(rename = "conversation.item.truncated")]
    ItemTruncated(item::ItemTruncated),
    #[serde(rename = "conversation.item.input_audio_transcription.delta")]
    TranscriptionDelta(transcription::TranscriptionDelta),
    #[serde(rename = "conversation.item.input_audio_transcription.completed")]
    TranscriptionCompleted(transcription::TranscriptionCompleted),
    #[serde(rename = "conversation.item.input_audio_transcription.failed")]
    TranscriptionFailed(transcription::TranscriptionFailed),
    #[serde(rename = "response.created")]
    ResponseCreated(response::ResponseEvent),
    #[serde(rename = "response.output_item.added")]
    OutputItemAdded(response::OutputItem),
    #[serde(rename = "response.output_item.done")]
    OutputItemDone(response::OutputItem),
    #[serde(rename = "response.content_part.added")]
    ContentPartAdded(response::ContentPart),
    #[serde(rename = "response.content_part.done")]
    ContentPartDone(response::ContentPart),
    #[serde(rename = "response.output_audio.delta")]
    AudioDelta(response::ContentDelta),
    #[serde(rename = "response.output_audio.done")]
    AudioDone(response::PartRef),
    #[serde(rename = "response.output_audio_transcript.delta")]
    TranscriptDelta(response::ContentDelta),
    #[serde(rename = "response.output_audio_transcript.done")]
    TranscriptDone(response::TranscriptDone),
    #[serde(rename = "response.output_text.delta")]
    TextDelta(response::ContentDelta),
    #[serde(rename = "response.output_text.done")]
    TextDone(response::TextDone),
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta(response::ArgumentsDelta),
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone(response::ArgumentsDone),
    #[serde(rename = "response.done")]
    ResponseDone(response::ResponseEvent),
    #[serde(rename = "output_audio_buffer.started")]
    OutputStarted(output_audio::ResponseRef),
    #[serde(rename = "output_audio_buffer.stopped")]
    OutputStopped(output_audio::ResponseRef),
    #[serde(rename = "output_audio_buffer.cleared")]
    OutputCleared(output_audio::ResponseRef),
    #[serde(rename = "rate_limits.updated")]
    RateLimitsUpdated(rate_limits::RateLimitsUpdated),
    #[serde(rename = "repartee.decision")]
    DecisionMade(decision::DecisionMade),
}

impl ServerEvent {
    /// Returns the event's `type` on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Error(_) => "error",
            Self::SessionCreated(_) => "session.created",
            Self::SessionUpdated(_) => "session.updated",
            Self::SpeechStarted(_) => "input_audio_buffer.speech_started",
            Self::SpeechStopped(_) => "input_audio_buffer.speech_stopped",
            Self::InputCommitted(_) => "input_audio_buffer.committed",
            Self::InputCleared {} => "input_audio_buffer.cleared",
            Self::TimeoutTriggered(_) => "input_audio_buffer.timeout_triggered",
            Self::KeyReceived(_) => "input_audio_buffer.dtmf_event_received",
            Self::ItemAdded(_) => "conversation.item.added",
            Self::ItemDone(_) => "conversation.item.done",
            Self::ItemDeleted(_) => "conversation.item.deleted",
            Self::ItemRetrieved(_) => "conversation.item.retrieved",
            Self::ItemTruncated(_) => "conversation.item.truncated",
            Self::TranscriptionDelta(_) => "conversation.item.input_audio_transcription.delta",
            Self::TranscriptionCompleted(_) => "conversation.item.input_audio_transcription.completed",
            Self::TranscriptionFailed(_) => "conversation.item.input_audio_transcription.failed",
            Self::ResponseCreated(_) => "response.created",
            Self::OutputItemAdded(_) => "response.output_item.added",
            Self::OutputItemDone(_) => "response.output_item.done",
            Self::ContentPartAdded(_) => "response.content_part.added",
            Self::ContentPartDone(_) => "response.content_part.done",
            Self::AudioDelta(_) => "response.output_audio.delta",
            Self::AudioDone(_) => "response.output_audio.done",
            Self::TranscriptDelta(_) => "response.output_audio_transcript.delta",
            Self::TranscriptDone(_) => "response.output_audio_transcript.done",
            Self::TextDelta(_) => "response.output_text.delta",
            Self::TextDone(_) => "response.output_text.done",
            Self::ArgumentsDelta(_) => "response.function_call_arguments.delta",
            Self::ArgumentsDone(_) => "response.function_call_arguments.done",
            Self::ResponseDone(_) => "response.done",
            Self::OutputStarted(_) => "output_audio_buffer.started",
            Self::OutputStopped(_) => "output_audio_buffer.stopped",
            Self::OutputCleared(_) => "output_audio_buffer.cleared",
            Self::RateLimitsUpdated(_) => "rate_limits.updated",
            Self::DecisionMade(_) => "repartee.decision",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_flat_and_reads_back() {
        let message = ServerMessage {
            event_id: "event_1".into(),
            event: ServerEvent::SpeechStarted(input_audio::SpeechStarted {
                audio_start_ms: 120,
                item_id: "item_1".into(),
            }),
        };
        let json = serde_json::to_value(&message).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"event_id": "event_1", "type": "input_audio_buffer.speech_started",
                "audio_start_ms": 120, "item_id": "item_1"})
        );
        assert_eq!(serde_json::from_value::<ServerMessage>(json).unwrap(), message);
    }

    #[test]
    fn kind_is_the_type_on_the_wire() {
        for event in [
            ServerEvent::InputCleared {},
            ServerEvent::KeyReceived(input_audio::KeyReceived { event: "#".to_owned(), received_at: 1 }),
            ServerEvent::RateLimitsUpdated(rate_limits::RateLimitsUpdated::default()),
            ServerEvent::DecisionMade(decision::DecisionMade::default()),
        ] {
            assert_eq!(serde_json::to_value(&event).unwrap()["type"], event.kind());
        }
    }
}
