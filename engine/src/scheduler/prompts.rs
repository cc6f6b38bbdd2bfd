//! Delivery to the stages: silent prefill, starting responses, text that streams in, and what arrives from outside.

use std::time::Instant;

use repartee_engine_api::SessionError;

use super::Scheduler;
use crate::elements::Element;
use crate::session::DefaultLimits;
use crate::stage::{ResponseParams, StageEnd, StageItem};

impl Scheduler {
    /// Delivers changed prompts, begins responses that can begin, and passes on text that streamed in.
    pub(super) fn update_prompts(&mut self, now: Instant) -> bool {
        let mut moved = false;
        if !self.model.answers() {
            return moved;
        }
        let owners: Vec<usize> = self.sessions.keys().copied().collect();
        for owner in owners {
            self.guarded(owner, |scheduler| moved |= scheduler.update_prompts_of(owner, now));
        }
        moved
    }

    fn update_prompts_of(&mut self, owner: usize, now: Instant) -> bool {
        let mut moved = false;
        let context = self.model.slots.context;
        let limits = DefaultLimits { given: self.model.max_tokens, written: self.model.answer_tokens };
        let slots = match self.sessions.get(&owner) {
            Some(session) if session.has_capacity(self.events_per_tick) => session.startable(),
            _ => return false,
        };
        for slot in slots {
            let (Some(session), model) = self.split(owner, now) else { continue };
            let Some((elements, params)) = session.begin(slot, &model, limits) else { continue };
            moved = true;
            let tokens = self.model.template.tokens(elements.len());
            let (tokens, limit) = (tokens as u32, context as u32);
            if tokens >= limit {
                self.fail(slot, SessionError::ContextFull { tokens, limit });
                continue;
            }
            self.deliver_prompt(slot, elements, Some(params));
            let cached = self.model.stages[0].held(slot);
            if let Some(session) = self.sessions.get_mut(&owner) {
                session.note_cached(slot, cached);
            }
        }
        let (Some(session), model) = self.split(owner, now) else { return moved };
        if let Some(elements) = session.silent_prompt(&model)
            && self.model.template.tokens(elements.len()) < context
        {
            self.deliver_prompt(owner, elements, None);
        }
        let Some(session) = self.sessions.get(&owner) else { return moved };
        for slot in std::iter::once(owner).chain(session.out_of_band_slots()) {
            moved |= self.deliver_streamed(owner, slot, now);
            moved |= self.take_arrived(slot, now);
        }
        moved
    }

    /// Delivers a prompt to the first stage.
    pub(super) fn deliver_prompt(&mut self, slot: usize, elements: Vec<Element>, response: Option<ResponseParams>) {
        let later = &self.model.stages[1..];
        let read = elements.iter().map(|element| later.iter().any(|stage| stage.reads(element))).collect();
        let owner = self.owner(slot);
        if slot != owner {
            self.share_conversation(slot, owner, &elements);
        }
        self.deliver(0, slot, StageItem::Prompt { elements, read, response });
    }

    /// Shares the cached prefix of a session with its out-of-band response.
    fn share_conversation(&mut self, slot: usize, owner: usize, elements: &[Element]) {
        let stages = &mut self.model.stages;
        // The last position is always computed: the first token is sampled from its row.
        let shared = stages.iter().map(|stage| stage.shareable_prefix(owner, elements)).min().unwrap_or(0);
        let shared = shared.min(elements.len().saturating_sub(1));
        if shared <= stages[0].held(slot) {
            return;
        }
        if !stages.iter_mut().all(|stage| stage.share_prefix(slot, owner, &elements[..shared])) {
            for index in 0..stages.len() {
                self.free_stage(index, slot);
            }
        }
    }

    /// Delivers text that streamed in for the response in `slot`.
    fn deliver_streamed(&mut self, owner: usize, slot: usize, now: Instant) -> bool {
        let (Some(session), model) = self.split(owner, now) else { return false };
        let Some((elements, ends)) = session.take_streamed(slot, &model) else { return false };
        if !elements.is_empty() {
            self.deliver(0, slot, StageItem::Streamed(elements));
        }
        if ends {
            self.deliver(0, slot, StageItem::StreamedEnd(StageEnd::Stop));
        }
        true
    }

    /// Takes what has arrived for the stages in `slot` from outside of the engine.
    fn take_arrived(&mut self, slot: usize, now: Instant) -> bool {
        let mut moved = false;
        for index in 0..self.model.stages.len() {
            let mut out = Vec::new();
            if self.model.stages[index].arrived(slot, &mut out) {
                moved = true;
                self.step_began = now;
                self.route(index, out);
            }
        }
        moved
    }
}
