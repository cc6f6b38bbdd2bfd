//! Responses being generated: turns the stages' output into history and events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{EngineUsage, Event, FinishReason, LatencyStamps, ResponseId, SessionError};

use super::active_response::ActiveResponse;
use super::input_transcript::InputTranscript;
use super::reasoning::ReasoningReader;
use super::tool_calls::TokenKind;
use super::{ModelContext, Session};
use crate::config::Timeouts;
use crate::deadline::Urgency;
use crate::elements::{Element, Message};
use crate::model::{Codec, PromptTemplate};
use crate::stage::ResponseParams;

/// Effect of a token on speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechDecision {
    /// Later stages speak the token.
    Yes,
    /// The token is not spoken, and opens a tool call.
    Pauses,
    /// The token is not spoken.
    No,
}

impl Session {
    fn active_in(&self, slot: usize) -> Option<&ActiveResponse> {
        if slot == self.slot {
            return self.active.as_ref();
        }
        self.out_of_band.iter().find(|other| other.slot == slot)?.active.as_ref()
    }

    pub(super) fn active_on(&mut self, slot: usize) -> Option<&mut ActiveResponse> {
        if slot == self.slot {
            return self.active.as_mut();
        }
        self.out_of_band.iter_mut().find(|other| other.slot == slot)?.active.as_mut()
    }

    /// Urgency of the stages' work for `slot`.
    pub fn urgency(&self, slot: usize, now: Instant) -> Urgency {
        let active = self.active_in(slot);
        active.map_or(Urgency::Silent { since: now }, ActiveResponse::urgency)
    }

    /// True if the response in `slot` is spoken, or the next one of it; until one is requested, if the last one was.
    pub fn is_spoken(&self, slot: usize) -> bool {
        let waiting = || match slot == self.slot {
            true => self.pending_responses.front(),
            false => self.out_of_band.iter().find(|other| other.slot == slot)?.waiting.as_ref(),
        };
        let audio = self.active_in(slot).map(|active| active.params.audio);
        audio.or_else(|| waiting().map(|pending| pending.request.audio)).unwrap_or(!self.writes_alone)
    }

    /// Request time of the response in `slot`.
    pub fn requested_at(&self, slot: usize) -> Option<Instant> {
        let active = self.active_in(slot);
        active.map(|active| active.accepted).or_else(|| self.waiting_since())
    }

    /// Running timeouts, each with its end and the error of the session then. `events` is the upper bound of a tick's
    /// events.
    pub fn timeouts(&mut self, events: usize, now: Instant, limits: &Timeouts) -> Vec<(Instant, SessionError)> {
        let timeout = |since: Instant, limit_s: u32, what| {
            (since + Timeouts::limit(limit_s), SessionError::TimedOut { what, limit_s })
        };
        if self.has_capacity(events) {
            self.unread = None;
        } else {
            // A session whose queue is full is not runnable, so its stages are not late.
            let out_of_band = self.out_of_band.iter_mut().filter_map(|other| other.active.as_mut());
            self.active.iter_mut().chain(out_of_band).for_each(|active| active.progressed = now);
            // The timeout starts again with every event that the caller reads.
            let read = self.emitted.get() - self.peer.events.len() as u64;
            let (since, _) = *self.unread.insert(match self.unread {
                Some((since, before)) if read == before => (since, read),
                _ => (now, read),
            });
            return vec![timeout(since, limits.unread_s, "reading what was sent")];
        }
        let out_of_band = self.out_of_band.iter().filter_map(|other| other.active.as_ref());
        // A background response may wait as long as others have work.
        let waited_for = |active: &&ActiveResponse| !active.request.background;
        let stuck = self.active.iter().chain(out_of_band).filter(waited_for).map(ActiveResponse::waits_since).min();
        let stuck = stuck.map(|since| timeout(since, limits.stage_s, "the next step of a response"));
        // A response waits for the encoder, or a held command that may request one.
        let waits = self.waiting_since().is_some() || !self.held_commands.is_empty();
        let unread = !self.pending_windows.is_empty() || self.recognitions.unheard().next().is_some();
        self.stalled = self.stalled.or(Some(now)).filter(|_| waits && unread);
        let stalled = self.stalled.map(|since| timeout(since, limits.stage_s, "the encoding of a response's input"));
        let speculative = self.speculation.as_ref().map(|speculation| speculation.since);
        let what = "the commit or abort of a speculation";
        let speculative = speculative.map(|since| timeout(since, limits.speculation_s, what));
        stuck.into_iter().chain(stalled).chain(speculative).collect()
    }

