//! Responses slice by slice: during a turn, each slice becomes an item and gets a response, as in streaming translation. A
//! slice waits for the response to the previous slice, and includes the audio received meanwhile.

use std::time::Instant;

use repartee_protocol::session::TurnDetection;

use super::RealtimeSession;

impl RealtimeSession {
    /// True if the session responds to each slice of a turn.
    pub(super) fn answers_slices(&self) -> bool {
        self.config.repartee.slice_ms.is_some()
    }

    /// Ends a slice of the open turn and requests a response, if the slice is long enough and no response is active or queued.
    pub(super) fn end_slice(&mut self, now: Instant) {
        let answered = self.responses.iter().any(|response| response.in_conversation());
        if answered || self.has_queued_response() {
            return;
        }
        let Some(end_ms) = self.config.repartee.slice_ms.and_then(|ms| self.input.cut_ms(ms)) else { return };
        if !self.commit_turn(Some(end_ms)) {
            return;
        }
        self.open_turn(Some(end_ms), false);
        // Without turn detection, every slice gets a response.
        if self.config.audio.input.turn_detection.as_ref().is_none_or(TurnDetection::creates_response) {
            let request = self.default_request(now);
            self.start_or_queue(request);
        }
    }
}
