//! Speculation: when the caller pauses, a response begins as if the turn had ended, and its events are held back. If the turn
//! ends there, the speculation is committed and the response is ahead by the endpointing delay; if the caller goes on, it is
//! aborted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, ItemId, ResponseId};
use repartee_protocol::session::TurnDetection;

use super::response::ActiveResponse;
use super::{RealtimeSession, Effect, speech_synthesis};

/// Events held back, about 6 s of speech. Beyond that the engine's events are not read, so the engine waits.
const MAX_HELD_EVENTS: usize = 96;

/// A speculation is aborted when the turn detector has not decided after this long: the caller may have stopped sending audio.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

/// A response begun before the turn has surely ended.
#[derive(Debug)]
pub(super) struct Speculation {
    /// The engine's id of the turn's item.
    pub item: ItemId,
    pub response: ActiveResponse,
    /// When it is aborted without a decision.
    deadline: Instant,
    held: VecDeque<Event>,
}

/// The response that an event is about.
pub(super) fn response_of(event: &Event) -> Option<ResponseId> {
    match event {
        Event::Text { response, .. }
        | Event::Audio { response, .. }
        | Event::ToolCall { response, .. }
        | Event::ToolArguments { response, .. }
        | Event::SegmentFinished { response, .. } => Some(*response),
        Event::Failed { response, .. } => *response,
        Event::Finished => None,
    }
}

impl RealtimeSession {
    /// Whether the session speculates. What is answered slice by slice has been answered before the pause.
    pub(super) fn speculates(&self) -> bool {
        self.config.repartee.speculative_start && !self.answers_slices()
    }

    /// Begins a speculation at the caller's pause, if the session wants it and nothing else is going on.
    pub(super) fn begin_speculation(&mut self, audio_end_ms: u64, now: Instant) {
        let detection = self.config.audio.input.turn_detection.as_ref();
        let wanted = self.speculates() && detection.is_some_and(TurnDetection::creates_response);
        let busy = self.speculation.is_some() || !self.queued.is_empty();
        if !wanted || busy || self.responses.iter().any(|response| response.exclusive) {
            return;
        }
        let Some(slices) = self.input.pause_turn(audio_end_ms) else { return };
        self.append(slices);
        let item = self.number();
        let request = self.default_request(now);
        let (response, respond) = self.build_response(request);
        self.command(Command::BeginSpeculation { item, respond });
        self.speculation =
            Some(Speculation { item, response, deadline: now + DECISION_TIMEOUT, held: VecDeque::new() });
    }

    /// Aborts the speculation, if there is one: the caller goes on, or the conversation has changed.
    pub(super) fn abort_speculation(&mut self) {
        let Some(speculation) = self.speculation.take() else { return };
        self.command(Command::AbortSpeculation { response: speculation.response.engine_id });
        self.effects.push(Effect::CountSpeculation { committed: false });
        let slices = self.input.resume_turn();
        self.append(slices);
    }

    /// Commits the speculation, if there is one: returns the engine's id of the turn's item, and the response. Its held events
    /// become pending.
    pub(super) fn commit_speculation(&mut self) -> Option<(ItemId, ActiveResponse)> {
        let Speculation { item, response, held, .. } = self.speculation.take()?;
        self.command(Command::CommitSpeculation { response: response.engine_id });
        self.effects.push(Effect::CountSpeculation { committed: true });
        self.pending_events.extend(held);
        Some((item, response))
    }

    /// Processes an event of the engine, or holds it back.
    pub(super) fn engine_event(&mut self, event: Event, now: Instant) {
        if !self.pending_events.is_empty() {
            // Events stay in order.
            self.pending_events.push_back(event);
            return;
        }
        match &mut self.speculation {
            Some(speculation) if response_of(&event) == Some(speculation.response.engine_id) => match event {
                // Not reported: if the cause persists, the response to the real end of the turn fails too.
                Event::Failed { error, .. } if !error.is_fatal() => self.abort_speculation(),
                Event::Failed { error, .. } => self.process_engine_event(Event::Failed { response: None, error }, now),
                event => speculation.held.push_back(event),
            },
            _ => self.process_engine_event(event, now),
        }
    }

    /// Processes the next pending event.
    pub(super) fn process_pending_event(&mut self, now: Instant) {
        if let Some(event) = self.pending_events.pop_front() {
            self.process_engine_event(event, now);
        }
    }

    /// When [`super::Input::Time`] is due; `None` for never.
    pub fn deadline(&self) -> Option<Instant> {
        let speculation = self.speculation.as_ref().map(|speculation| speculation.deadline);
        let texts = self.responses.iter().filter_map(speech_synthesis::deadline);
        speculation.into_iter().chain(self.transcriber.deadline()).chain(texts).min()
    }

    /// Aborts a speculation whose deadline has passed, and tries again what is to be tried again.
    pub(super) fn time(&mut self, now: Instant) {
        if self.speculation.as_ref().is_some_and(|speculation| speculation.deadline <= now) {
            self.abort_speculation();
        }
        self.end_stalled_texts(now);
        self.retry_transcript(now);
    }

    /// Whether events of a committed speculation are still to be processed: give [`super::Input::PendingEvent`] before the
    /// engine's next event.
    pub fn has_pending_event(&self) -> bool {
        !self.pending_events.is_empty()
    }

    /// Whether the engine's events are to be read now.
    pub fn wants_engine_events(&self) -> bool {
        self.pending_events.is_empty()
            && self.speculation.as_ref().is_none_or(|speculation| speculation.held.len() < MAX_HELD_EVENTS)
    }
}
