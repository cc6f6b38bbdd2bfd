//! What the caller hears: the reports of the playout clock, and barge-in. Barge-in is about sound that was not played
//! yet, not about an answer being made: an answer is usually complete long before it was heard.

use repartee_engine::session::ResponseId;

use super::answer::Answer;
use super::{Core, Delivery, Effect, PlayoutReport};
use crate::protocol::output_audio::About;
use crate::protocol::response::Reason;
use crate::protocol::{ErrorBody, ErrorKind, ServerEvent};

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
}

impl Playing {
    pub fn new(answer: &Answer) -> Self {
        Self {
            response: answer.response,
            response_id: answer.id.clone(),
            item_id: answer.item_id.clone(),
            started: false,
            heard_ms: 0,
        }
    }
}

impl Core {
    pub(super) fn playout(&mut self, report: PlayoutReport) {
        match report {
            PlayoutReport::Started { response } => {
                if let Some(playing) = self.playing.iter_mut().find(|playing| playing.response == response) {
                    playing.started = true;
                    let response_id = playing.response_id.clone();
                    self.send(ServerEvent::OutputStarted(About { response_id }));
                }
            }
            PlayoutReport::Position { response, heard_ms } => {
                if let Some(playing) = self.playing.iter_mut().find(|playing| playing.response == response) {
                    playing.heard_ms = heard_ms;
                }
            }
            PlayoutReport::Drained { response } => {
                if let Some(index) = self.playing.iter().position(|playing| playing.response == response)
                    && let Some(playing) = self.playing.remove(index)
                    && playing.started
                {
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

    /// Stops answering and speaking, and keeps what was heard. Without a playout clock the client says what was heard.
    pub(super) fn interrupt(&mut self, reason: Reason) {
        self.deferred = None;
        let playing = std::mem::take(&mut self.playing);
        if !playing.is_empty() {
            self.effects.push(Effect::ClearPlayout);
        }
        for playing in playing.iter().filter(|playing| playing.started) {
            let response_id = playing.response_id.clone();
            self.send(ServerEvent::OutputCleared(About { response_id }));
        }
        let active = self.answer.as_ref().map(|answer| answer.response);
        if self.setup.delivery == Delivery::Paced
            && let Some(answer) = &mut self.answer
        {
            let heard = playing.iter().find(|playing| playing.response == answer.response);
            answer.truncate_at = answer.truncate_at.or(Some(heard.map_or(0, |playing| playing.heard_ms)));
        }
        self.stop_answer(reason);
        for playing in playing.iter().filter(|playing| Some(playing.response) != active) {
            self.cut_item(&playing.item_id, playing.heard_ms, true);
        }
    }
}
