//! The idle timeout: a caller who has said nothing for so long after an answer gets another one. Silence is counted in audio
//! received, from the moment at which the answer was heard to its end.

use std::time::Instant;

use repartee_protocol::ServerEvent;
use repartee_protocol::input_audio::TimeoutTriggered;
use repartee_protocol::session::TurnDetection;

use super::{Core, Delivery, Effect};

/// Counts the silence after an answer.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// Whether an answer has ended and nobody has spoken since.
    armed: bool,
    /// Where the silence began, in ms of audio received; `None` while the answer is still being heard.
    since_ms: Option<u64>,
}

impl Idle {
    /// An answer was made to its end.
    pub fn answered(&mut self) {
        *self = Self { armed: true, since_ms: None };
    }

    /// Somebody speaks.
    pub fn disarm(&mut self) {
        *self = Self::default();
    }
}

impl Core {
    pub(super) fn idle_timeout_ms(&self) -> Option<u64> {
        match &self.config.audio.input.turn_detection {
            Some(TurnDetection::ServerVad(vad)) => vad.idle_timeout_ms.map(u64::from),
            _ => None,
        }
    }

    /// Looks at the silence after each piece of sound.
    pub(super) fn watch_silence(&mut self, now: Instant) {
        let Some(timeout_ms) = self.idle_timeout_ms().filter(|_| self.idle.armed) else { return };
        let sounding = match self.setup.delivery {
            Delivery::Paced => !self.playing.is_empty(),
            Delivery::Unpaced => !self.sounds_until.is_over(now),
        };
        let busy = sounding || !self.waiting.is_empty() || self.answers.iter().any(|answer| answer.exclusive);
        if busy || self.hearing.turn().is_some() {
            self.idle.since_ms = None;
            return;
        }
        let received_ms = self.hearing.received_ms();
        let since_ms = *self.idle.since_ms.get_or_insert(received_ms);
        if received_ms - since_ms < timeout_ms {
            return;
        }
        self.idle.disarm();
        let item_id = self.new_item_id();
        let slices = self.hearing.open(item_id.clone(), Some(since_ms));
        self.append(slices);
        let (audio_start_ms, audio_end_ms) = (since_ms, received_ms);
        self.send(ServerEvent::TimeoutTriggered(TimeoutTriggered { audio_start_ms, audio_end_ms, item_id }));
        self.end_turn(None);
        self.effects.push(Effect::EndTurn);
        let asked = self.usual_answer(now);
        self.respond_when_free(asked);
    }
}
