//! Requested responses: in-band ones wait for the one before them, out-of-band ones have slots of their own. Builds their
//! prompts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{
    Content, Event, FinishReason, Input, InsertAt, ItemId, Respond, ResponseId, SessionError, Usage,
};

use super::active_response::ActiveResponse;
use super::messages::{check_length, system, text_message};
use super::{ModelContext, Session};
use crate::audio_input::{self, WindowTarget};
use crate::stage::{AudioRows, Element, Message, ResponseParams};

/// One in so many positions of the context is reserved for the response; when items are evicted, as many are freed.
const RESERVED_SHARE: usize = 4;
/// In-band responses that may wait.
const MAX_WAITING: usize = 64;
/// Out-of-band responses of one session at once.
pub const MAX_OUT_OF_BAND: usize = 2;

/// A requested response that has not begun.
pub struct PendingResponse<T> {
    pub(super) request: Respond,
    /// The system message as it was at the request.
    system: Option<Vec<u32>>,
    /// Input in place of the history.
    input: Option<Vec<Part<T>>>,
    /// When the engine took it.
    pub(super) accepted: Instant,
}

/// A part of a response's own input.
enum Part<T> {
    /// An item of the history.
    Item(ItemId),
    /// Content of the request; audio has a number.
    Own(Option<u64>, Message<T>),
}

/// An out-of-band response.
pub struct OutOfBandResponse<T> {
    /// Its slot in every stage.
    pub slot: usize,
    /// Set until it begins.
    pub(super) waiting: Option<PendingResponse<T>>,
    /// Set from then on.
    pub(super) active: Option<ActiveResponse<T>>,
}

/// Positions and tokens that a prompt and its response may take.
#[derive(Debug, Clone, Copy)]
pub struct ContextBudget {
    /// Positions of prompt and response together.
    pub context: usize,
    /// Text tokens of a response whose request names no limit.
    pub max_tokens: u32,
}

