//! A recogniser in the tick loop: its sound, its steps, and its hypotheses on their way to the sessions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use repartee_engine_api::SessionError;

use super::Scheduler;
use super::extra_hearing::ExtraHearing;
use super::faults::internal;
use crate::audio_input::EncoderTimes;
use crate::deadline::{ReadyRows, ScheduledRows, Urgency};
use crate::model::{Hearing, SlotCounts};
use crate::recogniser::{HypothesisOutbox, Recogniser};
use crate::stage::{BatchEntry, RunnableRows};

/// Outcome of a recogniser's step.
pub(super) struct Recognised {
    /// Slots of the step.
    slots: Vec<usize>,
    out: HypothesisOutbox,
    /// Slots over which the recogniser panicked.
    panicked: Vec<usize>,
}

/// Number of the recogniser's slot in the plan: those for complete audio follow the slots of the stages.
pub(super) fn planned_slot(slots: SlotCounts, slot: usize) -> usize {
    if slot < slots.sessions { slot } else { slot + slots.out_of_band }
}

/// The recogniser's slot with this number in the plan.
fn hearing_slot(slots: SlotCounts, planned: usize) -> usize {
    if planned < slots.sessions { planned } else { planned - slots.out_of_band }
}

/// Advances slots as one batch; `slots` are those of the stages. A recogniser keeps its state until the step is collected, so after a panic each slot is
/// tried again alone.
pub(super) fn recognise(recogniser: &mut dyn Recogniser, slots: SlotCounts, shares: &[ScheduledRows]) -> Recognised {
    let entries = shares.iter().map(|share| BatchEntry { slot: hearing_slot(slots, share.slot), rows: share.rows });
    // Slots that failed in an earlier batch of this tick have nothing ready.
    let work: Vec<BatchEntry> =
        entries.filter(|entry| recogniser.runnable_rows(entry.slot).rows >= entry.rows).collect();
    let slots = work.iter().map(|entry| entry.slot).collect();
    let mut attempt = |work: &[BatchEntry]| {
        let mut out = HypothesisOutbox::new();
        catch_unwind(AssertUnwindSafe(|| recogniser.step(work, &mut out))).ok().map(|()| out)
    };
    let (mut out, mut panicked) = (HypothesisOutbox::new(), Vec::new());
    match attempt(&work) {
        Some(all) => out = all,
        None => {
            for entry in &work {
                match attempt(std::slice::from_ref(entry)) {
                    Some(one) => out.extend(one),
                    None => panicked.push(entry.slot),
                }
            }
        }
    }
    Recognised { slots, out, panicked }
}

impl Scheduler {
    /// Passes sound to the recogniser; true if anything was done.
    pub(super) fn feed_recogniser(&mut self, now: Instant) -> bool {
        let mut moved = false;
        if !matches!(self.model.hearing, Some(Hearing::Text(_))) {
            return moved;
        }
        let owners: Vec<usize> = self.sessions.keys().copied().collect();
        for &owner in &owners {
            self.guarded(owner, |scheduler| scheduler.release_hearing(owner));
        }
        let Self { extra_hearing: ExtraHearing { free, taken, waiting }, sessions, .. } = self;
        while let (Some(&slot), Some(owner)) = (free.last(), waiting.pop_front()) {
            if let Some(session) = sessions.get_mut(&owner).filter(|session| session.recognitions.wants_slot()) {
                free.pop();
                taken.insert(slot, owner);
                session.recognitions.assign(slot);
            }
        }
        for owner in owners {
            self.guarded(owner, |scheduler| {
                if let (Some(Hearing::Text(recogniser)), Some(session)) =
                    (&mut scheduler.model.hearing, scheduler.sessions.get_mut(&owner))
                {
                    moved |= session.feed(recogniser.as_mut(), now);
                }
            });
        }
        moved
    }

    /// Frees the recogniser's slots of a session whose audio is gone, and queues the session for a slot if it wants one.
    fn release_hearing(&mut self, owner: usize) {
        let (Some(Hearing::Text(recogniser)), Some(session)) = (&mut self.model.hearing, self.sessions.get_mut(&owner))
        else {
            return;
        };
        if let Some(slot) = session.recognitions.release(recogniser.as_mut()) {
            self.extra_hearing.release(slot);
        }
        if session.recognitions.wants_slot() && !self.extra_hearing.waiting.contains(&owner) {
            self.extra_hearing.waiting.push_back(owner);
        }
    }