    /// Records the playback position that the caller reports.
    pub(super) fn played(&mut self, response: ResponseId, position: Duration, at: Instant) {
        let out_of_band = self.out_of_band.iter_mut().filter_map(|other| other.active.as_mut());
        for active in self.active.iter_mut().chain(out_of_band) {
            if active.request.response == response && active.played.is_some() {
                active.played = Some((position, at));
            }
        }
    }

    /// Records the number of cached prompt positions of the response in `slot`.
    pub fn note_cached(&mut self, slot: usize, positions: usize) {
        if let Some(active) = self.active_on(slot) {
            active.usage.cached_tokens = positions as u32;
        }
    }

    /// Records that a stage produced output for the response in `slot`.
    pub fn note_progress(&mut self, slot: usize, now: Instant) {
        if let Some(active) = self.active_on(slot) {
            active.progressed = now;
        }
    }

    /// Takes a generated token of the response in `slot`, from a step that began at `began`; returns the tokens of the
    /// answer that are certain now, for [`Session::tokens`].
    pub fn generated(&mut self, slot: usize, id: u32, began: Instant, now: Instant) -> Vec<u32> {
        let Some(active) = self.active_on(slot) else { return Vec::new() };
        active.prefilled.get_or_insert(began.max(active.begun));
        active.first_token.get_or_insert(now);
        active.usage.output_text_tokens += 1;
        active.reasoning.as_mut().map_or_else(|| vec![id], |reasoning| reasoning.push(id))
    }

    /// Returns the rest of the answer's tokens of the response in `slot`, whose text has ended, for [`Session::tokens`].
    pub fn rest_of_answer(&mut self, slot: usize) -> Vec<u32> {
        let reasoning = self.active_on(slot).and_then(|active| active.reasoning.as_mut());
        reasoning.map(ReasoningReader::finish).unwrap_or_default()
    }

    /// Takes tokens of the answer of the response in `slot`; returns the effect of each on speech. Their text is one event.
    pub fn tokens(&mut self, slot: usize, ids: &[u32]) -> Vec<SpeechDecision> {
        let mut events: Vec<Event> = Vec::new();
        let decisions = ids.iter().map(|&id| self.token(slot, id, &mut events)).collect();
        self.emit_new(slot, events);
        decisions
    }

    fn token(&mut self, slot: usize, id: u32, events: &mut Vec<Event>) -> SpeechDecision {
        let Some(active) = self.active_on(slot) else { return SpeechDecision::No };
        let (response, item, out_of_band) = (active.request.response, active.request.item, active.request.out_of_band);
        let (before, kind) = (active.calls.mode(), active.calls.token(id));
        let piece = active.text.push(id);
        // Line breaks between calls are no utterance.
        let blank = piece.as_ref().is_some_and(|piece| piece.trim().is_empty());
        for event in active.calls.read(response, kind, piece) {
            match (events.last_mut(), event) {
                (Some(Event::Text { text, .. }), Event::Text { text: more, .. }) => text.push_str(&more),
                (_, event) => events.push(event),
            }
        }
        let spoken = match kind {
            TokenKind::Spoken if active.calls.is_in_unmarked_call() && !active.called => SpeechDecision::Pauses,
            TokenKind::Spoken if active.calls.is_in_unmarked_call() || active.called && blank => SpeechDecision::No,
            TokenKind::Spoken => SpeechDecision::Yes,
            TokenKind::ToolCall if before == TokenKind::Spoken => SpeechDecision::Pauses,
            TokenKind::ToolCall | TokenKind::ToolCallEnd => SpeechDecision::No,
        };
        active.called = spoken != SpeechDecision::Yes;
        if !out_of_band && let Some(message) = self.history.get_mut(item) {
            message.push_token(id);
        }
        spoken
    }

    /// Start of the wait for the next token of a tool call, if the response in `slot` is writing one.
    pub fn writes_call_since(&self, slot: usize) -> Option<Instant> {
        let active = self.active_in(slot);
        active.filter(|active| active.calls.mode() == TokenKind::ToolCall).map(|active| active.progressed)
    }

