//! The Realtime API (GA) as an independent client reads it: only what a caller needs, by hand.

use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::target::error_code;

/// What the server reports, as far as a caller cares.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The session is there.
    Created,
    /// Its configuration was changed.
    Updated,
    /// The server noticed speech.
    SpeechStarted,
    /// The turn is complete.
    Committed,
    /// Sound over the websocket: 16-bit PCM in base64.
    Audio(String),
    /// What the response said, in words.
    Transcript(String),
    /// A response has ended: `completed`, `cancelled`, `incomplete` or `failed`.
    Done(String),
    /// Unplayed sound was dropped, over WebRTC.
    Cleared,
    /// A response was played to its end, over WebRTC.
    Stopped,
    /// Something went wrong; its code.
    Error(String),
    /// Anything else.
    Other,
}

/// An event and when it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedEvent {
    /// What.
    pub event: Event,
    /// When.
    pub at: Instant,
}

impl Event {
    /// Reads an event.
    pub fn read(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("the server sent an event that is no JSON")?;
        let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(match value["type"].as_str().unwrap_or_default() {
            "session.created" => Self::Created,
            "session.updated" => Self::Updated,
            "input_audio_buffer.speech_started" => Self::SpeechStarted,
            "input_audio_buffer.committed" => Self::Committed,
            "response.output_audio.delta" => Self::Audio(string(&value["delta"])),
            "response.output_audio_transcript.done" => Self::Transcript(string(&value["transcript"])),
            "response.done" => Self::Done(string(&value["response"]["status"])),
            "output_audio_buffer.cleared" => Self::Cleared,
            "output_audio_buffer.stopped" => Self::Stopped,
            "error" => Self::Error(error_code(text)),
            _ => Self::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read() {
        let read = |text| Event::read(text).unwrap();
        assert_eq!(read(r#"{"type": "session.created", "session": {}}"#), Event::Created);
        assert_eq!(read(r#"{"type": "rate_limits.updated", "rate_limits": []}"#), Event::Other);
        let done = r#"{"type": "response.done", "response": {"id": "resp_1", "status": "completed"}}"#;
        assert_eq!(read(done), Event::Done("completed".into()));
        let error = r#"{"type": "error", "error": {"type": "invalid_request_error", "code": "x", "message": "y"}}"#;
        assert_eq!(read(error), Event::Error("x".into()));
        assert!(Event::read("hello").is_err());
    }
}
