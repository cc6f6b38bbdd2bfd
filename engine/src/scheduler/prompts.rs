//! Delivery to the stages: silent prefill, starting responses, text that streams in, and what arrives from outside.

use std::time::{Duration, Instant};

use repartee_engine_api::SessionError;

use super::Scheduler;
use super::turns::{WaitingTurn, in_turn};
use crate::elements::Element;
use crate::session::{BegunResponse, DefaultLimits, Session};
use crate::stage::{ContextBudget, ResponseParams, StageEnd, StageItem};

/// Positions of prompts that a tick renders, and the time that it spends on them. At least one prompt is rendered. A
/// template that copies ids renders so many positions in a millisecond; that of a checkpoint takes longer.
const RENDERED_OF_TICK: usize = 4096;
const RENDERING: Duration = Duration::from_millis(3);

impl Scheduler {
    /// Delivers changed prompts, begins responses that can begin, and passes on text that streamed in.
    pub(super) fn update_prompts(&mut self, now: Instant) -> bool {
        let mut moved = false;
        if !self.model.answers() {
            return moved;
        }
        let (mut left, begun) = (RENDERED_OF_TICK, (self.clock)());
        for owner in self.prompts_in_turn() {
            if left == 0 || (self.clock)().saturating_duration_since(begun) > RENDERING {
                // The others have their turns in the next ticks.
                moved = true;
                break;
            }
            left = left.saturating_sub(self.sessions.get(&owner).map_or(0, Session::prompt_size).max(1));
            self.rendered = owner;
            self.guarded(owner, |scheduler| moved |= scheduler.render_prompts_of(owner, now));
        }
        let owners: Vec<usize> = self.sessions.keys().copied().collect();
        for owner in owners {
            self.guarded(owner, |scheduler| moved |= scheduler.take_streams_of(owner, now));
        }
        moved
    }

    /// Sessions whose prompts are to be rendered, those for which callers wait first.
    fn prompts_in_turn(&self) -> Vec<usize> {
        let events = self.events_per_tick;
        let waiting = self.sessions.iter().filter_map(|(&owner, session)| {
            let urgent = session.wants_prompt().filter(|_| session.has_capacity(events))?;
            Some(WaitingTurn { owner, tenant: session.tenant().id, urgent })
        });
        in_turn(waiting.collect(), self.rendered)
    }

    fn render_prompts_of(&mut self, owner: usize, now: Instant) -> bool {
        let mut moved = false;
        let context = self.model.slots.context;
        let limits = DefaultLimits { given: self.model.max_tokens, written: self.model.answer_tokens };
        let slots = match self.sessions.get(&owner) {
            Some(session) if session.has_capacity(self.events_per_tick) => session.startable(),
            _ => return false,
        };
        for slot in slots {
            let (Some(session), model) = self.split(owner, now) else { continue };
            let form_error = session.form_error(slot);
            let Some(begun) = session.begin(slot, &model, limits) else { continue };
            let BegunResponse { elements, params, excess } = begun;
            moved = true;
            if let Some(error) = form_error {
                self.fail(slot, error);
                continue;
            }
            if let Some(ContextBudget { used, limit }) = excess {
                let (tokens, limit) = (used as u32, limit as u32);
                self.fail(slot, SessionError::ContextFull { tokens, limit });
                continue;
            }
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
        moved
    }

    /// Passes on what streamed in or arrived for a session.
    fn take_streams_of(&mut self, owner: usize, now: Instant) -> bool {
        let mut moved = false;
        let events = self.events_per_tick;
        let Some(session) = self.sessions.get(&owner).filter(|session| session.has_capacity(events)) else {
            return moved;
        };
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