    /// Sends text and tool calls, except those that were sent before a replay.
    pub(super) fn emit_new(&mut self, slot: usize, events: Vec<Event>) {
        for event in events {
            let Some(active) = self.active_on(slot) else { return };
            if ActiveResponse::is_new(&mut active.produced.texts, &mut active.sent.texts) {
                let event = InputTranscript::event(&mut active.transcript, event);
                self.emit(event);
            }
        }
    }

    /// Takes a codec frame of the response in `slot`. It is added to the response's item if later prompts contain
    /// speech.
    pub fn frame(&mut self, slot: usize, codes: &[u32], script: &dyn PromptTemplate, now: Instant) {
        let Some(active) = self.active_on(slot) else { return };
        active.first_frame.get_or_insert(now);
        let frame = active.usage.output_audio_frames as usize;
        active.usage.output_audio_frames += 1;
        let (item, out_of_band) = (active.request.item, active.request.out_of_band);
        if script.keeps_speech()
            && !out_of_band
            && let Some(message) = self.history.get_mut(item)
        {
            message.push_codes(Arc::from(codes), script.tokens_before(frame));
        }
    }

    /// Sends the samples of the next frame of the response in `slot`.
    pub fn samples(&mut self, slot: usize, samples: Vec<f32>, codec: &Codec, now: Instant) {
        let Some(active) = self.active_on(slot) else { return };
        let frame = active.produced.frames;
        if !ActiveResponse::is_new(&mut active.produced.frames, &mut active.sent.frames) {
            return;
        }
        let stamps = (frame == 0).then(|| LatencyStamps {
            accepted: active.accepted,
            encoding: active.encoding,
            begun: active.begun,
            prefilled: active.prefilled.unwrap_or(now),
            first_token: active.first_token.unwrap_or(now),
            first_frame: active.first_frame.unwrap_or(now),
            first_samples: now,
        });
        active.duration += codec.duration(samples.len());
        active.played.get_or_insert((Duration::ZERO, now));
        let response = active.request.response;
        self.emit(Event::Audio { response, frame, samples, stamps });
    }

    /// Ends the response in `slot`.
    pub fn finish(&mut self, slot: usize, reason: FinishReason) {
        if let Some((response, usage)) = self.end(slot) {
            self.emit(Event::SegmentFinished { response, reason, usage });
        }
    }

    /// Ends the response in `slot`, if any, with an error.
    pub fn finish_failed(&mut self, slot: usize, error: SessionError) {
        let response = self.end(slot).map(|(response, _)| response);
        self.fail(response, error);
    }

    fn end(&mut self, slot: usize) -> Option<(ResponseId, EngineUsage)> {
        let active = if slot == self.slot {
            self.changed = true;
            self.active.take()?
        } else {
            self.remove_out_of_band(slot)?
        };
        let ActiveResponse { request, text, mut calls, usage, mut transcript, .. } = active;
        let mut events = calls.read(request.response, calls.mode(), text.finish());
        events.extend(calls.finish(request.response));
        for event in events {
            self.emit(InputTranscript::event(&mut transcript, event));
        }
        // A response without text leaves no item.
        if !request.out_of_band && self.history.get(request.item).is_some_and(Message::is_empty) {
            self.history.remove(request.item);
        }
        Some((request.response, usage))
    }

    /// Restarts the response in `slot` from its prompt, after a panic in its batch. Events that were sent already are
    /// skipped. The output depends on prompt and seed alone, so the rest continues seamlessly.
    pub fn replay(&mut self, slot: usize, model: &ModelContext<'_>) -> Option<(Vec<Element>, ResponseParams)> {
        self.changed |= slot == self.slot;
        let active = self.active_on(slot)?;
        active.restart(model);
        let (item, out_of_band) = (active.request.item, active.request.out_of_band);
        let again = (active.prompt.clone(), active.params.clone());
        if !out_of_band && let Some(message) = self.history.get_mut(item) {
            message.clear();
        }
        Some(again)
    }

    /// Removes the active response in `slot`. The scheduler frees the slot when it finds that no response has it.
    pub(super) fn remove_out_of_band(&mut self, slot: usize) -> Option<ActiveResponse> {
        let at = self.out_of_band.iter().position(|response| response.slot == slot && response.active.is_some())?;
        self.out_of_band.remove(at).active
    }
}
