//! `conversation.item.input_audio_transcription.*`: transcripts of the caller's speech.

use serde::{Deserialize, Serialize};

use super::error::ErrorBody;
use super::literal::literal;

literal!(
    /// The `type` field of a transcript's usage.
    UsageKind = "tokens"
);

/// Certainty that a growing transcript waits for: a longer delay takes more context into account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delay {
    /// Words come as soon as others follow them.
    #[serde(rename = "minimal")]
    Minimal,
    /// Words come when they were heard twice.
    #[serde(rename = "low")]
    Low,
    /// Words come when they were heard three times.
    #[default]
    #[serde(rename = "medium")]
    Medium,
    /// Words come when they were heard four times.
    #[serde(rename = "high")]
    High,
    /// Words come at the end of the turn.
    #[serde(rename = "xhigh")]
    VeryHigh,
}

/// Payload of `conversation.item.input_audio_transcription.delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionDelta {
    /// Id of the user item.
    pub item_id: String,
    /// Index of the content part; always 0.
    pub content_index: u32,
    /// Next piece of the transcript.
    pub delta: String,
}

/// Payload of `conversation.item.input_audio_transcription.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionCompleted {
    /// Id of the user item.
    pub item_id: String,
    /// Index of the content part; always 0.
    pub content_index: u32,
    /// Complete transcript of the item.
    pub transcript: String,
    /// Tokens used by the transcript.
    pub usage: TranscriptionUsage,
}

/// Payload of `conversation.item.input_audio_transcription.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionFailed {
    /// Id of the user item.
    pub item_id: String,
    /// Index of the content part; always 0.
    pub content_index: u32,
    /// Reason of the failure.
    pub error: ErrorBody,
}

/// Tokens used by a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionUsage {
    /// Unit of the usage; always `tokens`.
    #[serde(rename = "type")]
    pub kind: UsageKind,
    /// Sum of input and output tokens.
    pub total_tokens: u32,
    /// Number of prompt tokens.
    pub input_tokens: u32,
    /// Prompt tokens by modality.
    pub input_token_details: TranscriptionInputTokens,
    /// Number of transcript tokens.
    pub output_tokens: u32,
}

/// Prompt tokens by modality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionInputTokens {
    /// Number of text tokens.
    pub text_tokens: u32,
    /// Number of audio tokens.
    pub audio_tokens: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ServerEvent, ServerMessage};

    #[test]
    fn completed_is_as_published() {
        let usage = TranscriptionUsage {
            total_tokens: 22,
            input_tokens: 13,
            input_token_details: TranscriptionInputTokens { text_tokens: 0, audio_tokens: 13 },
            output_tokens: 9,
            ..TranscriptionUsage::default()
        };
        let event = ServerEvent::TranscriptionCompleted(TranscriptionCompleted {
            item_id: "item_1".into(),
            content_index: 0,
            transcript: "Hey.".into(),
            usage,
        });
        let kind = event.kind();
        assert_eq!(
            serde_json::to_value(ServerMessage { event_id: "event_1".into(), event }).unwrap(),
            json!({"event_id": "event_1", "type": "conversation.item.input_audio_transcription.completed",
                "item_id": "item_1", "content_index": 0, "transcript": "Hey.", "usage": {"type": "tokens",
                "total_tokens": 22, "input_tokens": 13, "input_token_details": {"text_tokens": 0, "audio_tokens": 13},
                "output_tokens": 9}})
        );
        assert_eq!(kind, "conversation.item.input_audio_transcription.completed");
    }
}
