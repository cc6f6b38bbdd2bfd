//! `input_audio_buffer.*`: the caller's sound and the turns found in it. Offsets count audio received in this session.

use serde::{Deserialize, Serialize};

/// `input_audio_buffer.append`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// Base64 of sound in the session's input format.
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
pub struct Committed {
    /// The item before it, `null` for the first.
    pub previous_item_id: Option<String>,
    /// The user item that was made.
    pub item_id: String,
}

/// `input_audio_buffer.timeout_triggered`: the caller has said nothing since the last answer was over. The silence becomes a
/// user item and is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutTriggered {
    /// Where the silence begins: the end of the last answer.
    pub audio_start_ms: u64,
    /// Where it ends: now.
    pub audio_end_ms: u64,
    /// The user item that it becomes.
    pub item_id: String,
}
