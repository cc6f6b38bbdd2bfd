//! Out-of-band responses: each has a slot of its own, besides the session's.

use repartee_engine_api::ResponseId;

use super::active_response::ActiveResponse;
use super::pending_response::PendingResponse;

/// An out-of-band response, pending or active.
pub struct OutOfBandResponse {
    /// Slot of the response in every stage.
    pub slot: usize,
    /// The request, until the response begins.
    pub(super) waiting: Option<PendingResponse>,
    /// The response, from its begin on.
    pub(super) active: Option<ActiveResponse>,
}

impl OutOfBandResponse {
    /// True if it runs in the background.
    pub(super) fn is_background(&self) -> bool {
        let active = self.active.as_ref().is_some_and(|active| active.request.background);
        active || self.waiting.as_ref().is_some_and(|pending| pending.request.background)
    }

    /// Id of the response.
    pub(super) fn response(&self) -> Option<ResponseId> {
        let active = self.active.as_ref().map(|active| active.request.response);
        active.or_else(|| self.waiting.as_ref().map(|pending| pending.request.response))
    }
}
