//! Slice by slice: while a turn goes on, each slice of it becomes an item of its own and is answered, as in streaming translation. A
//! slice waits until the one before it is answered, and is longer by what came meanwhile.

use std::time::Instant;

use repartee_protocol::session::TurnDetection;

use super::RealtimeSession;

impl RealtimeSession {
    /// Whether turns are answered slice by slice.
    pub(super) fn answers_slices(&self) -> bool {
        self.config.repartee.slice_ms.is_some()
    }

    /// Ends a slice of the open turn and answers it, if it is long enough and nothing is being answered.
    pub(super) fn end_slice(&mut self, now: Instant) {
        let answered = self.responses.iter().any(|response| response.in_conversation());
        if answered || self.has_queued_response() {
            return;
        }
        let Some(end_ms) = self.config.repartee.slice_ms.and_then(|ms| self.input.cut_ms(ms)) else { return };
        if !self.commit_turn(Some(end_ms)) {
            return;
        }
        let item_id = self.new_item_id();
        let slices = self.input.begin_turn(item_id, Some(end_ms));
        self.append(slices);
        // Without turn detection the client has asked for nothing else.
        if self.config.audio.input.turn_detection.as_ref().is_none_or(TurnDetection::creates_response) {
            let request = self.default_request(now);
            self.start_or_queue(request);
        }
    }
}
