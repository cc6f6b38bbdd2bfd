//! Isolation of panics outside of the stages' steps.
//!
//! A panic in work for one session (a command, a prompt, an item that a stage made for it) ends that session alone. A
//! panic anywhere else ends every session, because shared state may be half changed; the loop goes on without sessions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use repartee_engine_api::SessionError;

use super::{Scheduler, Tick};

/// Error of a session after a panic in `stage`.
pub(super) fn internal(stage: &'static str) -> SessionError {
    SessionError::Internal { stage, message: "it panicked; the server's log has the place".to_owned() }
}

impl Scheduler {
    /// Runs a tick. A panic that belongs to no single session ends every session. The engine is ready again once a tick
    /// succeeds.
    pub(super) fn guarded_tick(&mut self) -> Tick {
        self.gauges.set_ticking(true);
        let ended = catch_unwind(AssertUnwindSafe(|| self.tick_once()));
        self.gauges.set_ticking(false);
        if let Ok(tick) = ended {
            self.gauges.ready.store(true, Ordering::Release);
            return tick;
        }
        self.gauges.ready.store(false, Ordering::Release);
        let owners: Vec<usize> = self.sessions.keys().copied().collect();
        tracing::error!(sessions = owners.len(), "the engine panicked: every session ends, and it starts again");
        for &owner in &owners {
            self.end_at_fault(owner, "engine");
        }
        Tick::Moved
    }

    /// Runs work for one session, and ends the session if it panics.
    pub(super) fn guarded(&mut self, owner: usize, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            self.span(owner).in_scope(|| tracing::error!("the work for a session panicked: it ends"));
            self.end_at_fault(owner, "session");
        }
    }

    /// Ends a session after a panic, whatever its state.
    fn end_at_fault(&mut self, owner: usize, part: &'static str) {
        if let Some(session) = self.sessions.get_mut(&owner) {
            let reported = catch_unwind(AssertUnwindSafe(|| session.finish_failed(owner, internal(part))));
            if reported.is_err() {
                session.fail(None, internal(part));
            }
        }
        self.close(owner);
    }

    /// Frees a stage's resources of a slot. A stage that panics here keeps them; the next response begins anew all the
    /// same.
    pub(super) fn free_stage(&mut self, index: usize, slot: usize) {
        let stage = &mut self.model.stages[index];
        if catch_unwind(AssertUnwindSafe(|| stage.free(slot))).is_err() {
            tracing::error!(stage = stage.name(), "a stage panicked while it freed a slot");
        }
    }

    /// Publishes [`Scheduler::held`] and the stages' blocks.
    pub(super) fn publish_held(&self) {
        if let Ok(held) = catch_unwind(AssertUnwindSafe(|| self.held())) {
            self.gauges.held.store(held, Ordering::Release);
            self.gauges.hold(self.model.stages.iter().map(|stage| stage.blocks()));
        }
    }
}
