//! `output_audio_buffer.*`: what the caller hears, sent where the server owns the playout clock.

use serde::{Deserialize, Serialize};

/// `output_audio_buffer.started` (first packet left), `.stopped` (all was played), `.cleared` (the rest was dropped).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Whose sound it is.
    pub response_id: String,
}
