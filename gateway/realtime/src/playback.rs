//! What the caller hears: the reports of the playout clock, and barge-in. Barge-in is about sound that was not played
//! yet, not about an answer being made: an answer is usually complete long before it was heard.

use std::time::{Duration, Instant};

use repartee_engine_api::{Command, ResponseId};
use repartee_protocol::output_audio::About;
use repartee_protocol::response::{PartName, Reason};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::answer::Answer;
use super::{Core, Delivery, Effect, PlayoutReport};

/// An answer with sound that was not played yet.
#[derive(Debug)]
pub(super) struct Playing {
    response: ResponseId,
    response_id: String,
    item_id: String,
    /// Whether the caller hears it already.
    started: bool,
    /// Heard so far.
    heard_ms: u64,
    /// Of that, what the engine was told.
    told_ms: u64,
}

impl Playing {
    pub fn new(answer: &Answer, name: &PartName) -> Self {
        Self {
            response: answer.response,
            response_id: answer.id.clone(),
            item_id: name.item_id.clone(),
            started: false,
            heard_ms: 0,
            told_ms: 0,
        }
    }
}

/// Until when a client plays what was sent to it, if it plays everything at once and without gaps.
#[derive(Debug, Default)]
pub(super) struct SoundsUntil(Option<Instant>);

impl SoundsUntil {
    /// More was sent.
    pub fn lengthen(&mut self, samples: u64, rate: u32, now: Instant) {
        let from = self.0.map_or(now, |until| until.max(now));
        self.0 = Some(from + Duration::from_micros(samples * 1_000_000 / u64::from(rate.max(1))));
    }

    /// What was not played is dropped.
    pub fn end(&mut self) {
        self.0 = None;
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.0.is_none_or(|until| until <= now)
    }
}

impl Core {
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
                self.send(ServerEvent::OutputStarted(About { response_id }));
            }
            PlayoutReport::Position { heard_ms, .. } => {
                playing.heard_ms = heard_ms;
                // A codec frame is the grain of the engine's deadlines.
                if heard_ms >= playing.told_ms + self.setup.model.frame.as_millis() as u64 {
                    playing.told_ms = heard_ms;
                    let position = Duration::from_millis(heard_ms);
                    self.command(Command::Played { response, position, at: now });
                }
            }
            PlayoutReport::Drained { .. } => {
                if let Some(playing) = self.playing.remove(index).filter(|playing| playing.started) {
                    self.send(ServerEvent::OutputStopped(About { response_id: playing.response_id }));
                }
            }
        }
    }

    pub(super) fn clear_output(&mut self) -> Result<(), ErrorBody> {
        if self.setup.delivery == Delivery::Unpaced {
            let message =
                "the sound of a websocket session is played by the client: stop it there and truncate the item";
            return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).at("type"));
        }
        self.interrupt(Reason::ClientCancelled);
        Ok(())
    }

    /// Without a playout clock: the client plays no more of what was sent.
    pub(super) fn forget_unplayed(&mut self) {
        if self.setup.delivery == Delivery::Unpaced {
            self.sounds_until.end();
            self.effects.push(Effect::ClearPlayout);
        }
    }

    /// Stops answering and speaking, and keeps what was heard. Without a playout clock the client says what was heard.
    pub(super) fn interrupt(&mut self, reason: Reason) {
        self.waiting.retain(|asked| !asked.is_of_the_conversation());
        let playing = std::mem::take(&mut self.playing);
        if !playing.is_empty() {
            self.sounds_until.end();
            self.effects.push(Effect::ClearPlayout);
        }
        self.forget_unplayed();
        for playing in playing.iter().filter(|playing| playing.started) {
            let response_id = playing.response_id.clone();
            self.send(ServerEvent::OutputCleared(About { response_id }));
        }
        let paced = self.setup.delivery == Delivery::Paced;
        let mut stopped = Vec::new();
        for answer in self.answers.iter_mut().filter(|answer| answer.exclusive) {
            if paced {
                let heard = playing.iter().find(|playing| playing.response == answer.response);
                answer.truncate_at = answer.truncate_at.or(Some(heard.map_or(0, |playing| playing.heard_ms)));
            }
            stopped.push(answer.response);
        }
        for response in &stopped {
            self.stop_answer(*response, reason);
        }
        for playing in playing.iter().filter(|playing| !stopped.contains(&playing.response)) {
            self.cut_item(&playing.item_id, playing.heard_ms, None, true);
        }
    }
}
