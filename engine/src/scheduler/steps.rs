//! The stages' work in a tick, and the routing of their output.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use repartee_engine_api::{FinishReason, SessionError};

use super::Scheduler;
use crate::deadline::{Share, Urgency, Want};
use crate::model::WindowInput;
use crate::stage::{End, Item, Need, Outbox, RowKind, Work};

/// Index of the encoder in the plan; the stages follow.
const ENCODER: usize = 0;

impl<T> Scheduler<T> {
    /// Runs the encoder and each stage once, with the slots that the planner chooses.
    pub(super) fn work(&mut self, now: Instant) -> bool {
        let mut wants: Vec<Vec<Want>> = (0..=self.model.stages.len()).map(|at| self.wants(at, now)).collect();
        let mut budget = self.planner.budget(now, &wants);
        let mut moved = false;
        for at in 0..wants.len() {
            if at > ENCODER {
                // The stages before it may have produced more.
                wants[at] = self.wants(at, now);
            }
            let shares = self.planner.plan(at, now, &wants[at], &wants[at + 1..], &mut budget);
            if shares.is_empty() {
                continue;
            }
            moved = true;
            for batch in self.batches(shares) {
                let begun = (self.clock)();
                let rows = batch.iter().map(|share| share.rows).sum();
                if at == ENCODER {
                    self.encode(&batch)
                } else {
                    self.step(at - 1, &batch)
                };
                let took = (self.clock)().saturating_duration_since(begun);
                self.planner.measured(at, rows, took);
                self.times[at].0 += took;
                self.times[at].1 += 1;
            }
        }
        let waiting: BTreeSet<usize> = wants.iter().flatten().map(|want| want.slot).collect();
        self.silent_since.retain(|slot, _| waiting.contains(slot));
        moved
    }

    /// The rows of every slot that the encoder or a stage could advance.
    fn wants(&mut self, at: usize, now: Instant) -> Vec<Want> {
        let mut wants = Vec::new();
        let out_of_band = self.out_of_band.iter().map(|(&slot, &owner)| (slot, owner));
        let slots: Vec<(usize, usize)> = self.sessions.keys().map(|&slot| (slot, slot)).chain(out_of_band).collect();
        for (slot, owner) in slots {
            let Some(session) = self.sessions.get(&owner) else { continue };
            let Need { rows, kind: _ } = match at {
                ENCODER if slot == owner => Need::rows(session.pending_windows.len(), RowKind::Window),
                ENCODER => Need::NONE,
                _ => self.model.stages[at - 1].need(slot),
            };
            if rows == 0 || (at != ENCODER && !session.has_room(self.events_per_tick)) {
                continue;
            }
            let mut urgency = match (at, session.waiting_since()) {
                // A response waits for this audio.
                (ENCODER, Some(since)) => Urgency::First { since },
                _ => session.urgency(slot, now),
            };
            match &mut urgency {
                Urgency::Silent { since } => *since = *self.silent_since.entry(slot).or_insert(now),
                // What later stages hold becomes sound before these rows do.
                Urgency::Playing { runs_out } if at != ENCODER => {
                    *runs_out += self.model.stages[at..].iter().map(|stage| stage.ahead(slot)).sum::<Duration>();
                }
                _ => {}
            }
            let arrived = session.requested_at(slot).unwrap_or(now);
            wants.push(Want { slot, rows, urgency, arrived });
        }
        wants
    }

    /// The batches of a step: one for all slots, and one for each quarantined slot.
    fn batches(&self, shares: Vec<Share>) -> Vec<Vec<Share>> {
        let (alone, together): (Vec<Share>, Vec<Share>) =
            shares.into_iter().partition(|share| !self.batch || self.quarantine.contains(&share.slot));
        let together = (!together.is_empty()).then_some(together);
        together.into_iter().chain(alone.into_iter().map(|share| vec![share])).collect()
    }

