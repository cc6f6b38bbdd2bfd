//! Idle timeout: a caller who is silent for the configured time after a response gets another response. The timeout counts
//! received audio from the end of the response's playback.

use std::time::Instant;

use repartee_protocol::ServerEvent;
use repartee_protocol::input_audio::TimeoutTriggered;
use repartee_protocol::session::TurnDetection;

use super::{Delivery, Effect, RealtimeSession};

/// Timer of the silence after a response.
#[derive(Debug, Default)]
pub(super) struct IdleTimeout {
    /// True from the end of a response until the caller speaks.
    armed: bool,
    /// Start of the silence in ms of received audio; `None` while the response still plays.
    since_ms: Option<u64>,
}

impl IdleTimeout {
    /// Starts the timer at the end of a response.
    pub fn arm(&mut self) {
        *self = Self { armed: true, since_ms: None };
    }

    /// Stops the timer when the caller speaks.
    pub fn disarm(&mut self) {
        *self = Self::default();
    }
}

impl RealtimeSession {
    pub(super) fn idle_timeout_ms(&self) -> Option<u64> {
        match &self.config.audio.input.turn_detection {
            Some(TurnDetection::ServerVad(vad)) => vad.idle_timeout_ms.map(u64::from),
            _ => None,
        }
    }

    /// Checks the idle timeout after each piece of audio; when it expires, commits the silence and requests a response.
    pub(super) fn check_idle_timeout(&mut self, now: Instant) {
        let Some(timeout_ms) = self.idle_timeout_ms().filter(|_| self.idle.armed) else { return };
        let playing = match self.setup.delivery {
            Delivery::Paced => !self.playing.is_empty(),
            Delivery::Unpaced => !self.client_playback.is_over(now),
        };
        let busy = playing || !self.queued.is_empty() || self.responses.iter().any(|response| response.exclusive);
        if busy || self.input.turn().is_some() {
            self.idle.since_ms = None;
            return;
        }
        let received_ms = self.input.received_ms();
        let since_ms = *self.idle.since_ms.get_or_insert(received_ms);
        if received_ms - since_ms < timeout_ms {
            return;
        }
        self.idle.disarm();
        let item_id = self.new_item_id();
        let slices = self.input.begin_turn(item_id.clone(), Some(since_ms));
        self.append(slices);
        let (audio_start_ms, audio_end_ms) = (since_ms, received_ms);
        self.send(ServerEvent::TimeoutTriggered(TimeoutTriggered { audio_start_ms, audio_end_ms, item_id }));
        self.commit_turn(None);
        self.effects.push(Effect::ResetTurnDetector);
        let request = self.default_request(now);
        self.start_or_queue(request);
    }
}
