//! Rows that one stage leaves for a later one: a place on the device for each position of each slot.
//!
//! A stage writes a position's row as it computes it, and the later stage reads it in a later step. A position that is computed anew is
//! written over, so the later stage must have been told to forget it first ([`Item::Rewind`](crate::stage::Item::Rewind)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use repartee_kernels::{StateSpec, StepOps};

/// The rows of all slots; clones are the same rows.
pub struct SlotRows<O: StepOps> {
    state: Arc<Mutex<O::State>>,
    /// Positions of a slot.
    positions: usize,
}

impl<O: StepOps> Clone for SlotRows<O> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), positions: self.positions }
    }
}

impl<O: StepOps> SlotRows<O> {
    /// Rows of `columns` numbers for `positions` positions of each of `slots` slots.
    pub fn new(ops: &O, slots: usize, positions: usize, columns: usize) -> Self {
        let state = ops.state(StateSpec::Rows { rows: slots * positions, columns });
        Self { state: Arc::new(Mutex::new(state)), positions }
    }

    /// Number of a position's row, for a row spec.
    pub fn number(&self, slot: usize, position: usize) -> u32 {
        debug_assert!(position < self.positions, "a slot has fewer positions");
        // More rows than 2^32 could not be had.
        (slot * self.positions + position) as u32
    }

    /// Writes rows at the numbers `at`.
    pub fn store(&self, ops: &O, at: &O::Index, rows: &O::T) {
        ops.store(&mut self.state(), at, rows);
    }

    /// The rows at the numbers `at`.
    pub fn load(&self, ops: &O, at: &O::Index) -> O::T {
        ops.load(&self.state(), at)
    }

    /// A panic while it was held has changed rows of that step alone.
    fn state(&self) -> MutexGuard<'_, O::State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
