//! Steps of the stages in a tick, and the routing of their output.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use repartee_engine_api::{FinishReason, SessionError};

use super::encoding::encode;
use super::faults::internal;
use super::hearing::recognise;
use super::{ENCODER, MAX_WINDOWS, Scheduler};
use crate::deadline::cost::StepRows;
use crate::deadline::{ReadyRows, ScheduledRows, TickBudget, Urgency};
use crate::model::Hearing;
use crate::session::response_output::SpeechDecision;
use crate::stage::{BatchEntry, Outbox, RowKind, RunnableRows, StageEnd, StageItem};

/// Index of the stage that reads the prompt.
const FIRST_STAGE: usize = 1;

impl Scheduler {
    /// Runs the encoder or recogniser and each stage once, with the slots that the planner chooses.
    pub(super) fn work(&mut self, now: Instant) -> bool {
        let wants: Vec<Vec<ReadyRows>> = (0..=self.model.stages.len()).map(|at| self.wants(at, now)).collect();
        let mut waiting: BTreeSet<usize> = wants.iter().flatten().map(|want| want.slot).collect();
        let moved = if self.pool.is_some() {
            self.run_stages_parallel(now, &wants)
        } else {
            self.work_in_turn(now, wants, &mut waiting)
        };
        self.silent_since.retain(|slot, _| waiting.contains(slot));
        moved
    }

    /// Budget of the tick. Records whether a caller waits for it.
    pub(super) fn tick_budget(&mut self, now: Instant, wants: &[Vec<ReadyRows>]) -> TickBudget {
        let mut tenants = self.sessions.values().map(|session| session.tenant().id);
        let first = tenants.next();
        self.planner.set_tenants(tenants.any(|tenant| Some(tenant) != first));
        let budget = self.planner.budget(now, wants);
        if budget.is_pressing() {
            self.gauges.set_due();
        }
        budget
    }

    /// Runs one stage after the other, so that each takes the output that the stage before it has just given.
    fn work_in_turn(&mut self, now: Instant, mut wants: Vec<Vec<ReadyRows>>, waiting: &mut BTreeSet<usize>) -> bool {
        let mut budget = self.tick_budget(now, &wants);
        let mut moved = false;
        for at in 0..wants.len() {
            if at > ENCODER {
                // Earlier stages may have produced more.
                wants[at] = self.wants(at, now);
                waiting.extend(wants[at].iter().map(|want| want.slot));
            }
            let shares = self.planner.plan(at, now, &wants[at], &wants[at + 1..], &mut budget);
            self.charge(at, &shares);
            for batch in self.batches(shares) {
                moved = true;
                let begun = (self.clock)();
                let rows = batch.iter().fold(StepRows::default(), |rows, share| rows.and(share.kind, share.rows));
                self.step_began = begun;
                if at == ENCODER {
                    self.hear(&batch)
                } else {
                    self.step(at - 1, &batch)
                }
                let took = (self.clock)().saturating_duration_since(begun);
                self.measured(at, rows, took);
            }
        }
        moved
    }

    /// Counts the rows of the first stage for the tenants of their sessions.
    pub(super) fn charge(&self, at: usize, shares: &[ScheduledRows]) {
        if at != FIRST_STAGE {
            return;
        }
        for share in shares {
            let Some(session) = self.sessions.get(&self.owner(share.slot)) else { continue };
            let rows = share.rows as u64;
            match share.kind {
                RowKind::Prefill => session.tenant().work.add(rows, 0),
                RowKind::Decode => session.tenant().work.add(0, rows),
                RowKind::Window | RowKind::SolverStep => {}
            }
        }
    }

    /// Records the duration of a step.
    pub(super) fn measured(&mut self, at: usize, rows: StepRows, took: Duration) {
        self.planner.measured(at, rows, took);
        let blocks = if at == ENCODER { 0 } else { self.model.stages[at - 1].blocks() };
        self.gauges.measured(at, rows.total(), took, blocks);
    }

