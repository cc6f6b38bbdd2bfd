//! Out-of-band responses: each has a slot of its own, besides the session's.

use repartee_engine_api::ResponseId;

use super::Session;
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

impl Session {
    /// Slots of the session's out-of-band responses.
    pub fn out_of_band_slots(&self) -> Vec<usize> {
        self.out_of_band.iter().map(|response| response.slot).collect()
    }

    /// Adds a requested response in `slot`.
    pub(super) fn add_out_of_band(&mut self, slot: usize, pending: PendingResponse) {
        self.out_of_band.push(OutOfBandResponse { slot, waiting: Some(pending), active: None });
    }

    /// Removes the active response in `slot`. The scheduler frees the slot when it finds that no response has it.
    pub(super) fn remove_out_of_band(&mut self, slot: usize) -> Option<ActiveResponse> {
        let at = self.out_of_band.iter().position(|response| response.slot == slot && response.active.is_some())?;
        self.out_of_band.remove(at).active
    }
}
