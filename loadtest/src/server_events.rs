//! Server events of the Realtime API (GA), parsed by hand as an independent client does: only those that a caller
//! needs.

use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::target::error_code;

/// A server event, reduced to the caller's needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The session exists.
    Created,
    /// The session's configuration was changed.
    Updated,
    /// The server noticed speech.
    SpeechStarted,
    /// The turn was committed.
    Committed,
    /// Sound over the websocket: 16-bit PCM in base64.
    Audio(String),
    /// Transcript of the response.
    Transcript(String),
    /// A response has ended, with status `completed`, `cancelled`, `incomplete` or `failed`.
    Done(String),
    /// Unplayed sound was dropped, over WebRTC.
    Cleared,
    /// A response was played to its end, over WebRTC.
    Stopped,
    /// An error, by its code.
    Error(String),
    /// Any other event.
    Other,
}

/// An event and its arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedEvent {
    /// The parsed event.
    pub event: Event,
    /// Arrival of the event.
    pub at: Instant,
}

impl Event {
    /// Parses a server event.
    ///
    /// # Errors
    /// `text` is not JSON.
    pub fn read(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("the server sent an event that is not JSON")?;
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
