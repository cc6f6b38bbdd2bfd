//! The caller's turns: started and ended by turn detection, committed by the client, or begun by silence after a response.

use std::time::{Duration, Instant};

use repartee_engine_api::{Command, ItemId};
use repartee_media::decision::Decision;
use repartee_protocol::decision::DecisionMade;
use repartee_protocol::input_audio::{AudioCommitted, SpeechStarted, SpeechStopped, TimeoutTriggered};
use repartee_protocol::item::{Item, ItemContent, ItemObject, ItemRole, ItemStatus, Message};
use repartee_protocol::response::StatusReason;
use repartee_protocol::session::TurnDetection;
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::history::HistoryEntry;
use super::input_buffer::OpenTurn;
use super::playback::InterruptionScope;
use super::{Delivery, Effect, RealtimeSession};

/// Minimum turn that a client may commit, in ms, as in the published reference.
const SHORTEST_MS: f64 = 100.0;

impl RealtimeSession {
    fn detection(&self) -> Option<&TurnDetection> {
        self.config.audio.input.turn_detection.as_ref()
    }

    pub(super) fn audio(&mut self, samples: &[f32], now: Instant) {
        if self.detection().is_none() && self.input.turn().is_none() {
            // Push-to-talk: all audio belongs to a turn.
            self.open_turn(None, false);
        }
        let slices = self.input.push(samples);
        self.append(slices);
        self.end_slice(now);
        self.check_idle_timeout(now);
    }

    /// Opens a turn at `start_ms`, or with the entire preroll; returns the id of its item. `announced` if the client
    /// learns the id at once.
    pub(super) fn open_turn(&mut self, start_ms: Option<u64>, announced: bool) -> String {
        let item_id = self.new_item_id();
        let slices = self.input.begin_turn(item_id.clone(), start_ms);
        self.listen(announced);
        self.append(slices);
        item_id
    }

    pub(super) fn append(&mut self, slices: impl IntoIterator<Item = Vec<f32>>) {
        for slice in slices {
            self.command(Command::Append(slice));
        }
    }

    pub(super) fn speech_started(&mut self, audio_start_ms: u64) {
        if self.detection().is_none() {
            return;
        }
        let item_id = match self.input.turn() {
            // Audio appended before turn detection was enabled.
            Some(turn) => {
                if let Some(transcript) = &mut turn.transcript {
                    transcript.announced = true;
                }
                turn.item_id.clone()
            }
            None => self.open_turn(Some(audio_start_ms), true),
        };
        self.idle.disarm();
        self.send(ServerEvent::SpeechStarted(SpeechStarted { audio_start_ms, item_id }));
        if self.is_interruptible() {
            self.interrupt(StatusReason::TurnDetected, InterruptionScope::Conversation);
        }
    }

    pub(super) fn speech_stopped(&mut self, audio_end_ms: u64, now: Instant) {
        let Some(detection) = self.detection() else { return };
        let creates = detection.creates_response();
        let Some(turn) = self.input.turn() else { return };
        let item_id = turn.item_id.clone();
        self.send(ServerEvent::SpeechStopped(SpeechStopped { audio_end_ms, item_id }));
        if let Some((item, response)) = self.commit_speculation() {
            // The engine has the whole turn: the audio after the pause is silence.
            if let Some((turn, _)) = self.input.end_turn(Some(audio_end_ms)) {
                self.add_turn(turn, item);
            }
            self.add_response(response, now);
        } else if self.commit_turn(Some(audio_end_ms))
            && creates
            && !(if self.answers_slices() { self.has_queued_response() } else { self.has_active_response() })
        {
            // Not queued behind an active response: the next response reads this turn too. Exception: the last slice of a turn.
            let request = self.default_request(now);
            self.start_or_queue(request);
        }
    }

    /// Sends a decision to a client that asked for them.
    pub(super) fn tell_decision(&mut self, decision: Decision) {
        if !self.config.repartee.decisions {
            return;
        }
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.send(ServerEvent::DecisionMade(DecisionMade {
            decision: decision.kind.name().to_owned(),
            reason: decision.reason.name().to_owned(),
            audio_ms: decision.audio_ms,
            // A thousandth is as much as a person reads.
            probability: decision.probability.map(|probability| (probability * 1_000.0).round() / 1_000.0),
            voice_ms: decision.voice.map(ms),
            silence_ms: decision.silence.map(ms),
        }));
    }

