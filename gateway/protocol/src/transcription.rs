//! `conversation.item.input_audio_transcription.*`: what the caller said, as text.

use serde::{Deserialize, Serialize};

use super::error::ErrorBody;
use super::literal;

literal!(
    /// The `type` of a transcript's usage.
    UsageKind = "tokens"
);

/// `conversation.item.input_audio_transcription.delta`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionDelta {
    /// The user item.
    pub item_id: String,
    /// The part of it; always 0.
    pub content_index: u32,
    /// The next piece.
    pub delta: String,
}

/// `conversation.item.input_audio_transcription.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionCompleted {
    /// The user item.
    pub item_id: String,
    /// The part of it; always 0.
    pub content_index: u32,
    /// The whole transcript.
    pub transcript: String,
    /// What it took.
    pub usage: TranscriptionUsage,
}

/// `conversation.item.input_audio_transcription.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionFailed {
    /// The user item.
    pub item_id: String,
    /// The part of it; always 0.
    pub content_index: u32,
    /// Why there is no transcript.
    pub error: ErrorBody,
}

/// Tokens used by a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionUsage {
    /// Always `tokens`.
    #[serde(rename = "type")]
    pub kind: UsageKind,
    /// All tokens.
    pub total_tokens: u32,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// The prompt's by kind.
    pub input_token_details: TranscriptionInputTokens,
    /// Tokens of the transcript.
    pub output_tokens: u32,
}

/// Tokens of the prompt by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptionInputTokens {
    /// Text.
    pub text_tokens: u32,
    /// Audio.
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
