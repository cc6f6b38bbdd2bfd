//! Rings of cache blocks, for layers over a window of rows: one ring for each slot, and a block for the rows of the padding.

/// Blocks of all slots.
pub struct SlotRings {
    slots: Vec<Vec<u32>>,
    scratch: u32,
}

impl SlotRings {
    /// Creates rings of `length` blocks for `slots` slots.
    pub fn new(slots: usize, length: usize) -> Self {
        let ring = |slot: usize| (slot * length..(slot + 1) * length).map(|block| block as u32).collect();
        Self { slots: (0..slots).map(ring).collect(), scratch: (slots * length) as u32 }
    }

    /// Number of all blocks.
    pub fn blocks(&self) -> usize {
        self.scratch as usize + 1
    }

    /// Blocks of a ring.
    pub fn length(&self) -> usize {
        self.slots.first().map_or(0, Vec::len)
    }

    /// Ring of a slot.
    pub fn of(&self, slot: usize) -> &[u32] {
        &self.slots[slot]
    }

    /// Block for the rows of the padding.
    pub fn scratch(&self) -> u32 {
        self.scratch
    }
}
