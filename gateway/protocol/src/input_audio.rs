//! `input_audio_buffer.*`: the caller's audio and the turns detected in it. Offsets count audio received in this session.

use serde::{Deserialize, Serialize};

/// `input_audio_buffer.append`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioAppend {
    /// Base64 of audio in the session's input format.
    pub audio: String,
}

/// `input_audio_buffer.speech_started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeechStarted {
    /// Where the turn's audio begins, prefix padding included.
    pub audio_start_ms: u64,
    /// The user item that the turn will become.
    pub item_id: String,
}

/// `input_audio_buffer.speech_stopped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeechStopped {
    /// Where the turn's audio ends.
    pub audio_end_ms: u64,
    /// The user item that the turn becomes.
    pub item_id: String,
}

/// `input_audio_buffer.committed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioCommitted {
    /// The item before it, `null` for the first.
    pub previous_item_id: Option<String>,
    /// The user item that was made.
    pub item_id: String,
}

/// `input_audio_buffer.timeout_triggered`: the caller was silent for the idle timeout after the last response. The silence
/// becomes a user item and gets a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutTriggered {
    /// Where the silence begins: the end of the last response.
    pub audio_start_ms: u64,
    /// Where it ends.
    pub audio_end_ms: u64,
    /// The user item that it becomes.
    pub item_id: String,
}