    /// Collects the rows of every slot that the encoder, the recogniser or a stage could advance.
    fn wants(&mut self, at: usize, now: Instant) -> Vec<ReadyRows> {
        if at == ENCODER && self.unwindowed.is_some() {
            return self.hearing_wants(now);
        }
        let mut wants = Vec::new();
        let out_of_band = self.out_of_band.iter().map(|(&slot, &owner)| (slot, owner));
        let slots: Vec<(usize, usize)> = self.sessions.keys().map(|&slot| (slot, slot)).chain(out_of_band).collect();
        for (slot, owner) in slots {
            let Some(session) = self.sessions.get(&owner) else { continue };
            let (units, early) = if at == ENCODER { self.encoder_units(session, MAX_WINDOWS) } else { (0, false) };
            let RunnableRows { rows, kind } = match at {
                ENCODER if slot == owner => RunnableRows::rows(units, RowKind::Window),
                ENCODER => RunnableRows::NONE,
                _ => self.model.stages[at - 1].runnable_rows(slot),
            };
            if rows == 0 || (at != ENCODER && !session.has_capacity(self.events_per_tick)) {
                continue;
            }
            // Prompt rows for speech wait while responses are text alone.
            if at > FIRST_STAGE && kind == RowKind::Prefill && !session.is_spoken(slot) {
                continue;
            }
            let mut urgency = match (at, session.waiting_since()) {
                // Sent faster than real time.
                (ENCODER, _) if early => Urgency::Background { since: now },
                // A response waits for this audio.
                (ENCODER, Some(since)) => Urgency::First { since },
                // The caller waits for the result of a tool call, but speech that is due comes first.
                (FIRST_STAGE, _) => {
                    session.writes_call_since(slot).map_or(session.urgency(slot, now), |since| Urgency::First { since })
                }
                _ => session.urgency(slot, now),
            };
            match &mut urgency {
                Urgency::Silent { since } => *since = *self.silent_since.entry(slot).or_insert(now),
                Urgency::Background { since } if at == ENCODER => {
                    *since = *self.silent_since.entry(slot).or_insert(now);
                }
                // Audio that later stages hold plays before these rows do.
                Urgency::Playing { runs_out } if at != ENCODER => {
                    *runs_out +=
                        self.model.stages[at..].iter().map(|stage| stage.buffered_audio(slot)).sum::<Duration>();
                }
                _ => {}
            }
            let arrived = session.requested_at(slot).unwrap_or(now);
            wants.push(ReadyRows { slot, tenant: session.tenant().id, rows, kind, urgency, arrived });
        }
        wants
    }

    /// Groups the rows of a step into batches: one for all slots, and one for each quarantined slot.
    pub(super) fn batches(&self, shares: Vec<ScheduledRows>) -> Vec<Vec<ScheduledRows>> {
        let (alone, together): (Vec<ScheduledRows>, Vec<ScheduledRows>) =
            shares.into_iter().partition(|share| !self.batch || self.quarantine.contains(&share.slot));
        let together = (!together.is_empty()).then_some(together);
        together.into_iter().chain(alone.into_iter().map(|share| vec![share])).collect()
    }

    /// Runs the encoder or recogniser.
    fn hear(&mut self, shares: &[ScheduledRows]) {
        let slots = self.model.slots;
        let windows = if self.unwindowed.is_some() { Vec::new() } else { self.take_windows(shares) };
        match &mut self.model.hearing {
            Some(Hearing::Rows(ears)) => {
                let encoded = encode(ears.encoder.as_mut(), windows);
                self.place_encoded(encoded);
            }
            Some(Hearing::Text(recogniser)) => {
                let recognised = recognise(recogniser.as_mut(), slots, shares);
                self.place_recognised(recognised);
            }
            None => {}
        }
    }

    /// Steps one batch of one stage.
    fn step(&mut self, index: usize, shares: &[ScheduledRows]) {
        // Slots that failed in an earlier batch of this tick have nothing ready.
        let present =
            shares.iter().filter(|share| self.model.stages[index].runnable_rows(share.slot).rows >= share.rows);
        let work: Vec<BatchEntry> = present.map(|share| BatchEntry { slot: share.slot, rows: share.rows }).collect();
        if work.is_empty() {
            return;
        }
        let stage = &mut self.model.stages[index];
        let mut out = Vec::new();
        match catch_unwind(AssertUnwindSafe(|| stage.step(&work, &mut out))) {
            Ok(()) => self.route(index, out),
            Err(_) => self.panicked(index, &work),
        }
    }

    /// Handles a panic of a batch: ends the session of a batch of one; of a larger batch replays each response alone.
    pub(super) fn panicked(&mut self, index: usize, work: &[BatchEntry]) {
        let name = self.model.stages[index].name();
        if let [BatchEntry { slot, .. }] = *work {
            self.span(slot).in_scope(|| tracing::error!(stage = name, "a stage panicked: the session at fault ends"));
            self.fail(slot, internal(name));
            return;
        }
        tracing::error!(
            stage = name,
            sessions = work.len(),
            "a stage panicked: the responses of its batch are replayed one by one"
        );
        for BatchEntry { slot, .. } in work {
            self.replay(*slot);
        }
    }

    /// Resets a slot, quarantines it and restarts its response.
    fn replay(&mut self, slot: usize) {
        if !self.model.stages.iter().all(|stage| stage.is_replayable()) {
            return self.fail(slot, SessionError::Interrupted);
        }
        self.reset(slot);
        self.quarantine.insert(slot);
        let now = (self.clock)();
        let owner = self.owner(slot);
        let (Some(session), model) = self.split(owner, now) else { return };
        if let Some((elements, params)) = session.replay(slot, &model) {
            self.deliver_prompt(slot, elements, Some(params));
        }
    }

