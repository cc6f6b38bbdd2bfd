//! The answers that are being made: what the stages made of them becomes history and events.

use std::time::{Duration, Instant};

use repartee_engine_api::{Event, FinishReason, Respond, ResponseId, SessionError, Stamps, Usage};

use super::calls::{CallReader, Spoken};
use super::rounds::{Beside, Round};
use super::{Conversation, Knowledge};
use crate::config::Waits;
use crate::deadline::Urgency;
use crate::stage::{Answer, Element, Message};
use crate::text::TextStream;

/// An answer that is being made.
pub struct Active<T> {
    /// What was asked for.
    pub request: Respond,
    /// What it is made with.
    answer: Answer,
    /// The prompt, from which it can be made once more.
    prompt: Vec<Element<T>>,
    /// When the engine took it.
    accepted: Instant,
    /// When its first token came.
    first_token: Option<Instant>,
    /// When its first frame came.
    first_frame: Option<Instant>,
    text: TextStream,
    /// Tool calls within the text.
    calls: CallReader,
    /// What was handed to the caller.
    sent: Sent,
    /// What has come out of the stages since the answer was begun, or begun once more; never more than `sent` says, while
    /// it is made once more.
    made: Sent,
    /// Duration handed over.
    duration: Duration,
    /// When the caller has heard how much.
    played: Option<(Duration, Instant)>,
    usage: Usage,
    /// When a stage last made something of it.
    moved: Instant,
}

/// Events by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sent {
    texts: u64,
    frames: u64,
}

impl<T> Active<T> {
    pub(super) fn new(
        round: &Round<T>,
        answer: Answer,
        prompt: Vec<Element<T>>,
        usage: Usage,
        model: &Knowledge<'_, T>,
    ) -> Self {
        Self {
            request: round.request.clone(),
            answer,
            prompt,
            accepted: round.accepted,
            first_token: None,
            first_frame: None,
            text: model.tokenizer.stream(),
            calls: CallReader::new(model.prompt.call_marks()),
            sent: Sent::default(),
            made: Sent::default(),
            duration: Duration::ZERO,
            played: None,
            usage,
            moved: model.now,
        }
    }

    /// How soon the caller needs more of it.
    fn urgency(&self) -> Urgency {
        match self.played {
            Some((position, at)) => Urgency::Playing { runs_out: at + self.duration.saturating_sub(position) },
            None => Urgency::First { since: self.accepted },
        }
    }

    /// Counts one more of a kind; whether the caller has not got it yet.
    fn is_news(made: &mut u64, sent: &mut u64) -> bool {
        *made += 1;
        let news = *made > *sent;
        *sent = (*sent).max(*made);
        news
    }
}

impl<T> Conversation<T> {
    fn active_on(&mut self, lane: usize) -> Option<&mut Active<T>> {
        if lane == self.lane {
            return self.active.as_mut();
        }
        self.beside.iter_mut().find(|beside| beside.lane == lane)?.active.as_mut()
    }

    /// How soon somebody needs what the stages make on `lane`.
    pub fn urgency(&self, lane: usize, now: Instant) -> Urgency {
        let active = if lane == self.lane {
            self.active.as_ref()
        } else {
            self.beside.iter().find(|beside| beside.lane == lane).and_then(|beside| beside.active.as_ref())
        };
        active.map_or(Urgency::Silent { since: now }, Active::urgency)
    }

    /// When the answer on `lane` was asked for.
    pub fn asked_at(&self, lane: usize) -> Option<Instant> {
        let active = if lane == self.lane {
            self.active.as_ref()
        } else {
            self.beside.iter().find(|beside| beside.lane == lane).and_then(|beside| beside.active.as_ref())
        };
        active.map(|active| active.accepted).or_else(|| self.waits_since())
    }

    /// When its waits are over, and what is to be said then. `events` is what a tick can make.
    pub fn waits(&mut self, events: usize, now: Instant, limits: &Waits) -> Vec<(Instant, SessionError)> {
        let wait = |since: Instant, limit_s: u32, what| {
            (since + Waits::limit(limit_s), SessionError::TimedOut { what, limit_s })
        };
        if self.has_room(events) {
            self.unread = None;
        } else {
            // Whoever cannot be told anything is not made anything.
            let beside = self.beside.iter_mut().filter_map(|beside| beside.active.as_mut());
            self.active.iter_mut().chain(beside).for_each(|active| active.moved = now);
            // A caller that reads slowly reads.
            let read = self.emitted.get() - self.peer.events.len() as u64;
            let (since, _) = *self.unread.insert(match self.unread {
                Some((since, before)) if read == before => (since, read),
                _ => (now, read),
            });
            return vec![wait(since, limits.unread_s, "reading what was sent")];
        }
        let beside = self.beside.iter().filter_map(|beside| beside.active.as_ref());
        let stuck = self.active.iter().chain(beside).map(|active| active.moved).min();
        let stuck = stuck.map(|since| wait(since, limits.stage_s, "the next step of an answer"));
        let undecided = self.suspicion.as_ref().map(|suspicion| suspicion.since);
        let undecided = undecided.map(|since| wait(since, limits.decision_s, "the decision on an answer"));
        stuck.into_iter().chain(undecided).collect()
    }

    /// The lanes of all its answers outside of the conversation.
    pub fn lanes_beside(&self) -> Vec<usize> {
        self.beside.iter().map(|beside| beside.lane).collect()
    }