    fn encode(&mut self, shares: &[Share]) {
        let mut taken = Vec::new();
        for share in shares {
            if let Some(session) = self.sessions.get_mut(&share.slot) {
                let rows = share.rows.min(session.pending_windows.len());
                taken.extend(session.pending_windows.drain(..rows).map(|window| (share.slot, window)));
            }
        }
        let Some(ears) = &mut self.model.ears else { return };
        let encoder = &mut ears.encoder;
        let mut encode = |windows: &[(usize, crate::audio_input::PendingWindow)]| {
            let inputs: Vec<_> = windows
                .iter()
                .map(|(_, window)| WindowInput { data: &window.window.data, index: window.index })
                .collect();
            catch_unwind(AssertUnwindSafe(|| encoder.encode(&inputs))).ok()
        };
        let rows: Vec<_> = match encode(&taken) {
            Some(rows) => rows.into_iter().map(Some).collect(),
            // An encoder keeps no state, so each window is tried again alone.
            None => taken.chunks(1).map(|window| encode(window).and_then(|mut rows| rows.pop())).collect(),
        };
        for ((slot, window), rows) in taken.into_iter().zip(rows) {
            match rows {
                Some(rows) => {
                    if let Some(session) = self.sessions.get_mut(&slot) {
                        session.place_window(&window, rows);
                    }
                }
                None => self.fail(slot, internal("encoder")),
            }
        }
    }

    /// Steps one batch of one stage.
    fn step(&mut self, index: usize, shares: &[Share]) {
        // Slots that failed in an earlier batch of this tick have nothing ready.
        let present = shares.iter().filter(|share| self.model.stages[index].need(share.slot).rows >= share.rows);
        let work: Vec<Work> = present.map(|share| Work { slot: share.slot, rows: share.rows }).collect();
        if work.is_empty() {
            return;
        }
        let stage = &mut self.model.stages[index];
        let mut out = Vec::new();
        if catch_unwind(AssertUnwindSafe(|| stage.step(&work, &mut out))).is_ok() {
            self.route(index, out);
            return;
        }
        let name = stage.name();
        if let [Work { slot, .. }] = work[..] {
            tracing::error!(stage = name, "a stage panicked: the session at fault ends");
            self.fail(slot, internal(name));
            return;
        }
        tracing::error!(
            stage = name,
            sessions = work.len(),
            "a stage panicked: the responses of its batch are replayed one by one"
        );
        for Work { slot, .. } in work {
            self.replay(slot);
        }
    }

    /// Resets a slot, quarantines it and starts its response again.
    fn replay(&mut self, slot: usize) {
        self.reset(slot);
        self.quarantine.insert(slot);
        let now = (self.clock)();
        let owner = self.owner(slot);
        let (Some(session), model) = self.split(owner, now) else { return };
        if let Some((elements, params)) = session.replay(slot, &model) {
            self.deliver_prompt(slot, elements, Some(params));
        }
    }

    /// Delivers an item to a stage, and what that emits at once to the stages after it.
    pub(super) fn deliver(&mut self, index: usize, slot: usize, item: Item<T>) {
        let mut out = Vec::new();
        let stage = &mut self.model.stages[index];
        if catch_unwind(AssertUnwindSafe(|| stage.accept(slot, item, &mut out))).is_err() {
            let name = stage.name();
            tracing::error!(stage = name, "a stage panicked over an item: the session ends");
            return self.fail(slot, internal(name));
        }
        self.route(index, out);
    }

    /// Routes the output of stage `index` to the session and to the next stage.
    fn route(&mut self, index: usize, out: Outbox<T>) {
        let last = index + 1 == self.model.stages.len();
        for (slot, item) in out {
            let now = (self.clock)();
            let owner = self.owner(slot);
            let Some(session) = self.sessions.get_mut(&owner) else { continue };
            session.note_progress(slot, now);
            match &item {
                // Tokens of tool calls are not spoken.
                Item::Token(id) | Item::Row { id, .. } if !session.token(slot, *id, now) => continue,
                Item::Codes(codes) => session.frame(slot, codes, self.model.script.as_ref(), now),
                Item::Fail(error) => {
                    let error = error.clone();
                    self.fail(slot, error);
                    continue;
                }
                _ => {}
            }
            if !last {
                for item in self.edges[index].pass(slot, item) {
                    self.deliver(index + 1, slot, item);
                }
                continue;
            }
            match item {
                Item::Samples(samples) => session.samples(slot, samples, &self.model.codec, now),
                Item::End(End::Stop) => self.finish(slot, FinishReason::Stop),
                Item::End(End::Length) => self.finish(slot, FinishReason::Length),
                Item::Abort => self.finish(slot, FinishReason::Cancelled),
                _ => {}
            }
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

fn internal(stage: &'static str) -> SessionError {
    SessionError::Internal { stage, message: "it panicked; the server's log has the place".to_owned() }
}
