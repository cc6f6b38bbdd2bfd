//! Complete text of an audio item that a recogniser heard.

use repartee_engine_api::TranscriptDetails;

/// Complete text that was heard.
#[derive(Debug, Clone, PartialEq)]
pub struct HeardText {
    /// Text of the item.
    pub text: String,
    /// Details of the text of a recording.
    pub details: Option<Box<TranscriptDetails>>,
}
