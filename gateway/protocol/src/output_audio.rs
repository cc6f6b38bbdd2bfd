//! `output_audio_buffer.*`: playout of responses, sent if the server owns the playout clock.

use serde::{Deserialize, Serialize};

/// Payload of `output_audio_buffer.started` (first packet sent), `.stopped` (all played) and `.cleared` (unplayed audio
/// dropped).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseRef {
    /// Id of the response.
    pub response_id: String,
}
