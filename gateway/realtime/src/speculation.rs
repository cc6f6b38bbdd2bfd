//! The speculative start: when the caller pauses, the answer is begun as if the turn had ended, and nobody hears of it. If
//! the pause lasts it was the turn's end, and the answer is ahead by the waiting time; if the caller goes on, it was never begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, ItemId, ResponseId};
use repartee_protocol::session::TurnDetection;

use super::answer::Answer;
use super::{Core, Effect};

/// Events of a suspected answer that are kept back; about 6 s of speech. Beyond that the engine is not read: what it has made is
/// enough for any pause, and it waits.
const MOST_HELD: usize = 96;

/// The longest that a decision is waited for; a caller may send no more sound at all.
const UNDECIDED: Duration = Duration::from_secs(10);

/// An answer that was begun on suspicion.
#[derive(Debug)]
pub(super) struct Speculation {
    /// The engine's name of the turn, if it was one.
    pub item: ItemId,
    pub answer: Answer,
    /// Until when the decision is waited for.
    until: Instant,
    held: VecDeque<Event>,
}

/// The answer that an event is about.
fn subject(event: &Event) -> Option<ResponseId> {
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

impl Core {
    /// The caller pauses at `audio_end_ms`.
    pub(super) fn suspect(&mut self, audio_end_ms: u64, now: Instant) {
        let detection = self.config.audio.input.turn_detection.as_ref();
        let wanted = self.config.repartee.speculative_start && detection.is_some_and(TurnDetection::creates_response);
        let busy = self.speculation.is_some() || !self.waiting.is_empty();
        if !wanted || busy || self.answers.iter().any(|answer| answer.exclusive) {
            return;
        }
        let Some(slices) = self.hearing.pause(audio_end_ms) else { return };
        self.append(slices);
        let item = self.number();
        let asked = self.usual_answer(now);
        let (answer, respond) = self.compose(asked);
        self.command(Command::BeginSpeculation { item, respond });
        self.speculation = Some(Speculation { item, answer, until: now + UNDECIDED, held: VecDeque::new() });
    }

    /// The suspicion was wrong, or something else has changed: the answer was never begun.
    pub(super) fn take_back(&mut self) {
        let Some(speculation) = self.speculation.take() else { return };
        self.command(Command::AbortSpeculation { response: speculation.answer.response });
        self.effects.push(Effect::Suspected(false));
        let slices = self.hearing.go_on();
        self.append(slices);
    }

    /// The suspicion was right: returns the turn's name in the engine and the answer, whose news come as the line takes them.
    pub(super) fn confirm(&mut self) -> Option<(ItemId, Answer)> {
        let Speculation { item, answer, held, .. } = self.speculation.take()?;
        self.command(Command::CommitSpeculation { response: answer.response });
        self.effects.push(Effect::Suspected(true));
        self.released.extend(held);
        Some((item, answer))
    }

    /// News from the engine, unless they have to wait.
    pub(super) fn engine_says(&mut self, event: Event, now: Instant) {
        if !self.released.is_empty() {
            // Behind what came before.
            self.released.push_back(event);
            return;
        }
        match &mut self.speculation {
            Some(speculation) if subject(&event) == Some(speculation.answer.response) => match event {
                // Not even the error is heard of: the turn's real end meets it again, if it is still there.
                Event::Failed { error, .. } if !error.is_fatal() => self.take_back(),
                Event::Failed { error, .. } => self.engine(Event::Failed { response: None, error }, now),
                event => speculation.held.push_back(event),
            },
            _ => self.engine(event, now),
        }
    }

    /// News that were kept back and may be told now.
    pub(super) fn release(&mut self, now: Instant) {
        if let Some(event) = self.released.pop_front() {
            self.engine(event, now);
        }
    }

    /// When [`super::Input::Time`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.speculation.as_ref().map(|speculation| speculation.until)
    }

    /// Some time has passed.
    pub(super) fn time(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.take_back();
        }
    }

    /// Whether news were kept back that may be told now: give [`super::Input::Release`] before anything else of the engine.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Whether the engine is to be read.
    pub fn wants_engine(&self) -> bool {
        self.released.is_empty()
            && self.speculation.as_ref().is_none_or(|speculation| speculation.held.len() < MOST_HELD)
    }
}
