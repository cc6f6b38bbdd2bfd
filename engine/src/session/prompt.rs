//! Prompts of responses and of silent prefill, and eviction of the oldest items.

use std::sync::Arc;

use repartee_engine_api::EngineUsage;

use super::active_response::ActiveResponse;
use super::hearing::cut_after;
use super::pending_response::InputPart;
use super::{ModelContext, Session};
use crate::audio_input::WindowTarget;
use crate::elements::{AudioRows, Element, Message, MessageKind};
use crate::stage::{ContextBudget, ResponseParams};

/// Share of a prompt's limit that an eviction frees: one in four positions.
const FREED_SHARE: usize = 4;

/// Upper bounds of the text tokens of responses whose request has none.
#[derive(Debug, Clone, Copy)]
pub struct DefaultLimits {
    /// Of a given text.
    pub given: u32,
    /// Of a text that the model writes.
    pub written: u32,
}

impl Session {
    /// Begins the pending response in `slot`; returns its prompt and parameters.
    pub fn begin(
        &mut self,
        slot: usize,
        model: &ModelContext<'_>,
        limits: DefaultLimits,
    ) -> Option<(Vec<Element>, ResponseParams)> {
        let pending = if slot == self.slot {
            self.pending_responses.pop_front()?
        } else {
            self.out_of_band.iter_mut().find(|other| other.slot == slot)?.waiting.take()?
        };
        let limit = if pending.request.streamed { limits.given } else { limits.written };
        let most = pending.request.max_tokens.unwrap_or(limit);
        let system = pending.system.as_ref();
        let elements = match &pending.input {
            Some(parts) => self.render(model, system, self.messages(parts), None, true),
            None if pending.request.out_of_band => {
                let complete = self.history.items().iter().filter(|entry| !self.is_unfinished(entry.id));
                self.render(model, system, complete.map(|entry| entry.message.clone()).collect(), None, true)
            }
            None => self.fit(model, most, |session| {
                let end = session.history.position(pending.request.item)?;
                Some((end, session.render(model, system, session.until(end), None, true)))
            })?,
        };
        let audio = elements.iter().filter(|element| element.is_audio()).count() as u32;
        let usage = EngineUsage {
            input_text_tokens: model.template.tokens(elements.len() - audio as usize) as u32,
            input_audio_tokens: audio,
            ..EngineUsage::default()
        };
        let params = ResponseParams {
            response: pending.request.response,
            seed: pending.request.seed,
            voice: pending.request.voice.clone().unwrap_or_else(|| model.voices.first().cloned().unwrap_or_default()),
            audio: pending.request.audio,
            streamed: pending.request.streamed,
            tools: pending.tools.clone(),
            max_tokens: most,
            sampling: pending.request.sampling,
        };
        let active =
            ActiveResponse::new(pending, params.clone(), elements.clone(), usage, self.encoder, &self.tools, model);
        if slot == self.slot {
            self.writes_alone = !params.audio;
            self.active = Some(active);
        } else if let Some(other) = self.out_of_band.iter_mut().find(|other| other.slot == slot) {
            other.active = Some(active);
        }
        Some((elements, params))
    }

    /// Prompt for silent prefill; `None` if it has not changed since the last call, or an in-band response is active or
    /// pending.
    pub fn silent_prompt(&mut self, model: &ModelContext<'_>) -> Option<Vec<Element>> {
        if self.active.is_some() || !self.pending_responses.is_empty() || !std::mem::take(&mut self.changed) {
            return None;
        }
        // The next response may ask for any number of tokens.
        self.fit(model, u32::MAX, |session| {
            // The prompt ends before the first item that is not fully encoded.
            let half = session.unencoded().filter_map(|target| match target {
                WindowTarget::Item(item) => Some((session.history.position(item)?, item)),
                _ => None,
            });
            let half = half.min();
            let end = half.map_or(session.history.items().len(), |(end, _)| end);
            let mut messages = session.until(end);
            // Text that is being heard ends the prompt, without what closes a message.
            let growing = session.growing_ids(half.map(|(_, item)| item));
            if !growing.is_empty() {
                messages.push(Message::text(MessageKind::User, growing.to_vec()));
                let mut elements = session.render(model, session.system.as_ref(), messages, None, false);
                cut_after(&mut elements, growing);
                return Some((end, elements));
            }
            let open = session.audio_input.as_ref().filter(|_| half.is_none() && !model.hears_text);
            let open = open.map(|audio_input| &audio_input.encoded[..]);
            Some((end, session.render(model, session.system.as_ref(), messages, open, false)))
        })
    }

    /// Renders a prompt that leaves every stage space for a response of `max_tokens` text tokens. If it is longer, the
    /// oldest items are evicted, more than needed at once, because everything after them is prefilled again. The last
    /// item stays, so a prompt can still be too long. `render` returns the prompt and the index in the history at which
    /// it ends.
    fn fit(
        &mut self,
        model: &ModelContext<'_>,
        max_tokens: u32,
        render: impl Fn(&Self) -> Option<(usize, Vec<Element>)>,
    ) -> Option<Vec<Element>> {
        let fits = |elements: &[Element], freed: bool| {
            let mut rooms = model.stages.iter().filter_map(|stage| stage.context_budget(elements, max_tokens as usize));
            rooms.all(|ContextBudget { used, limit }| used <= limit - if freed { limit / FREED_SHARE } else { 0 })
        };
        let (mut end, mut elements) = render(self)?;
        if !fits(&elements, false) {
            while !fits(&elements, true)
                && end > 1
                && let Some(oldest) = self.history.evict_oldest()
            {
                self.drop_audio(oldest);
                (end, elements) = render(self)?;
            }
        }
        Some(elements)
    }

    fn until(&self, end: usize) -> Vec<Message> {
        self.history.items()[..end].iter().map(|entry| entry.message.clone()).collect()
    }

    /// Messages of a response's own input, without items that were deleted since.
    fn messages(&self, parts: &[InputPart]) -> Vec<Message> {
        let message = |part: &InputPart| match part {
            InputPart::Item(item) => self.history.get(*item).cloned(),
            InputPart::Own(_, message) => Some(message.clone()),
        };
        parts.iter().filter_map(message).collect()
    }

    fn render(
        &self,
        model: &ModelContext<'_>,
        system: Option<&Vec<u32>>,
        messages: Vec<Message>,
        open: Option<&[Arc<AudioRows>]>,
        respond: bool,
    ) -> Vec<Element> {
        let system = system.into_iter().map(|ids| Message::text(MessageKind::System, ids.clone()));
        model.template.render(&system.chain(messages).collect::<Vec<_>>(), open, respond)
    }
}
