//! Speculation: when the caller pauses, a response starts as if the turn had ended, and its events are held back. If the turn
//! ends there, the speculation is committed and the response is ahead by the endpointing delay. If the caller continues, the
//! speculation is aborted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, ItemId};
use repartee_protocol::session::TurnDetection;

use super::response::{ActiveResponse, SpeculativeResponse};
use super::{Effect, RealtimeSession};

/// Maximum number of held events, about 6 s of speech. At the limit the engine's events are not read, which stops the engine
/// (backpressure).
const MAX_HELD_EVENTS: usize = 96;

/// Time after which a speculation without a decision of the turn detector is aborted: the caller may have stopped sending audio.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

impl RealtimeSession {
    /// True if the session speculates. Not with responses to slices, which come before the pause.
    pub(super) fn speculates(&self) -> bool {
        self.config.repartee.speculative_start && !self.answers_slices()
    }

    /// Begins a speculation at the caller's pause, if enabled and no other response is active or queued.
    pub(super) fn begin_speculation(&mut self, audio_end_ms: u64, now: Instant) {
        let detection = self.config.audio.input.turn_detection.as_ref();
        let wanted = self.speculates() && detection.is_some_and(TurnDetection::creates_response);
        let busy = self.speculation.is_some() || !self.queued.is_empty();
        if !wanted || busy || self.responses.iter().any(|response| response.exclusive) {
            return;
        }
        let Some(slices) = self.input.pause_turn(audio_end_ms) else { return };
        self.append(slices);
        let listened = self.input.turn().and_then(|turn| turn.transcript);
        let item = listened.map_or_else(|| self.number(), |transcript| transcript.item);
        let request = self.default_request(now);
        let (response, respond) = self.build_response(request);
        self.command(Command::BeginSpeculation { item, respond });
        self.speculation =
            Some(SpeculativeResponse { item, response, deadline: now + DECISION_TIMEOUT, held: VecDeque::new() });
    }

    /// Aborts the speculation, if there is one: the caller continues, or the conversation has changed.
    pub(super) fn abort_speculation(&mut self) {
        let Some(speculation) = self.speculation.take() else { return };
        self.command(Command::AbortSpeculation { response: speculation.response.engine_id });
        self.effects.push(Effect::CountSpeculation { committed: false });
        let slices = self.input.resume_turn();
        self.append(slices);
    }

    /// Commits the speculation, if there is one. Returns the engine id of the turn's item, and the response. Held events become
    /// pending.
    pub(super) fn commit_speculation(&mut self) -> Option<(ItemId, ActiveResponse)> {
        let SpeculativeResponse { item, response, held, .. } = self.speculation.take()?;
        self.command(Command::CommitSpeculation { response: response.engine_id });
        self.effects.push(Effect::CountSpeculation { committed: true });
        self.pending_events.extend(held);
        Some((item, response))
    }

    /// Processes an engine event, or holds it back during a speculation.
    pub(super) fn engine_event(&mut self, event: Event, now: Instant) {
        if !self.pending_events.is_empty() {
            // Keeps the order of events.
            self.pending_events.push_back(event);
            return;
        }
        match &mut self.speculation {
            Some(speculation) if event.response() == Some(speculation.response.engine_id) => match event {
                // Not reported: if the cause persists, the response at the actual end of the turn fails too.
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

    /// Time at which [`super::SessionInput::DeadlineReached`] is due; `None` for never.
    pub fn deadline(&self) -> Option<Instant> {
        let speculation = self.speculation.as_ref().map(|speculation| speculation.deadline);
        let texts = self.responses.iter().filter_map(ActiveResponse::text_deadline);
        speculation.into_iter().chain(self.transcriber.deadline()).chain(texts).min()
    }

    /// Handles passed deadlines: aborts the speculation, ends stalled given texts, retries transcripts.
    pub(super) fn time(&mut self, now: Instant) {
        if self.speculation.as_ref().is_some_and(|speculation| speculation.deadline <= now) {
            self.abort_speculation();
        }
        self.end_stalled_texts(now);
        self.retry_transcript(now);
    }

    /// True if events of a committed speculation are unprocessed: pass [`super::SessionInput::PendingEvent`] before the engine's next
    /// event.
    pub fn has_pending_event(&self) -> bool {
        !self.pending_events.is_empty()
    }

    /// True if the engine's next event should be read now.
    pub fn wants_engine_events(&self) -> bool {
        self.pending_events.is_empty()
            && self.speculation.as_ref().is_none_or(|speculation| speculation.held.len() < MAX_HELD_EVENTS)
    }
}
