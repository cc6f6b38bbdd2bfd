//! Answers that were asked for: they wait for the one before, or are made beside it, and get their prompts here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{
    Content, Event, FinishReason, Input, InsertAt, ItemId, Respond, ResponseId, SessionError, Usage,
};

use super::answering::Active;
use super::messages::{check_length, system, text_message};
use super::{Conversation, Knowledge};
use crate::hearing::{self, Owner};
use crate::stage::{Answer, AudioRows, Element, Message};

/// The share of the context, one in so many, that is kept for an answer; and, when old items have to be forgotten, the
/// share that is then free for new ones.
const ROOM: usize = 4;
/// Answers that may wait.
const MAX_WAITING: usize = 64;
/// Answers outside of the conversation at once.
pub const MAX_OUT_OF_BAND: usize = 2;

/// An answer that was asked for.
pub struct Round<T> {
    pub(super) request: Respond,
    /// Instructions and tools as they were when it was asked for.
    system: Option<Vec<u32>>,
    /// What it answers in place of the history.
    input: Option<Vec<Part<T>>>,
    /// When the engine took it.
    pub(super) accepted: Instant,
}

/// A part of an answer's own input.
enum Part<T> {
    /// An item of the history.
    Item(ItemId),
    /// Something that was handed over; sounds have a number.
    Own(Option<u64>, Message<T>),
}

/// An answer outside of the conversation.
pub struct Beside<T> {
    /// The stages' slot that is kept for it.
    pub lane: usize,
    /// Until it is begun.
    pub(super) waiting: Option<Round<T>>,
    /// Then.
    pub(super) active: Option<Active<T>>,
}

/// What the limits of a model leave to a prompt.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Positions that prompt and answer may take.
    pub context: usize,
    /// Text tokens of an answer that names no limit.
    pub max_tokens: u32,
}

impl<T> Conversation<T> {
    /// Takes an answer's place in the history at once, so that what comes later follows it.
    pub(super) fn ask(&mut self, mut request: Respond, model: &mut Knowledge<'_, T>) -> Result<(), SessionError> {
        if let Some(voice) = request.voice.as_ref().filter(|voice| !model.voices.contains(voice)) {
            return Err(SessionError::UnknownVoice { voice: voice.clone(), known: model.voices.join(", ") });
        }
        if self.is_live(request.response) {
            let allowed = "a name that no unfinished answer has";
            return Err(SessionError::bad("response", request.response, allowed));
        }
        if self.rounds.len() >= MAX_WAITING {
            return Err(SessionError::TooManyResponses { limit: MAX_WAITING });
        }
        let system = match (&request.instructions, &request.tools) {
            (None, None) => self.system.clone(),
            (instructions, tools) => {
                let instructions = instructions.as_ref().unwrap_or(&self.instructions);
                system(instructions, tools.as_ref().unwrap_or(&self.tools), model)?
            }
        };
        let out_of_band = request.out_of_band;
        if out_of_band {
            if self.beside.len() >= MAX_OUT_OF_BAND {
                return Err(SessionError::TooManyResponses { limit: MAX_OUT_OF_BAND });
            }
            if model.lanes.is_empty() {
                return Err(SessionError::OutOfMemory);
            }
        } else {
            self.history.insert(request.item, InsertAt::End, Message::Assistant(Vec::new()))?;
        }
        let input = match request.input.take().map(|parts| self.own_input(parts, model)).transpose() {
            Ok(input) => input,
            Err(error) => {
                if !out_of_band {
                    self.history.remove(request.item);
                }
                return Err(error);
            }
        };
        let round = Round { request, system, input, accepted: model.now };
        self.changed = true;
        if !out_of_band {
            self.rounds.push_back(round);
        } else if let Some(lane) = model.lanes.pop() {
            self.beside.push(Beside { lane, waiting: Some(round), active: None });
        }
        Ok(())
    }

