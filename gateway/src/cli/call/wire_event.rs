//! Fields of a call's events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::error::CallError;

/// Event with a piece of the microphone's sound.
pub(super) fn append(bytes: &[u8]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(bytes)})
}

/// Type of an event.
pub(super) fn kind(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_default()
}

/// Bytes of an event's sound.
pub(super) fn sound(event: &Value) -> Result<Vec<u8>, CallError> {
    STANDARD
        .decode(event["delta"].as_str().unwrap_or_default())
        .map_err(|_| CallError::NotRealtime("sound that is no base64"))
}