    pub(super) fn commit_input(&mut self) -> Result<(), ErrorBody> {
        let buffered = self.input.buffered_ms();
        if buffered < SHORTEST_MS {
            let message = format!(
                "Error committing input audio buffer: buffer too small. Expected at least {SHORTEST_MS:.0}ms of \
                 audio, but buffer only has {buffered:.2}ms of audio."
            );
            return Err(ErrorBody::invalid(ErrorKind::CommitEmpty, message));
        }
        if self.input.turn().is_none() {
            self.open_turn(None, false);
        }
        self.commit_turn(None);
        self.effects.push(Effect::ResetTurnDetector);
        Ok(())
    }

    /// Commits the open turn as an item of the conversation. Returns false if it has no audio.
    pub(super) fn commit_turn(&mut self, end_ms: Option<u64>) -> bool {
        let Some((turn, last)) = self.input.end_turn(end_ms).filter(|(turn, _)| turn.samples > 0) else { return false };
        self.append(last);
        let item = turn.transcript.map_or_else(|| self.number(), |transcript| transcript.item);
        self.command(Command::Commit { item });
        self.add_turn(turn, item);
        true
    }

    /// Adds the turn with the engine id `item` to the conversation, and announces it to the client.
    fn add_turn(&mut self, turn: OpenTurn, item: ItemId) {
        let OpenTurn { item_id, transcript, .. } = turn;
        let message = Message {
            id: None,
            object: ItemObject::Value,
            status: ItemStatus::Completed,
            role: ItemRole::User,
            content: vec![ItemContent::InputAudio { audio: None, transcript: None }],
        };
        let previous_item_id = self.history.last_id().map(str::to_owned);
        self.add_item(HistoryEntry::new(item_id.clone(), Item::Message(message), vec![item]), None);
        self.send(ServerEvent::InputCommitted(AudioCommitted { previous_item_id, item_id: item_id.clone() }));
        self.announce_item(&item_id, Vec::new());
        self.transcribe(item_id, item, transcript.map_or(0, |transcript| transcript.sent));
    }

    pub(super) fn clear_input(&mut self) {
        if self.input.clear() {
            self.command(Command::Clear);
        }
        self.effects.push(Effect::ResetTurnDetector);
        self.send(ServerEvent::InputCleared {});
    }

    pub(super) fn idle_timeout_ms(&self) -> Option<u64> {
        match &self.config.audio.input.turn_detection {
            Some(TurnDetection::ServerVad(vad)) => vad.idle_timeout_ms.map(u64::from),
            _ => None,
        }
    }

    /// Checks the idle timeout after each piece of audio; when it expires, commits the silence and requests a response.
    fn check_idle_timeout(&mut self, now: Instant) {
        let Some(timeout_ms) = self.idle_timeout_ms().filter(|_| self.idle.is_armed()) else { return };
        let playing = match self.setup.delivery {
            Delivery::Paced => !self.playing.is_empty(),
            Delivery::Unpaced => !self.client_playback.is_over(now),
        };
        // The client owes an output, and a response without it could only guess.
        let waits = self.history.has_open_call();
        let busy =
            waits || playing || !self.queued.is_empty() || self.responses.iter().any(|response| response.exclusive);
        if busy || self.input.turn().is_some() {
            self.idle.restart();
            return;
        }
        let received_ms = self.input.received_ms();
        let Some(since_ms) = self.idle.count(received_ms, timeout_ms) else { return };
        self.idle.disarm();
        let item_id = self.open_turn(Some(since_ms), false);
        let (audio_start_ms, audio_end_ms) = (since_ms, received_ms);
        self.send(ServerEvent::TimeoutTriggered(TimeoutTriggered { audio_start_ms, audio_end_ms, item_id }));
        self.commit_turn(None);
        self.effects.push(Effect::ResetTurnDetector);
        let request = self.default_request(now);
        self.start_or_queue(request);
    }
}