    fn own_input(&mut self, parts: Vec<Input>, model: &Knowledge<'_, T>) -> Result<Vec<Part<T>>, SessionError> {
        let mut sounds = Vec::new();
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            own.push(match part {
                Input::Item(item) if self.history.knows(item) => Part::Item(item),
                Input::Item(item) => return Err(SessionError::UnknownItem(item)),
                Input::Content(Content::Audio(samples)) => {
                    check_length(&samples, model)?;
                    self.sounds += 1;
                    sounds.push((self.sounds, samples));
                    Part::Own(Some(self.sounds), Message::UserAudio(Vec::new()))
                }
                Input::Content(content) => Part::Own(None, text_message(content, model)?),
            });
        }
        // Last, so that a refused input leaves nothing to encode.
        for (sound, samples) in sounds {
            hearing::windows(model.log_mel, &samples, Owner::Input(sound), &mut self.pending);
        }
        Ok(own)
    }

    /// Puts an encoded window into the input that it was handed over with.
    pub(super) fn place_input(&mut self, sound: u64, rows: Arc<AudioRows<T>>) {
        let beside = self.beside.iter_mut().filter_map(|beside| beside.waiting.as_mut());
        let parts = self.rounds.iter_mut().chain(beside).filter_map(|round| round.input.as_mut()).flatten();
        for part in parts {
            if let Part::Own(Some(number), Message::UserAudio(windows)) = part
                && *number == sound
            {
                return windows.push(rows);
            }
        }
    }

    /// Stops an answer. Returns the lane on which the stages have to stop it.
    pub(super) fn cancel(&mut self, response: ResponseId, model: &mut Knowledge<'_, T>) -> Option<usize> {
        if self.suspicion.as_ref().is_some_and(|suspicion| suspicion.response == response) {
            // What was said on suspicion alone was never said.
            return self.take_back();
        }
        if self.active.as_ref().is_some_and(|active| active.request.response == response) {
            return Some(self.lane);
        }
        if let Some(beside) = self.beside.iter().find(|beside| beside.response() == Some(response)) {
            if beside.active.is_some() {
                return Some(beside.lane);
            }
            model.lanes.push(beside.lane);
            self.beside.retain(|beside| beside.response() != Some(response));
            self.emit(Event::SegmentFinished { response, reason: FinishReason::Cancelled, usage: Usage::default() });
        }
        self.withdraw(|request| request.response == response);
        None
    }

    /// Takes waiting answers back, and their places in the history.
    pub(super) fn withdraw(&mut self, which: impl Fn(&Respond) -> bool) {
        let (gone, stay): (VecDeque<_>, VecDeque<_>) = self.rounds.drain(..).partition(|round| which(&round.request));
        self.rounds = stay;
        for Round { request: Respond { response, item, .. }, .. } in gone {
            self.history.remove(item);
            self.changed = true;
            self.emit(Event::SegmentFinished { response, reason: FinishReason::Cancelled, usage: Usage::default() });
        }
    }

    fn is_live(&self, response: ResponseId) -> bool {
        self.active.as_ref().is_some_and(|active| active.request.response == response)
            || self.rounds.iter().any(|round| round.request.response == response)
            || self.beside.iter().any(|beside| beside.response() == Some(response))
    }

    /// Whether an item is an answer that is not complete.
    pub(super) fn is_unfinished(&self, item: ItemId) -> bool {
        self.active.as_ref().is_some_and(|active| active.request.item == item)
            || self.rounds.iter().any(|round| round.request.item == item)
    }

    /// Since when the caller has waited for its next answer to begin; nothing if none waits.
    pub fn waits_since(&self) -> Option<Instant> {
        let beside = self.beside.iter().filter_map(|beside| beside.waiting.as_ref());
        let next = self.rounds.front().filter(|_| self.active.is_none());
        next.into_iter().chain(beside).map(|round| round.accepted).min()
    }

    /// The lanes of answers that can begin: all sound before them is encoded, and none before them is unfinished.
    pub fn startable(&self) -> Vec<usize> {
        let encoded = !self.pending.iter().any(|window| match window.owner {
            Owner::Open => self.suspicion.is_some(),
            Owner::Item(_) => true,
            Owner::Input(_) => false,
        });
        let mut lanes = Vec::new();
        // What follows an undecided answer waits for the decision.
        let decided = |round: &Round<T>| {
            self.suspicion.as_ref().is_none_or(|suspicion| suspicion.response == round.request.response)
        };
        if let Some(round) = self.rounds.front()
            && self.active.is_none()
            && encoded
            && decided(round)
            && self.has_input(round)
        {
            lanes.push(self.lane);
        }
        let ready = |beside: &&Beside<T>| beside.waiting.as_ref().is_some_and(|round| encoded && self.has_input(round));
        lanes.extend(self.beside.iter().filter(ready).map(|beside| beside.lane));
        lanes
    }

    fn has_input(&self, round: &Round<T>) -> bool {
        let sounds = round.input.iter().flatten().filter_map(|part| match part {
            Part::Own(sound, _) => *sound,
            Part::Item(_) => None,
        });
        sounds.into_iter().all(|sound| self.pending.iter().all(|window| window.owner != Owner::Input(sound)))
    }

    /// Begins the answer that waits on `lane`: its prompt, and what it is made with.
    pub fn begin(&mut self, lane: usize, model: &Knowledge<'_, T>, room: Room) -> Option<(Vec<Element<T>>, Answer)> {
        let round = if lane == self.lane {
            self.rounds.pop_front()?
        } else {
            self.beside.iter_mut().find(|beside| beside.lane == lane)?.waiting.take()?
        };
        let Room { context, max_tokens } = room;
        let most = round.request.max_tokens.unwrap_or(max_tokens);
        let kept = (most as usize).min(context / ROOM);
        let system = round.system.as_ref();
        let elements = match &round.input {
            Some(parts) => self.render(model, system, self.messages(parts), None, true),
            None if round.request.out_of_band => {
                let spoken = self.history.items().iter();
                let spoken = spoken.filter(|entry| !self.is_unfinished(entry.id));
                self.render(model, system, spoken.map(|entry| entry.message.clone()).collect(), None, true)
            }
            None => self.fit(context - kept, |session| {
                let end = session.history.position(round.request.item)?;
                Some((end, session.render(model, system, session.until(end), None, true)))
            })?,
        };
        let sound = elements.iter().filter(|element| matches!(element, Element::Audio { .. })).count() as u32;
        let usage =
            Usage { input_text_tokens: elements.len() as u32 - sound, input_audio_tokens: sound, ..Usage::default() };
        let answer = Answer {
            response: round.request.response,
            seed: round.request.seed,
            voice: round.request.voice.clone().unwrap_or_else(|| model.voices.first().cloned().unwrap_or_default()),
            audio: round.request.audio,
            max_tokens: most,
            sampling: round.request.sampling,
        };
        let active = Active::new(&round, answer.clone(), elements.clone(), usage, model);
        if lane == self.lane {
            self.active = Some(active);
        } else if let Some(beside) = self.beside.iter_mut().find(|beside| beside.lane == lane) {
            beside.active = Some(active);
        }
        Some((elements, answer))
    }

    /// The prompt to read silently, if it changed since the last call and nothing is being answered.
    pub fn silent_prompt(&mut self, model: &Knowledge<'_, T>, context: usize) -> Option<Vec<Element<T>>> {
        if self.active.is_some() || !self.rounds.is_empty() || !std::mem::take(&mut self.changed) {
            return None;
        }
        self.fit(context - context / ROOM, |session| {
            // Rows of an item that is only half encoded would be read in the wrong place.
            let half = session.pending.iter().find_map(|window| match window.owner {
                Owner::Item(item) => session.history.position(item),
                _ => None,
            });
            let open = session.hearing.as_ref().filter(|_| half.is_none()).map(|hearing| &hearing.encoded[..]);
            let end = half.unwrap_or(session.history.items().len());
            Some((end, session.render(model, session.system.as_ref(), session.until(end), open, false)))
        })
    }

    /// A prompt of at most `limit` positions: if it is longer, the oldest items are forgotten, more than is needed at
    /// once, because all that follows them has to be read again. The last item before the prompt's end stays, so a prompt can
    /// still be too long. `render` gives where in the history the prompt ends, and the prompt.
    fn fit(
        &mut self,
        limit: usize,
        render: impl Fn(&Self) -> Option<(usize, Vec<Element<T>>)>,
    ) -> Option<Vec<Element<T>>> {
        let (mut end, mut elements) = render(self)?;
        if elements.len() > limit {
            while elements.len() > limit - limit / ROOM
                && end > 1
                && let Some(oldest) = self.history.forget_oldest()
            {
                self.pending.retain(|window| window.owner != Owner::Item(oldest));
                (end, elements) = render(self)?;
            }
        }
        Some(elements)
    }

    fn until(&self, end: usize) -> Vec<Message<T>> {
        self.history.items()[..end].iter().map(|entry| entry.message.clone()).collect()
    }

    /// An answer's own input; items that were deleted since are left out.
    fn messages(&self, parts: &[Part<T>]) -> Vec<Message<T>> {
        let message = |part: &Part<T>| match part {
            Part::Item(item) => self.history.get(*item).cloned(),
            Part::Own(_, message) => Some(message.clone()),
        };
        parts.iter().filter_map(message).collect()
    }

    fn render(
        &self,
        model: &Knowledge<'_, T>,
        system: Option<&Vec<u32>>,
        messages: Vec<Message<T>>,
        open: Option<&[Arc<AudioRows<T>>]>,
        answer: bool,
    ) -> Vec<Element<T>> {
        let system = system.into_iter().map(|ids| Message::System(ids.clone()));
        model.prompt.render(&system.chain(messages).collect::<Vec<_>>(), open, answer)
    }
}

impl<T> Beside<T> {
    fn response(&self) -> Option<ResponseId> {
        let active = self.active.as_ref().map(|active| active.request.response);
        active.or_else(|| self.waiting.as_ref().map(|round| round.request.response))
    }
}
