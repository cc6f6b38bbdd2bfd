//! A short causal convolution in place of attention, `Lfm2ShortConv` of the reference: a gate before and a gate after the
//! taps.
//!
//! A row sees the gated rows before it. Those of earlier steps are kept once for each block of the sequence's cache: the last
//! ones of a block, in place of the rows that its positions before had. So a sequence continues from its end, and from the end
//! of any full block of it, but from no position in between. A stage with such layers drops positions to the start of a block.

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{NO_ROW, Ops, RowSpec, SequenceRows, SpecLayout, StateSpec, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Weights of a short convolution.
pub struct ShortConv<O: Ops> {
    /// To the first gate, the second gate and the values.
    input: O::Weight,
    /// Factors of each channel, the oldest row's first.
    taps: Vec<O::Weight>,
    out: O::Weight,
    hidden: usize,
}

/// Sections of the row spec that the convolutions of a step share.
pub struct ConvSections {
    /// For each distance from 1 on: the row of the step at that distance before each row.
    within: Vec<SpecSection>,
    /// For each distance: the kept row, where the row at that distance is of an earlier step.
    kept: Vec<SpecSection>,
    /// Kept row that each row becomes.
    stored: SpecSection,
}

/// [`ConvSections`] on the device.
pub struct ConvRows<O: Ops> {
    within: Vec<O::Index>,
    kept: Vec<O::Index>,
    stored: O::Index,
}

impl ConvSections {
    /// Reserves sections for a step of `rows` rows and convolutions of `taps` taps.
    pub fn new(layout: &mut SpecLayout, rows: usize, taps: usize) -> Self {
        let mut lists = || (1..taps).map(|_| layout.list(rows)).collect();
        Self { within: lists(), kept: lists(), stored: layout.list(rows) }
    }

    /// Fills a row spec for sequences, their rows one below the other, in blocks of `block_len` positions.
    pub fn fill(&self, spec: &mut RowSpec, sequences: &[SequenceRows<'_>], block_len: usize) {
        let most = self.within.len();
        let kept_row = |sequence: &SequenceRows<'_>, position: usize| {
            let block = sequence.table[position / block_len % sequence.table.len()] as usize;
            (block * most + position % most) as u32
        };
        // The first row of each row's sequence, the sequence, and the row within it.
        let mut rows = Vec::new();
        for sequence in sequences {
            let start = rows.len();
            rows.extend((0..sequence.rows).map(|row| (start, sequence, row)));
        }
        for (distance, (&within, &kept)) in (1..).zip(self.within.iter().zip(&self.kept)) {
            let seen = |&(start, _, row): &(usize, &SequenceRows<'_>, usize)| {
                row.checked_sub(distance).map_or(NO_ROW, |row| (start + row) as u32)
            };
            spec.set_each(within, rows.iter().map(seen));
            let of_earlier = |&(_, sequence, row): &(usize, &SequenceRows<'_>, usize)| {
                let position = (sequence.position + row).checked_sub(distance).filter(|_| row < distance);
                position.map_or(NO_ROW, |position| kept_row(sequence, position))
            };
            spec.set_each(kept, rows.iter().map(of_earlier));
        }
        let stored = |&(_, sequence, row): &(usize, &SequenceRows<'_>, usize)| {
            let position = sequence.position + row;
            let end = (sequence.position + sequence.rows).min((position / block_len + 1) * block_len);
            if position + most >= end { kept_row(sequence, position) } else { NO_ROW }
        };
        spec.set_each(self.stored, rows.iter().map(stored));
    }

    /// Returns the sections on the device.
    pub fn rows<O: Ops>(&self, ops: &O, spec: &O::Spec) -> ConvRows<O> {
        let index = |section: &SpecSection| ops.index(spec, *section);
        ConvRows {
            within: self.within.iter().map(index).collect(),
            kept: self.kept.iter().map(index).collect(),
            stored: index(&self.stored),
        }
    }
}

impl<O: Ops> ShortConv<O> {
    /// Loads `conv` of the layer, whose prefix is that of `w`: `in_proj`, the taps in `conv`, and `out_proj`.
    pub fn load(w: &Weights<'_, O>, hidden: usize, taps: usize) -> Result<Self, LoadError> {
        let w = w.at("conv");
        let factors = w.values("conv.weight", &[hidden, 1, taps])?;
        let tap = |tap: usize| {
            let factors: Vec<f32> = factors.iter().skip(tap).step_by(taps).copied().collect();
            w.made("conv.weight", WeightLayout::Vector, &factors, &[hidden])
        };
        Ok(Self {
            input: w.linear("in_proj.weight", 3 * hidden, hidden)?,
            taps: (0..taps).map(tap).collect::<Result<_, _>>()?,
            out: w.linear("out_proj.weight", hidden, hidden)?,
            hidden,
        })
    }

    /// State of one layer for a cache of `blocks` blocks.
    pub fn state(&self, ops: &O, blocks: usize) -> O::State {
        ops.state(StateSpec::Rows { rows: blocks * (self.taps.len() - 1), columns: self.hidden })
    }

    /// Bytes of a block in [`ShortConv::state`].
    pub fn block_bytes(&self) -> usize {
        (self.taps.len() - 1) * self.hidden * size_of::<f32>()
    }

    /// Runs normed rows through the layer; `state` is that of [`ShortConv::state`].
    pub fn forward(&self, ops: &O, x: &O::T, state: &mut O::State, rows: &ConvRows<O>) -> O::T {
        let h = ops.linear(x, &self.input, None);
        let part = |part: usize| ops.narrow(&h, part * self.hidden, self.hidden);
        let gated = ops.mul(part(0), &part(2));
        let mut taps = self.taps.iter().rev();
        let own = taps.next().map(|tap| ops.scale(ops.copy(&gated), tap));
        let mut sum = own.expect("a convolution has taps");
        for (tap, (within, kept)) in taps.zip(rows.within.iter().zip(&rows.kept)) {
            let before = ops.overlay(ops.gather_at(&gated, within), state, kept);
            sum = ops.add(sum, &ops.scale(before, tap));
        }
        ops.store(state, &rows.stored, &gated);
        ops.linear(&ops.mul(sum, &part(1)), &self.out, None)
    }
}
