//! A transcript that follows the text of an audio item.

use repartee_engine_api::{ItemId, ResponseId};

/// Transcript that follows an item's text as it grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct FollowedText {
    /// Id of the transcript.
    pub response: ResponseId,
    /// The audio item.
    pub item: ItemId,
}