    /// Units of work that the recogniser could advance for a session.
    pub(super) fn runnable_hearing(&self, slot: usize) -> RunnableRows {
        match &self.model.hearing {
            Some(Hearing::Text(recogniser)) => recogniser.runnable_rows(slot),
            Some(Hearing::Rows(_)) | None => RunnableRows::NONE,
        }
    }

    /// Slots of the recogniser that belong to a session: (number in the plan, slot of the recogniser, session).
    pub(super) fn hearing_slots(&self) -> Vec<(usize, usize, usize)> {
        let own = self.sessions.keys().map(|&owner| (owner, owner));
        let extra = self.extra_hearing.taken.iter().map(|(&slot, &owner)| (slot, owner));
        own.chain(extra).map(|(slot, owner)| (planned_slot(self.model.slots, slot), slot, owner)).collect()
    }

    /// Collects the units of work that the recogniser could advance.
    pub(super) fn hearing_wants(&mut self, now: Instant) -> Vec<ReadyRows> {
        let mut wants = Vec::new();
        for (planned, slot, owner) in self.hearing_slots() {
            let Some(session) = self.sessions.get(&owner) else { continue };
            let RunnableRows { rows, kind } = self.runnable_hearing(slot);
            if rows == 0 || !session.has_capacity(self.events_per_tick) {
                continue;
            }
            let early = session.recognitions.is_early(slot);
            let mut since = |of: usize| *self.silent_since.entry(of).or_insert(now);
            let urgency = match session.waiting_since() {
                // Sent faster than real time.
                _ if early => Urgency::Background { since: since(planned) },
                // A response waits for this audio.
                Some(since) => Urgency::First { since },
                None => Urgency::Silent { since: since(planned) },
            };
            let arrived = session.requested_at(owner).unwrap_or(now);
            wants.push(ReadyRows { slot: planned, tenant: session.tenant().id, rows, kind, urgency, arrived });
        }
        wants
    }

    /// Gives hypotheses to their sessions. Ends a session whose sound could not be heard.
    pub(super) fn place_recognised(&mut self, Recognised { slots, out, panicked }: Recognised) {
        let times = EncoderTimes { began: self.step_began, ended: (self.clock)() };
        let name = match &self.model.hearing {
            Some(Hearing::Text(recogniser)) => recogniser.name(),
            Some(Hearing::Rows(_)) | None => return,
        };
        for slot in slots {
            if let Some(session) = self.sessions.get_mut(&self.extra_hearing.owner(slot)) {
                session.note_hearing();
            }
        }
        for slot in panicked {
            let owner = self.extra_hearing.owner(slot);
            let span = self.span(owner);
            span.in_scope(|| tracing::error!(stage = name, "the recogniser panicked: the session at fault ends"));
            self.fail(owner, internal(name));
        }
        for (slot, heard) in out {
            let owner = self.extra_hearing.owner(slot);
            self.guarded(owner, |scheduler| {
                let (Some(session), model) = scheduler.split(owner, times.ended) else { return };
                let failure = match heard {
                    Ok(hypothesis) => {
                        let message = session.heard(slot, hypothesis, times, &model).err();
                        message.map(|message| SessionError::Internal { stage: name, message: message.to_owned() })
                    }
                    Err(error) if error.is_fatal() => Some(error),
                    Err(error) => Some(SessionError::Internal { stage: name, message: error.to_string() }),
                };
                if let Some(error) = failure {
                    scheduler.fail(owner, error);
                }
            });
        }
    }

    /// Frees the recogniser's slots of a session that ends.
    pub(super) fn free_hearing(&mut self, owner: usize) {
        let extra = self.extra_hearing.reset(owner);
        let Some(Hearing::Text(recogniser)) = &mut self.model.hearing else { return };
        for slot in extra.into_iter().chain([owner]) {
            if catch_unwind(AssertUnwindSafe(|| recogniser.free(slot))).is_err() {
                tracing::error!(stage = recogniser.name(), "the recogniser panicked while it freed a slot");
            }
        }
    }
}