    /// Delivers an item to a stage, and the stage's immediate output to the stages after it.
    pub(super) fn deliver(&mut self, index: usize, slot: usize, item: StageItem) {
        let mut out = Vec::new();
        let stage = &mut self.model.stages[index];
        if catch_unwind(AssertUnwindSafe(|| stage.accept(slot, item, &mut out))).is_err() {
            let name = stage.name();
            let span = self.span(slot);
            span.in_scope(|| tracing::error!(stage = name, "a stage panicked over an item: the session ends"));
            return self.fail(slot, internal(name));
        }
        self.route(index, out);
    }

    /// Routes the output of stage `index` to the session and to the next stage.
    pub(super) fn route(&mut self, index: usize, out: Outbox) {
        for (slot, item) in out {
            let owner = self.owner(slot);
            self.guarded(owner, |scheduler| scheduler.route_item(index, slot, item));
        }
    }

    fn route_item(&mut self, index: usize, slot: usize, item: StageItem) {
        let (began, now) = (self.step_began, (self.clock)());
        let owner = self.owner(slot);
        let Some(session) = self.sessions.get_mut(&owner) else { return };
        session.note_progress(slot, now);
        match &item {
            // Later tokens are the text of the first stage in another model's vocabulary.
            StageItem::Token(id) if index == 0 => {
                let answer = session.generated(slot, *id, began, now);
                return self.route_answer(slot, answer);
            }
            // Rows have no reasoning text among them.
            StageItem::Row { id, .. } if index == 0 => {
                let id = *id;
                session.generated(slot, id, began, now);
                let decision = session.tokens(slot, &[id]).pop().unwrap_or(SpeechDecision::No);
                return self.speak(slot, decision, item);
            }
            StageItem::End(_) if index == 0 => {
                let answer = session.rest_of_answer(slot);
                self.route_answer(slot, answer);
            }
            StageItem::Text { text, ids } => match session.text(slot, (text, ids), self.model.template.as_ref(), now) {
                SpeechDecision::Yes | SpeechDecision::Pauses => {}
                SpeechDecision::No => return,
            },
            StageItem::Call { name, arguments, ids } => {
                let call = (name.clone(), arguments.clone(), &ids[..]);
                return session.call(slot, call, self.model.template.as_ref(), now);
            }
            StageItem::Usage(usage) => return session.usage(slot, *usage),
            StageItem::Progress => return,
            StageItem::Codes(codes) => session.frame(slot, codes, self.model.template.as_ref(), now),
            StageItem::Fail(error) => {
                let error = error.clone();
                return self.fail(slot, error);
            }
            _ => {}
        }
        if index + 1 < self.model.stages.len() {
            return self.pass(index, slot, item);
        }
        match item {
            StageItem::Samples(samples) => {
                if let (Some(codec), Some(session)) = (&self.model.codec, self.sessions.get_mut(&owner)) {
                    session.samples(slot, samples, codec, now);
                }
            }
            StageItem::End(StageEnd::Stop) => self.finish(slot, FinishReason::Stop),
            StageItem::End(StageEnd::Length) => self.finish(slot, FinishReason::Length),
            StageItem::Abort => self.finish(slot, FinishReason::Cancelled),
            _ => {}
        }
    }

    /// Routes tokens of the first stage's answer to the session, and to the next stage if they are spoken.
    fn route_answer(&mut self, slot: usize, answer: Vec<u32>) {
        let owner = self.owner(slot);
        let Some(session) = self.sessions.get_mut(&owner) else { return };
        let decisions = session.tokens(slot, &answer);
        for (id, decision) in answer.into_iter().zip(decisions) {
            self.speak(slot, decision, StageItem::Token(id));
        }
    }

    /// Passes a text item of the first stage on if it is spoken.
    fn speak(&mut self, slot: usize, decision: SpeechDecision, item: StageItem) {
        match decision {
            SpeechDecision::Yes => self.pass(0, slot, item),
            // Later stages would wait for text while the call is generated.
            SpeechDecision::Pauses => self.pass(0, slot, StageItem::TextPause),
            SpeechDecision::No => {}
        }
    }

    /// Passes an item of stage `index` to the next one, if any.
    fn pass(&mut self, index: usize, slot: usize, item: StageItem) {
        let Some(edge) = self.edges.get_mut(index) else { return };
        for item in edge.pass(slot, item) {
            self.deliver(index + 1, slot, item);
        }
    }

    fn finish(&mut self, slot: usize, reason: FinishReason) {
        self.quarantine.remove(&slot);
        let owner = self.owner(slot);
        if let Some(session) = self.sessions.get_mut(&owner) {
            session.finish(slot, reason);
        }
        self.reclaim(slot);
    }

    /// Reports a failure and resets the slot. If the session goes on, its prompt is prefilled again.
    pub(super) fn fail(&mut self, slot: usize, error: SessionError) {
        let fatal = error.is_fatal();
        let owner = self.owner(slot);
        if let Some(session) = self.sessions.get_mut(&owner) {
            session.finish_failed(slot, error);
            self.reset(slot);
            self.reclaim(slot);
        }
        if fatal {
            self.close(owner);
        }
    }
}
