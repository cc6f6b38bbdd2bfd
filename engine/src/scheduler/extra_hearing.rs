//! The recogniser's slots for complete audio, and the sessions that wait for one.

use std::collections::{BTreeMap, VecDeque};

/// The recogniser's slots beyond those of the sessions, for complete audio. The session that has waited longest gets
/// the next free one, for one audio item.
#[derive(Default)]
pub(super) struct ExtraHearing {
    /// Slots that no session has; the next one is the last.
    pub free: Vec<usize>,
    /// Sessions by slot.
    pub taken: BTreeMap<usize, usize>,
    /// Sessions that wait, the longest first.
    pub waiting: VecDeque<usize>,
}

impl ExtraHearing {
    /// Creates a pool of the slots from `sessions` to `slots`.
    pub(super) fn new(sessions: usize, slots: usize) -> Self {
        Self { free: (sessions..slots).rev().collect(), ..Self::default() }
    }

    /// Session that the recogniser's slot belongs to.
    pub(super) fn owner(&self, slot: usize) -> usize {
        self.taken.get(&slot).copied().unwrap_or(slot)
    }

    /// Takes a slot back.
    pub(super) fn release(&mut self, slot: usize) {
        if self.taken.remove(&slot).is_some() {
            self.free.push(slot);
        }
    }

    /// Drops a session that ends; returns its slot.
    pub(super) fn reset(&mut self, owner: usize) -> Option<usize> {
        self.waiting.retain(|&waiting| waiting != owner);
        let slot = self.taken.iter().find(|(_, of)| **of == owner).map(|(&slot, _)| slot)?;
        self.release(slot);
        Some(slot)
    }
}
