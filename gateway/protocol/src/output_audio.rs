//! `output_audio_buffer.*`: playout of responses, sent where the server owns the playout clock.

use serde::{Deserialize, Serialize};

/// Payload of `output_audio_buffer.started` (first packet sent), `.stopped` (all played) and `.cleared` (the rest dropped).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseRef {
    /// The response that plays.
    pub response_id: String,
}
