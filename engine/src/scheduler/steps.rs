//! The stages' work in a tick, and what becomes of what they make.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use repartee_engine_api::{FinishReason, SessionError};

use super::{EVENTS_PER_TICK, Scheduler};
use crate::deadline::{Share, Urgency, Want};
use crate::stage::{End, Item, MelInput, Outbox, Work};

/// The encoder among what is planned; stages follow.
const ENCODER: usize = 0;

impl<T> Scheduler<T> {
    /// Encodes and steps each stage once, with those whom the planner chooses.
    pub(super) fn work(&mut self, now: Instant) -> bool {
        let mut wants: Vec<Vec<Want>> = (0..=self.model.stages.len()).map(|at| self.wants(at, now)).collect();
        let mut budget = self.planner.budget(now, &wants);
        let mut moved = false;
        for at in 0..wants.len() {
            if at > ENCODER {
                // The stages before may have made more of it.
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
        let waiting: BTreeSet<usize> = wants.iter().flatten().map(|want| want.lane).collect();
        self.silent_since.retain(|lane, _| waiting.contains(lane));
        moved
    }

    /// What every session wishes of the encoder or a stage.
    fn wants(&mut self, at: usize, now: Instant) -> Vec<Want> {
        let mut wants = Vec::new();
        let beside = self.beside.iter().map(|(&lane, &owner)| (lane, owner));
        let lanes: Vec<(usize, usize)> = self.sessions.keys().map(|&lane| (lane, lane)).chain(beside).collect();
        for (lane, owner) in lanes {
            let Some(session) = self.sessions.get(&owner) else { continue };
            let rows = match at {
                ENCODER if lane == owner => session.pending.len(),
                ENCODER => 0,
                _ => self.model.stages[at - 1].ready(lane),
            };
            if rows == 0 || (at != ENCODER && !session.has_room(EVENTS_PER_TICK)) {
                continue;
            }
            let mut urgency = match (at, session.waits_since()) {
                // Sound that an answer waits for.
                (ENCODER, Some(since)) => Urgency::First { since },
                _ => session.urgency(lane, now),
            };
            match &mut urgency {
                Urgency::Silent { since } => *since = *self.silent_since.entry(lane).or_insert(now),
                // What waits in later stages becomes sound before this does.
                Urgency::Playing { runs_out } if at != ENCODER => {
                    let ahead: usize = self.model.stages[at..].iter().map(|stage| stage.ready(lane)).sum();
                    *runs_out += self.model.codec.frame * u32::try_from(ahead).unwrap_or(u32::MAX).min(1000);
                }
                _ => {}
            }
            let arrived = session.asked_at(lane).unwrap_or(now);
            wants.push(Want { lane, rows, urgency, arrived });
        }
        wants
    }

    /// Who is stepped together: everybody, but suspects each alone.
    fn batches(&self, shares: Vec<Share>) -> Vec<Vec<Share>> {
        let (alone, together): (Vec<Share>, Vec<Share>) =
            shares.into_iter().partition(|share| !self.batch || self.suspects.contains(&share.lane));
        let together = (!together.is_empty()).then_some(together);
        together.into_iter().chain(alone.into_iter().map(|share| vec![share])).collect()
    }

    fn encode(&mut self, shares: &[Share]) {
        let mut taken = Vec::new();
        for share in shares {
            if let Some(session) = self.sessions.get_mut(&share.lane) {
                let rows = share.rows.min(session.pending.len());
                taken.extend(session.pending.drain(..rows).map(|window| (share.lane, window)));
            }
        }
        let encoder = &mut self.model.encoder;
        let mut encode = |windows: &[(usize, crate::hearing::PendingWindow)]| {
            let inputs: Vec<_> =
                windows.iter().map(|(_, window)| MelInput { mel: &window.mel.data, index: window.index }).collect();
            catch_unwind(AssertUnwindSafe(|| encoder.encode(&inputs))).ok()
        };
        let rows: Vec<_> = match encode(&taken) {
            Some(rows) => rows.into_iter().map(Some).collect(),
            // An encoder keeps no state: each window is tried once more, alone.
            None => taken.chunks(1).map(|window| encode(window).and_then(|mut rows| rows.pop())).collect(),
        };
        for ((lane, window), rows) in taken.into_iter().zip(rows) {
            match rows {
                Some(rows) => {
                    if let Some(session) = self.sessions.get_mut(&lane) {
                        session.place(&window, rows);
                    }
                }
                None => self.fail(lane, internal("encoder")),
            }
        }
    }

    /// One batch of one stage.
    fn step(&mut self, index: usize, shares: &[Share]) {
        // Whoever failed in a batch before this one is gone.
        let present = shares.iter().filter(|share| self.model.stages[index].ready(share.lane) >= share.rows);
        let work: Vec<Work> = present.map(|share| Work { slot: share.lane, rows: share.rows }).collect();
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
        tracing::error!(stage = name, sessions = work.len(), "a stage panicked: its batch is made again one by one");
        for Work { slot, .. } in work {
            self.make_again(slot);
        }
    }

    /// Takes a lane's state back in every stage and makes what was being made of it once more, alone.
    fn make_again(&mut self, lane: usize) {
        self.forget(lane);
        self.suspects.insert(lane);
        let now = (self.clock)();
        let owner = self.owner(lane);
        let (Some(session), model) = self.split(owner, now) else { return };
        if let Some((elements, answer)) = session.make_again(lane, &model) {
            self.deliver(0, lane, Item::Prompt { elements, answer: Some(answer) });
        }
    }

    /// Gives an item to a stage, and on to the stages after it what that makes at once.
    pub(super) fn deliver(&mut self, index: usize, lane: usize, item: Item<T>) {
        let mut out = Vec::new();
        let stage = &mut self.model.stages[index];
        if catch_unwind(AssertUnwindSafe(|| stage.accept(lane, item, &mut out))).is_err() {
            let name = stage.name();
            tracing::error!(stage = name, "a stage panicked over an item: the session ends");
            return self.fail(lane, internal(name));
        }
        self.route(index, out);
    }

    /// Hands on what stage `index` made: to the caller what concerns it, and to the next stage.
    fn route(&mut self, index: usize, out: Outbox<T>) {
        let last = index + 1 == self.model.stages.len();
        for (lane, item) in out {
            let now = (self.clock)();
            let owner = self.owner(lane);
            let Some(session) = self.sessions.get_mut(&owner) else { continue };
            session.moved(lane, now);
            match &item {
                // A token of a tool call is nothing to be spoken.
                Item::Token(id) if !session.token(lane, *id, now) => continue,
                Item::Frame(_) => session.frame(lane, now),
                Item::Fail(error) => {
                    let error = error.clone();
                    self.fail(lane, error);
                    continue;
                }
                _ => {}
            }
            if !last {
                for item in self.edges[index].pass(lane, item) {
                    self.deliver(index + 1, lane, item);
                }
                continue;
            }
            let rate = self.model.codec.sample_rate;
            match item {
                Item::Samples(samples) => session.samples(lane, samples, rate, now),
                Item::End(End::Stop) => self.finish(lane, FinishReason::Stop),
                Item::End(End::Length) => self.finish(lane, FinishReason::Length),
                Item::Abort => self.finish(lane, FinishReason::Cancelled),
                _ => {}
            }
        }
    }

    fn finish(&mut self, lane: usize, reason: FinishReason) {
        self.suspects.remove(&lane);
        let owner = self.owner(lane);
        if let Some(session) = self.sessions.get_mut(&owner) {
            session.finish(lane, reason);
        }
        self.reclaim(lane);
    }

    /// Reports a failure. The stages forget the lane; if its session lives on they will read its prompt again.
    pub(super) fn fail(&mut self, lane: usize, error: SessionError) {
        let fatal = error.is_fatal();
        let owner = self.owner(lane);
        if let Some(session) = self.sessions.get_mut(&owner) {
            session.finish_failed(lane, error);
            self.forget(lane);
            self.reclaim(lane);
        }
        if fatal {
            self.free(owner);
        }
    }
}

fn internal(stage: &'static str) -> SessionError {
    SessionError::Internal { stage, message: "it panicked; the server's log says where".to_owned() }
}
