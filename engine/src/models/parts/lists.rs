//! Lists that are uploaded outside of a step.

use repartee_kernels::{NO_ROW, Ops, SpecLayout};

/// Uploads a list.
pub fn list<O: Ops>(ops: &O, numbers: &[u32]) -> O::Index {
    let mut layout = SpecLayout::default();
    let at = layout.list(numbers.len());
    let mut spec = layout.spec();
    spec.set(at, numbers);
    ops.index(&ops.upload(&spec), at)
}

/// Index of a row; none has as many.
pub fn row(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NO_ROW)
}

/// Uploads one segment of all rows.
pub fn one_segment<O: Ops>(ops: &O, rows: usize) -> O::Index {
    list(ops, &[row(rows)])
}
