//! Playback: the reports of the playout clock, and barge-in. Barge-in is about audio that has not played yet, not about an
//! active response: generation usually ends long before playback.

use std::time::{Duration, Instant};

use repartee_engine_api::{Command, ResponseId};
use repartee_protocol::output_audio::ResponseRef;
use repartee_protocol::response::{PartRef, StatusReason};
use repartee_protocol::session::TurnDetection;
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::response::ActiveResponse;
use super::{RealtimeSession, Delivery, Effect, PlayoutReport};

/// A response with audio that has not played yet.
#[derive(Debug)]
pub(super) struct PlayingResponse {
    response: ResponseId,
    response_id: String,
    item_id: String,
    /// Whether it belongs to the conversation.
    in_conversation: bool,
    /// Whether its first audio has left.
    started: bool,
    /// Estimated to have reached the ear so far.
    heard_ms: u64,
    /// Position last reported to the engine.
    reported_ms: u64,
}

impl PlayingResponse {
    pub fn new(response: &ActiveResponse, part: &PartRef) -> Self {
        Self {
            response: response.engine_id,
            response_id: response.id.clone(),
            item_id: part.item_id.clone(),
            in_conversation: response.in_conversation(),
            started: false,
            heard_ms: 0,
            reported_ms: 0,
        }
    }
}

/// When a client without a playout clock of ours has played all audio sent, if it plays at once and without gaps.
#[derive(Debug, Default)]
pub(super) struct ClientPlayback(Option<Instant>);

impl ClientPlayback {
    /// More audio was sent.
    pub fn extend(&mut self, samples: u64, rate: u32, now: Instant) {
        let from = self.0.map_or(now, |until| until.max(now));
        self.0 = Some(from + Duration::from_micros(samples * 1_000_000 / u64::from(rate.max(1))));
    }

    /// The client drops what has not played.
    pub fn end(&mut self) {
        self.0 = None;
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.0.is_none_or(|until| until <= now)
    }
}

/// What an interruption stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterruptionScope {
    /// The responses of the conversation: the caller speaks, and out-of-band responses are not part of the talk.
    Conversation,
    /// Everything that is spoken.
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
                // During a pause all that was sent is heard; after it, what is sent is in flight again.
                playing.heard_ms = playing.heard_ms.max(heard_ms);
                let heard_ms = playing.heard_ms;
                // The engine's deadlines are in codec frames.
                if heard_ms >= playing.reported_ms + self.setup.model.frame.as_millis() as u64 {
                    playing.reported_ms = heard_ms;
                    let position = Duration::from_millis(heard_ms);
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

    /// Whether the caller's voice interrupts. Who is answered slice by slice speaks on while the answers play.
    pub(super) fn is_interruptible(&self) -> bool {
        let detection = self.config.audio.input.turn_detection.as_ref();
        !self.answers_slices() && detection.is_some_and(TurnDetection::interrupts_response)
    }

    /// Whether a response plays that the caller may interrupt, and that can be paused until it is known whether the caller does.
    pub fn is_pausable(&self) -> bool {
        let interrupts = self.is_interruptible();
        let plays = self.playing.front().is_some_and(|playing| playing.started && playing.in_conversation);
        self.setup.delivery == Delivery::Paced && interrupts && plays
    }

    /// The caller may be about to interrupt. The client is told nothing until it is clear.
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
        self.interrupt(StatusReason::ClientCancelled, InterruptionScope::All);
        Ok(())
    }

    /// Without a playout clock: the client drops what it has not played.
    pub(super) fn clear_client_playback(&mut self) {
        if self.setup.delivery == Delivery::Unpaced {
            self.client_playback.end();
            self.effects.push(Effect::ClearPlayout);
        }
    }

    /// Drops the audio of these responses that has not played, and tells the client. The others play on.
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

    /// Stops the audio of an item; returns how much of it was heard, in ms. `None` if nothing of it is to be played.
    pub(super) fn stop_playing(&mut self, item_id: &str) -> Option<u64> {
        let index = self.playing.iter().position(|playing| playing.item_id == item_id)?;
        let playing = self.playing.remove(index)?;
        let heard_ms = playing.heard_ms;
        self.drop_playing(&[playing]);
        Some(heard_ms)
    }

    /// Barge-in: stops responses and playout, and truncates items to what was heard. Without a playout clock the client
    /// truncates.
    pub(super) fn interrupt(&mut self, reason: StatusReason, scope: InterruptionScope) {
        let stops = |in_conversation| in_conversation || scope == InterruptionScope::All;
        self.queued.retain(|waiting| !waiting.in_conversation());
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
            self.truncate_to_heard(&playing.item_id, playing.heard_ms, None, true);
        }
    }
}
