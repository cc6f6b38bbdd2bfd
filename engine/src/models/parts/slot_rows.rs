//! Rows that one stage leaves on the device for a later one: one row for each position of each slot.
//!
//! A stage writes the row of a position when it computes it; the later stage reads it in a later step. Recomputing a
//! position overwrites its row, so the later stage must first drop it ([`StageItem::Rewind`](crate::stage::StageItem::Rewind)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use repartee_kernels::{Ops, StateSpec};

/// Rows of all slots; clones share them.
pub struct SlotRows<O: Ops> {
    state: Arc<Mutex<O::State>>,
    slots: usize,
    /// Number of positions in a slot.
    positions: usize,
}

impl<O: Ops> Clone for SlotRows<O> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), slots: self.slots, positions: self.positions }
    }
}

impl<O: Ops> SlotRows<O> {
    /// Creates rows of `columns` numbers for `positions` positions of each of `slots` slots.
    pub fn new(ops: &O, slots: usize, positions: usize, columns: usize) -> Self {
        let state = ops.state(StateSpec::Rows { rows: slots * positions, columns });
        Self { state: Arc::new(Mutex::new(state)), slots, positions }
    }

    /// Number of a position's row, for a row spec.
    pub fn number(&self, slot: usize, position: usize) -> u32 {
        debug_assert!(position < self.positions, "a slot has fewer positions");
        // There is no memory for more than 2^32 rows.
        (slot * self.positions + position) as u32
    }

    /// Writes rows at the numbers `at`.
    pub fn store(&self, ops: &O, at: &O::Index, rows: &O::T) {
        ops.store(&mut self.state(), at, rows);
    }

    /// Reads the rows at the numbers `at`.
    pub fn load(&self, ops: &O, at: &O::Index) -> O::T {
        ops.load(&self.state(), at)
    }

    /// Discards the rows of a free slot. Returns the bytes given back.
    pub fn discard(&self, ops: &O, slot: usize) -> usize {
        ops.discard(&mut self.state(), slot..slot + 1, self.slots)
    }

    /// Locks the rows. A poisoned lock is fine: the panic changed rows of its own step alone.
    fn state(&self) -> MutexGuard<'_, O::State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
