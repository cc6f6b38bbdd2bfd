//! Reports of the playout clock, and barge-in. Barge-in concerns unplayed audio, not active responses: generation usually
//! ends long before playback.

use std::time::{Duration, Instant};

use repartee_engine_api::Command;
use repartee_media::tempo::heard;
use repartee_protocol::output_audio::ResponseRef;
use repartee_protocol::response::StatusReason;
use repartee_protocol::session::TurnDetection;
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::response::PlayingResponse;
use super::{Delivery, Effect, PlayoutReport, RealtimeSession};

/// Scope of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterruptionScope {
    /// Only responses of the conversation; out-of-band responses continue when the caller speaks.
    Conversation,
    /// All spoken responses.
    All,
}

impl RealtimeSession {
    pub(super) fn playout(&mut self, report: PlayoutReport, now: Instant) {
        let (PlayoutReport::Started { response }
        | PlayoutReport::Position { response, .. }
        | PlayoutReport::Drained { response }) = report;
        let Some(index) = self.playing.iter().position(|playing| playing.response == response) else { return };
        let playing = &mut self.playing[index];
        match report {
            PlayoutReport::Started { .. } => {
                playing.started = true;
                let response_id = playing.response_id.clone();
                self.send(ServerEvent::OutputStarted(ResponseRef { response_id }));
            }
            PlayoutReport::Position { heard_ms, .. } => {
                // During a pause all sent audio becomes heard; after it, new audio is in flight again, so the report may be lower.
                playing.heard_ms = playing.heard_ms.max(heard_ms);
                let heard_ms = playing.heard_ms;
                // Reports once per codec frame: the engine's deadlines count codec frames.
                if heard_ms >= playing.reported_ms + self.setup.model.frame.as_millis() as u64 {
                    playing.reported_ms = heard_ms;
                    let position = Duration::from_millis(heard(playing.speed, heard_ms));
                    self.command(Command::Played { response, position, at: now });
                }
            }
            PlayoutReport::Drained { .. } => {
                if let Some(playing) = self.playing.remove(index).filter(|playing| playing.started) {
                    self.send(ServerEvent::OutputStopped(ResponseRef { response_id: playing.response_id }));
                }
            }
        }
    }

    /// True if the caller's voice interrupts playback. With responses to slices it does not: the caller keeps speaking.
    pub(super) fn is_interruptible(&self) -> bool {
        let detection = self.config.audio.input.turn_detection.as_ref();
        !self.answers_slices() && detection.is_some_and(TurnDetection::interrupts_response)
    }

    /// True if an interruptible response of the conversation plays on our playout clock, which can pause until barge-in is
    /// confirmed or dismissed.
    pub fn is_pausable(&self) -> bool {
        let interrupts = self.is_interruptible();
        let plays = self.playing.front().is_some_and(|playing| playing.started && playing.in_conversation);
        self.setup.delivery == Delivery::Paced && interrupts && plays
    }

    /// True if an interruptible response plays at a client without our playout clock, by the estimate of what it has got: such playback
    /// cannot pause, so an interruption is announced once it is sure.
    pub fn is_unpausable(&self, now: Instant) -> bool {
        self.setup.delivery == Delivery::Unpaced && self.is_interruptible() && !self.client_playback.is_over(now)
    }

    /// Pauses playout at a possible barge-in. The client gets no event until it is confirmed.
    pub(super) fn pause_playout(&mut self) {
        if self.is_pausable() {
            self.effects.push(Effect::PausePlayout);
        }
    }

    pub(super) fn clear_output(&mut self) -> Result<(), ErrorBody> {
        if self.setup.delivery == Delivery::Unpaced {
            let message =
                "the audio of a websocket session is played by the client: stop it there and truncate the item";
            return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("type"));
        }
        let before = self.effects.len();
        self.interrupt(StatusReason::ClientCancelled, InterruptionScope::All);
        let cleared = |effect: &Effect| matches!(effect, Effect::Send(message) if matches!(message.event, ServerEvent::OutputCleared(_)));
        if !self.effects[before..].iter().any(cleared) {
            // Nothing had begun to play. The client gets its answer all the same.
            let Some(response_id) = self.last_response.clone() else {
                return Err(ErrorBody::invalid(ErrorKind::InvalidValue, "there was no response yet: nothing plays"));
            };
            self.send(ServerEvent::OutputCleared(ResponseRef { response_id }));
        }
        Ok(())
    }

    /// Without a playout clock: ends the playback estimate, because the client drops unplayed audio.
    pub(super) fn clear_client_playback(&mut self) {
        if self.setup.delivery == Delivery::Unpaced {
            self.client_playback.end();
            self.effects.push(Effect::ClearPlayout);
        }
    }

    /// Drops the unplayed audio of these responses and sends `output_audio_buffer.cleared`. Other responses continue.
    fn drop_playing(&mut self, dropped: &[PlayingResponse]) {
        if dropped.is_empty() {
            return;
        }
        if self.playing.is_empty() {
            self.client_playback.end();
            self.effects.push(Effect::ClearPlayout);
        } else {
            self.effects.extend(dropped.iter().map(|playing| Effect::ClearResponse(playing.response)));
        }
        for playing in dropped.iter().filter(|playing| playing.started) {
            let response_id = playing.response_id.clone();
            self.send(ServerEvent::OutputCleared(ResponseRef { response_id }));
        }
    }

    /// Stops the audio of an item; returns the heard part in ms. `None` if the item has no unplayed audio.
    pub(super) fn stop_playing(&mut self, item_id: &str) -> Option<u64> {
        let index = self.playing.iter().position(|playing| playing.item_id == item_id)?;
        let playing = self.playing.remove(index)?;
        let heard_ms = playing.heard_ms;
        self.drop_playing(&[playing]);
        Some(heard_ms)
    }

    /// Interrupts (barge-in): stops responses and playout, and truncates items to the heard part. Without a playout clock the
    /// client truncates.
    pub(super) fn interrupt(&mut self, reason: StatusReason, scope: InterruptionScope) {
        let stops = |in_conversation| in_conversation || scope == InterruptionScope::All;
        self.drop_queued(reason);
        let all = std::mem::take(&mut self.playing).into_iter();
        let (playing, others): (Vec<_>, Vec<_>) = all.partition(|playing| stops(playing.in_conversation));
        self.playing = others.into();
        self.drop_playing(&playing);
        self.clear_client_playback();
        let paced = self.setup.delivery == Delivery::Paced;
        let mut stopped = Vec::new();
        for response in
            self.responses.iter_mut().filter(|response| response.exclusive && stops(response.in_conversation()))
        {
            if paced {
                let heard = playing.iter().find(|playing| playing.response == response.engine_id);
                response.truncate_at = response.truncate_at.or(Some(heard.map_or(0, |playing| playing.heard_ms)));
            }
            stopped.push(response.engine_id);
        }
        for response in &stopped {
            self.stop_response(*response, reason);
        }
        for playing in playing.iter().filter(|playing| !stopped.contains(&playing.response)) {
            self.truncate_to_heard(&playing.item_id, playing.heard_ms, &[], true);
        }
    }
}
