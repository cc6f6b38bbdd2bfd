//! `input_audio_buffer.*`: the caller's audio and the detected turns. Offsets are in ms of audio received since the
//! session started.

use serde::{Deserialize, Serialize};

/// Payload of `input_audio_buffer.append`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioAppend {
    /// Base64 audio in the session's input format.
    pub audio: String,
}

/// Payload of `input_audio_buffer.speech_started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeechStarted {
    /// Start of the turn's audio, prefix padding included.
    pub audio_start_ms: u64,
    /// Id of the user item that the turn will become.
    pub item_id: String,
}

/// Payload of `input_audio_buffer.speech_stopped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeechStopped {
    /// End of the turn's audio.
    pub audio_end_ms: u64,
    /// Id of the user item that the turn becomes.
    pub item_id: String,
}

/// Payload of `input_audio_buffer.committed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioCommitted {
    /// Id of the item before it; `null` for the first.
    pub previous_item_id: Option<String>,
    /// Id of the new user item.
    pub item_id: String,
}

/// Payload of `input_audio_buffer.timeout_triggered`: the caller was silent for the idle timeout after the last
/// response. The silence becomes a user item and gets a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutTriggered {
    /// Start of the silence: the end of the last response.
    pub audio_start_ms: u64,
    /// End of the silence.
    pub audio_end_ms: u64,
    /// Id of the user item that the silence becomes.
    pub item_id: String,
}

/// Payload of `input_audio_buffer.dtmf_event_received`: the caller pressed a key of a telephone (RFC 4733). Once for each press.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyReceived {
    /// The key: `0` to `9`, `*`, `#`, `A` to `D`.
    pub event: String,
    /// Time of its arrival, in Unix seconds.
    pub received_at: u64,
}
