//! Working memory of operations, kept between calls.

use super::attention;
use super::groups::{GROUP, QuantisedGroup};

/// Working memory of all operations.
#[derive(Default)]
pub(super) struct Scratch {
    /// One for each part of a region.
    pub(super) attention: Vec<attention::Scratch>,
    pub(super) experts: ExpertScratch,
    pub(super) sample: SampleScratch,
    /// Tail and new rows of a convolution.
    pub(super) joined: Vec<f32>,
    /// Results of a group of a convolution.
    pub(super) group: Vec<f32>,
}

/// Working memory of a mixture, kept between calls.
#[derive(Default)]
pub(super) struct ExpertScratch {
    pub(super) logits: Vec<f32>,
    /// Experts of a row, most likely first.
    pub(super) order: Vec<usize>,
    /// Rows of each expert, with their weights.
    pub(super) chosen: Vec<Vec<(usize, f32)>>,
    /// Experts that are computed together, in ascending order.
    pub(super) wave: Vec<usize>,
    /// All rows quantised, for experts with integer weights.
    pub(super) quantised: Vec<QuantisedGroup>,
    pub(super) gathered: ExpertInputs,
    pub(super) wide: Vec<f32>,
    pub(super) narrow: ExpertInputs,
    pub(super) result: Vec<f32>,
}

/// Rows for the experts of a wave, grouped by expert: as numbers, quantised, or both.
#[derive(Default)]
pub(super) struct ExpertInputs {
    pub(super) numbers: Vec<f32>,
    pub(super) groups: Vec<QuantisedGroup>,
}

impl ExpertInputs {
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.groups.clear();
    }

    /// Clears the inputs and reserves memory for `rows` rows.
    pub(super) fn reserve(&mut self, rows: usize, width: usize) {
        self.clear();
        self.numbers.reserve(rows * width);
        self.groups.reserve(rows * width.div_ceil(GROUP));
    }
}

/// Working memory of sampling, kept between calls.
#[derive(Default)]
pub(super) struct SampleScratch {
    pub(super) row: Vec<f32>,
    /// Logits or probabilities of a row, reordered or scaled.
    pub(super) numbers: Vec<f32>,
    pub(super) keys: Vec<u32>,
    pub(super) sorted: Vec<u32>,
}
