//! Echo of our playback in a call's input: what was played for the canceller, and levels for the guard.

use std::time::{Duration, Instant};

use repartee_media::call_echo::EchoFinding;
use repartee_media::decision::{Decision, DecisionKind, DecisionReason};
use repartee_media::vad;
use repartee_realtime::{Delivery, SessionInput};

use super::input_sound::ConvertedSound;
use super::running::{CallTask, now};
use super::{Transport, TransportError};

impl CallTask {
    /// Notes input of this length, which arrives now.
    pub(super) fn note_input(&mut self, length: Duration) {
        if let Some(echo) = self.input_pipeline.echo() {
            echo.note_input(length, now());
        }
    }

    /// Notes an answer's samples: a client without our playout clock plays them behind what it has, or at once.
    pub(super) fn note_answer<T: Transport>(&mut self, samples: &[f32], at: Instant) {
        self.echo_guard.push_playback(samples, at);
        if T::DELIVERY == Delivery::Unpaced
            && let Some(echo) = self.input_pipeline.echo()
            && let Err(error) = echo.queue_playback(samples, self.output_rate, at)
        {
            self.fail(&error.into());
        }
    }

    /// Drops the playback from now on.
    pub(super) fn clear_playback(&mut self) {
        self.echo_guard.clear(now());
        if let Some(echo) = self.input_pipeline.echo() {
            echo.clear_playback(now());
        }
    }

    /// Takes the next piece of the input, without the echo of what was played until now.
    pub(super) fn next_piece<T: Transport>(&mut self, transport: &mut T) -> Result<ConvertedSound, TransportError> {
        if let Some((frames, echo)) = transport.played_frames().zip(self.input_pipeline.echo()) {
            while let Some(due) = frames.pop(&mut self.played) {
                echo.push_playback(&self.played, frames.rate(), due)?;
            }
        }
        let is_recorded = self.echo_guard.is_ahead(now());
        let sound = self.input_pipeline.convert(is_recorded)?;
        self.note_cancelling();
        self.tell_finding(transport);
        // What waits behind the piece came later.
        let arrived = now().checked_sub(self.input_pipeline.decoded()).unwrap_or_else(now);
        self.echo_guard.push_input(sound.heard(), vad::RATE, arrived);
        Ok(sound)
    }

    /// Tells what the search for an echo has found, once it changes.
    fn tell_finding<T: Transport>(&mut self, transport: &mut T) {
        let Some(found) = self.input_pipeline.echo().map(|echo| echo.finding()) else { return };
        let kind = match found {
            EchoFinding::Unknown => return,
            EchoFinding::Echo => DecisionKind::EchoFound,
            EchoFinding::NoEcho => DecisionKind::EchoNotFound,
            EchoFinding::Ended => DecisionKind::EchoCancellingEnded,
        };
        if found != self.echo_finding {
            self.echo_finding = found;
            let decision = Decision::new(kind, DecisionReason::Playback, self.input_pipeline.received_ms());
            self.input(SessionInput::Decision(decision), transport);
        }
    }

    /// Updates the metrics of the canceller.
    fn note_cancelling(&mut self) {
        let Some(echo) = self.input_pipeline.echo() else { return };
        let (answer, cancels) = (echo.take_answer(), echo.is_aligned() && !echo.has_ended());
        if let Some(answer) = answer {
            self.metrics.echo.observe(answer.removed_db);
        }
        match cancels {
            true if self.cancelling.is_none() => self.cancelling = Some(self.metrics.echo.cancelling_call()),
            false => self.cancelling = None,
            true => {}
        }
    }
}
