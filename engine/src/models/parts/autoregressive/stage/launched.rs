//! A step between its launch and its collection.

/// A step that the device computes.
pub(super) struct Launched<T> {
    pub(super) ticket: T,
    pub(super) fits: Vec<SlotRowsInStep>,
    /// Indices of the fits that sample.
    pub(super) samplers: Vec<usize>,
    /// Number of ids in each list that is read back.
    pub(super) sampled: usize,
}

/// Rows of a slot in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotRowsInStep {
    pub(super) slot: usize,
    /// Epoch of the slot at launch. If it differs at collection, the sample is dropped.
    pub(super) epoch: u64,
    /// Position of the first row.
    pub(super) from: usize,
    pub(super) rows: usize,
    /// Rows that are prompt positions and still cached; later stages get these positions.
    pub(super) context: usize,
}