impl<T> Session<T> {
    /// Requests a response. An in-band one gets its item in the history at once, so that later items follow it.
    pub(super) fn respond(
        &mut self,
        mut request: Respond,
        model: &mut ModelContext<'_, T>,
    ) -> Result<(), SessionError> {
        if let Some(voice) = request.voice.as_ref().filter(|voice| !model.voices.contains(voice)) {
            return Err(SessionError::UnknownVoice { voice: voice.clone(), known: model.voices.join(", ") });
        }
        if self.is_live(request.response) {
            let allowed = "an id that no unfinished response has";
            return Err(SessionError::bad("response", request.response, allowed));
        }
        if self.pending_responses.len() >= MAX_WAITING {
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
            if self.out_of_band.len() >= MAX_OUT_OF_BAND {
                return Err(SessionError::TooManyResponses { limit: MAX_OUT_OF_BAND });
            }
            if model.free_slots.is_empty() {
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
        let pending = PendingResponse { request, system, input, accepted: model.now };
        self.changed = true;
        if !out_of_band {
            self.pending_responses.push_back(pending);
        } else if let Some(slot) = model.free_slots.pop() {
            self.out_of_band.push(OutOfBandResponse { slot, waiting: Some(pending), active: None });
        }
        Ok(())
    }

    fn own_input(&mut self, parts: Vec<Input>, model: &ModelContext<'_, T>) -> Result<Vec<Part<T>>, SessionError> {
        let mut audio_parts = Vec::new();
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            own.push(match part {
                Input::Item(item) if self.history.knows(item) => Part::Item(item),
                Input::Item(item) => return Err(SessionError::UnknownItem(item)),
                Input::Content(Content::Audio(samples)) => {
                    check_length(&samples, model)?;
                    self.input_audios += 1;
                    audio_parts.push((self.input_audios, samples));
                    Part::Own(Some(self.input_audios), Message::UserAudio(Vec::new()))
                }
                Input::Content(content) => Part::Own(None, text_message(content, model)?),
            });
        }
        // Last, so that a refused input leaves nothing to encode.
        for (audio, samples) in audio_parts {
            audio_input::windows(model.log_mel, &samples, WindowTarget::Input(audio), &mut self.pending_windows);
        }
        Ok(own)
    }

    /// Adds an encoded window to the input whose audio has the number `audio`.
    pub(super) fn place_input(&mut self, audio: u64, rows: Arc<AudioRows<T>>) {
        let out_of_band = self.out_of_band.iter_mut().filter_map(|other| other.waiting.as_mut());
        let parts =
            self.pending_responses.iter_mut().chain(out_of_band).filter_map(|pending| pending.input.as_mut()).flatten();
        for part in parts {
            if let Part::Own(Some(number), Message::UserAudio(windows)) = part
                && *number == audio
            {
                return windows.push(rows);
            }
        }
    }

    /// Cancels a response. Returns its slot if the stages must abort it.
    pub(super) fn cancel(&mut self, response: ResponseId, model: &mut ModelContext<'_, T>) -> Option<usize> {
        if self.speculation.as_ref().is_some_and(|speculation| speculation.response == response) {
            // A speculation that is cancelled leaves no item.
            return self.abort_speculation();
        }
        if self.active.as_ref().is_some_and(|active| active.request.response == response) {
            return Some(self.slot);
        }
        if let Some(found) = self.out_of_band.iter().find(|other| other.response() == Some(response)) {
            if found.active.is_some() {
                return Some(found.slot);
            }
            model.free_slots.push(found.slot);
            self.out_of_band.retain(|other| other.response() != Some(response));
            self.emit(Event::SegmentFinished { response, reason: FinishReason::Cancelled, usage: Usage::default() });
        }
        self.withdraw(|request| request.response == response);
        None
    }

    /// Removes waiting in-band responses and their items, and reports them as cancelled.
    pub(super) fn withdraw(&mut self, which: impl Fn(&Respond) -> bool) {
        let (gone, stay): (VecDeque<_>, VecDeque<_>) =
            self.pending_responses.drain(..).partition(|pending| which(&pending.request));
        self.pending_responses = stay;
        for PendingResponse { request: Respond { response, item, .. }, .. } in gone {
            self.history.remove(item);
            self.changed = true;
            self.emit(Event::SegmentFinished { response, reason: FinishReason::Cancelled, usage: Usage::default() });
        }
    }

    fn is_live(&self, response: ResponseId) -> bool {
        self.active.as_ref().is_some_and(|active| active.request.response == response)
            || self.pending_responses.iter().any(|pending| pending.request.response == response)
            || self.out_of_band.iter().any(|other| other.response() == Some(response))
    }

    /// Whether an item is a response that is not complete.
    pub(super) fn is_unfinished(&self, item: ItemId) -> bool {
        self.active.as_ref().is_some_and(|active| active.request.item == item)
            || self.pending_responses.iter().any(|pending| pending.request.item == item)
    }

    /// When the oldest response that waits to begin was requested.
    pub fn waiting_since(&self) -> Option<Instant> {
        let out_of_band = self.out_of_band.iter().filter_map(|other| other.waiting.as_ref());
        let next = self.pending_responses.front().filter(|_| self.active.is_none());
        next.into_iter().chain(out_of_band).map(|pending| pending.accepted).min()
    }

    /// Slots whose next response can begin: the audio before it is encoded and the response before it is complete.
    pub fn startable(&self) -> Vec<usize> {
        let encoded = !self.pending_windows.iter().any(|window| match window.target {
            WindowTarget::Open => self.speculation.is_some(),
            WindowTarget::Item(_) => true,
            WindowTarget::Input(_) => false,
        });
        let mut slots = Vec::new();
        // Responses after a speculation wait until it is committed or aborted.
        let decided = |pending: &PendingResponse<T>| {
            self.speculation.as_ref().is_none_or(|speculation| speculation.response == pending.request.response)
        };
        if let Some(pending) = self.pending_responses.front()
            && self.active.is_none()
            && encoded
            && decided(pending)
            && self.has_input(pending)
        {
            slots.push(self.slot);
        }
        let ready = |other: &&OutOfBandResponse<T>| {
            other.waiting.as_ref().is_some_and(|pending| encoded && self.has_input(pending))
        };
        slots.extend(self.out_of_band.iter().filter(ready).map(|other| other.slot));
        slots
    }

    fn has_input(&self, pending: &PendingResponse<T>) -> bool {
        let mut audio = pending.input.iter().flatten().filter_map(|part| match part {
            Part::Own(audio, _) => *audio,
            Part::Item(_) => None,
        });
        audio.all(|audio| self.pending_windows.iter().all(|window| window.target != WindowTarget::Input(audio)))
    }

    /// Begins the response that waits in `slot`; returns its prompt and parameters.
    pub fn begin(
        &mut self,
        slot: usize,
        model: &ModelContext<'_, T>,
        budget: ContextBudget,
    ) -> Option<(Vec<Element<T>>, ResponseParams)> {
        let pending = if slot == self.slot {
            self.pending_responses.pop_front()?
        } else {
            self.out_of_band.iter_mut().find(|other| other.slot == slot)?.waiting.take()?
        };
        let ContextBudget { context, max_tokens } = budget;
        let most = pending.request.max_tokens.unwrap_or(max_tokens);
        let reserved = (most as usize).min(context / RESERVED_SHARE);
        let system = pending.system.as_ref();
        let elements = match &pending.input {
            Some(parts) => self.render(model, system, self.messages(parts), None, true),
            None if pending.request.out_of_band => {
                let complete = self.history.items().iter().filter(|entry| !self.is_unfinished(entry.id));
                self.render(model, system, complete.map(|entry| entry.message.clone()).collect(), None, true)
            }
            None => self.fit(context - reserved, |session| {
                let end = session.history.position(pending.request.item)?;
                Some((end, session.render(model, system, session.until(end), None, true)))
            })?,
        };
        let audio = elements.iter().filter(|element| matches!(element, Element::Audio { .. })).count() as u32;
        let usage =
            Usage { input_text_tokens: elements.len() as u32 - audio, input_audio_tokens: audio, ..Usage::default() };
        let params = ResponseParams {
            response: pending.request.response,
            seed: pending.request.seed,
            voice: pending.request.voice.clone().unwrap_or_else(|| model.voices.first().cloned().unwrap_or_default()),
            audio: pending.request.audio,
            max_tokens: most,
            sampling: pending.request.sampling,
        };
        let active = ActiveResponse::new(&pending, params.clone(), elements.clone(), usage, model);
        if slot == self.slot {
            self.active = Some(active);
        } else if let Some(other) = self.out_of_band.iter_mut().find(|other| other.slot == slot) {
            other.active = Some(active);
        }
        Some((elements, params))
    }

    /// The prompt to prefill silently, if it changed since the last call and no in-band response is active or waits.
    pub fn silent_prompt(&mut self, model: &ModelContext<'_, T>, context: usize) -> Option<Vec<Element<T>>> {
        if self.active.is_some() || !self.pending_responses.is_empty() || !std::mem::take(&mut self.changed) {
            return None;
        }
        self.fit(context - context / RESERVED_SHARE, |session| {
            // The prompt ends before the first item that is not fully encoded.
            let half = session.pending_windows.iter().find_map(|window| match window.target {
                WindowTarget::Item(item) => session.history.position(item),
                _ => None,
            });
            let open =
                session.audio_input.as_ref().filter(|_| half.is_none()).map(|audio_input| &audio_input.encoded[..]);
            let end = half.unwrap_or(session.history.items().len());
            Some((end, session.render(model, session.system.as_ref(), session.until(end), open, false)))
        })
    }

    /// A prompt of at most `limit` positions. If it is longer, the oldest items are evicted, more than is needed at once,
    /// because all that follows them is prefilled again. The last item stays, so a prompt can still be too long. `render`
    /// returns the position in the history at which the prompt ends, and the prompt.
    fn fit(
        &mut self,
        limit: usize,
        render: impl Fn(&Self) -> Option<(usize, Vec<Element<T>>)>,
    ) -> Option<Vec<Element<T>>> {
        let (mut end, mut elements) = render(self)?;
        if elements.len() > limit {
            while elements.len() > limit - limit / RESERVED_SHARE
                && end > 1
                && let Some(oldest) = self.history.evict_oldest()
            {
                self.pending_windows.retain(|window| window.target != WindowTarget::Item(oldest));
                (end, elements) = render(self)?;
            }
        }
        Some(elements)
    }

    fn until(&self, end: usize) -> Vec<Message<T>> {
        self.history.items()[..end].iter().map(|entry| entry.message.clone()).collect()
    }

    /// The messages of a response's own input, without items that were deleted since.
    fn messages(&self, parts: &[Part<T>]) -> Vec<Message<T>> {
        let message = |part: &Part<T>| match part {
            Part::Item(item) => self.history.get(*item).cloned(),
            Part::Own(_, message) => Some(message.clone()),
        };
        parts.iter().filter_map(message).collect()
    }

    fn render(
        &self,
        model: &ModelContext<'_, T>,
        system: Option<&Vec<u32>>,
        messages: Vec<Message<T>>,
        open: Option<&[Arc<AudioRows<T>>]>,
        respond: bool,
    ) -> Vec<Element<T>> {
        let system = system.into_iter().map(|ids| Message::System(ids.clone()));
        model.prompt.render(&system.chain(messages).collect::<Vec<_>>(), open, respond)
    }
}

impl<T> OutOfBandResponse<T> {
    fn response(&self) -> Option<ResponseId> {
        let active = self.active.as_ref().map(|active| active.request.response);
        active.or_else(|| self.waiting.as_ref().map(|pending| pending.request.response))
    }
}