    /// The caller's word on how far it has heard an answer.
    pub(super) fn played(&mut self, response: ResponseId, position: Duration, at: Instant) {
        let beside = self.beside.iter_mut().filter_map(|beside| beside.active.as_mut());
        for active in self.active.iter_mut().chain(beside) {
            if active.request.response == response && active.played.is_some() {
                active.played = Some((position, at));
            }
        }
    }

    /// Notes how many prompt positions the answer on `lane` found cached.
    pub fn note_cached(&mut self, lane: usize, positions: usize) {
        if let Some(active) = self.active_on(lane) {
            active.usage.cached_tokens = positions as u32;
        }
    }

    /// A stage has made something of the answer on `lane`.
    pub fn moved(&mut self, lane: usize, now: Instant) {
        if let Some(active) = self.active_on(lane) {
            active.moved = now;
        }
    }

    /// A token of the answer on `lane`; whether it is spoken.
    pub fn token(&mut self, lane: usize, id: u32, now: Instant) -> bool {
        let Some(active) = self.active_on(lane) else { return false };
        active.first_token.get_or_insert(now);
        active.usage.output_text_tokens += 1;
        let (response, item, out_of_band) = (active.request.response, active.request.item, active.request.out_of_band);
        let spoken = active.calls.token(id);
        let piece = active.text.push(id);
        let spoken_text = spoken == Spoken::Aloud;
        let events = active.calls.read(response, spoken, piece);
        if !out_of_band && let Some(Message::Assistant(ids)) = self.history.get_mut(item) {
            ids.push(id);
        }
        self.tell(lane, events);
        spoken_text
    }

    /// Hands text and calls over, unless the caller has them already.
    fn tell(&mut self, lane: usize, events: Vec<Event>) {
        for event in events {
            let Some(active) = self.active_on(lane) else { return };
            if Active::<T>::is_news(&mut active.made.texts, &mut active.sent.texts) {
                self.emit(event);
            }
        }
    }

    /// A codec frame of the answer on `lane` is complete.
    pub fn frame(&mut self, lane: usize, now: Instant) {
        if let Some(active) = self.active_on(lane) {
            active.first_frame.get_or_insert(now);
            active.usage.output_audio_frames += 1;
        }
    }

    /// Samples of the next frame of the answer on `lane`, `rate` a second.
    pub fn samples(&mut self, lane: usize, samples: Vec<f32>, rate: u32, now: Instant) {
        let Some(active) = self.active_on(lane) else { return };
        let frame = active.made.frames;
        if !Active::<T>::is_news(&mut active.made.frames, &mut active.sent.frames) {
            return;
        }
        let stamps = (frame == 0).then(|| Stamps {
            accepted: active.accepted,
            first_token: active.first_token.unwrap_or(now),
            first_frame: active.first_frame.unwrap_or(now),
            first_samples: now,
        });
        active.duration += Duration::from_secs_f64(samples.len() as f64 / f64::from(rate));
        active.played.get_or_insert((Duration::ZERO, now));
        let response = active.request.response;
        self.emit(Event::Audio { response, frame, samples, stamps });
    }

    /// The answer on `lane` is over.
    pub fn finish(&mut self, lane: usize, reason: FinishReason) {
        if let Some((response, usage)) = self.end(lane) {
            self.emit(Event::SegmentFinished { response, reason, usage });
        }
    }

    /// The answer on `lane`, or something of which no stage knows, failed.
    pub fn finish_failed(&mut self, lane: usize, error: SessionError) {
        let response = self.end(lane).map(|(response, _)| response);
        self.fail(response, error);
    }

    fn end(&mut self, lane: usize) -> Option<(ResponseId, Usage)> {
        let active = if lane == self.lane {
            self.changed = true;
            self.active.take()?
        } else {
            let at = self.beside.iter().position(|beside| beside.lane == lane && beside.active.is_some())?;
            // Its lane is given back by the scheduler, which sees that nobody has it any more.
            let Beside { active, .. } = self.beside.remove(at);
            active?
        };
        let Active { request, text, mut calls, usage, .. } = active;
        let mut events = calls.read(request.response, calls.mode(), text.finish());
        events.extend(calls.finish(request.response));
        for event in events {
            self.emit(event);
        }
        // An answer without words leaves no trace.
        if !request.out_of_band
            && matches!(self.history.get(request.item), Some(Message::Assistant(ids)) if ids.is_empty())
        {
            self.history.remove(request.item);
        }
        Some((request.response, usage))
    }

    /// Makes the answer on `lane` once more, from its own prompt: a neighbour broke the stages' state. What the caller has
    /// of it stays, and since an answer depends on its own prompt and seed alone, the rest follows without a seam.
    pub fn make_again(&mut self, lane: usize, model: &Knowledge<'_, T>) -> Option<(Vec<Element<T>>, Answer)> {
        self.changed |= lane == self.lane;
        let active = self.active_on(lane)?;
        active.made = Sent::default();
        active.text = model.tokenizer.stream();
        active.calls = CallReader::new(model.prompt.call_marks());
        active.usage.output_text_tokens = 0;
        active.usage.output_audio_frames = 0;
        let (item, out_of_band) = (active.request.item, active.request.out_of_band);
        let again = (active.prompt.clone(), active.answer.clone());
        if !out_of_band && let Some(Message::Assistant(ids)) = self.history.get_mut(item) {
            ids.clear();
        }
        Some(again)
    }
}
