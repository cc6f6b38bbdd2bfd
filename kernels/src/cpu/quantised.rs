//! Quantised weights: eight-bit or four-bit integers with scales, and with minimums in some published formats.
//!
//! In groups of [`GROUP`] numbers along the input, the last of a row padded with zeros. A number is its integer times its group's scale,
//! plus its group's minimum if there is one. Our own quantisation is symmetric: the scale is bfloat16, rounded up, so the error of each
//! number is at most half a scale.
//!
//! | format | integers | scale of a group, before rounding | bits a weight |
//! |---|---|---|---|
//! | int8 | -127 to 127 | its greatest magnitude / 127 | 8.5 |
//! | int4 | -8 to 7 | its greatest magnitude / 7.5 | 4.5 |
//!
//! With 7.5 both ends have an error of half a scale, -8 is used, and published int4 checkpoints have the same range. The int8 kernels also
//! accept -128, which published checkpoints may have.
//!
//! Published integers keep their bits, with the [`GroupScales`] of their file:
//!
//! | scales | integers | bits a weight |
//! |---|---|---|
//! | of bfloat16 or half precision | int8, int4 | 8.5, 4.5 |
//! | two of half precision, one for each half of the group | int8 | 9 |
//! | and minimums, of half precision | int8, int4 from 0 to 15 | 9, 5 |
//! | and minimums, of six bits in a byte, times a pair of half precision for 256 inputs | the same | 8.625, 4.625 |
//!
//! A weight keeps one scale for several groups as its file has it, by powers of two: its bits are fewer then.
//!
//! # Layout
//! Panels of [`LANES`] output columns, each `[group][step]`. A step holds eight inputs of every column: the four from `4 * step` on and the
//! four from `16 + 4 * step` on. For int8 it is `[half][column][4]` bytes; for int4 `[column][4]`, with the first half in the low four bits
//! and 8 added to each integer that has no minimum. Scales are `[panel][groups that share one][count][column]`, two for each column where a
//! group has two halves or a minimum. In super-blocks the two are bytes of one number, and the pairs of a super-block are
//! `[panel][super-block][2][column]`.

use super::groups::{GROUP, LEAST, nearest};
use super::huge_pages::filled;
use super::pool::Pool;
use super::simd::LANES;
use crate::packed::{GroupScales, PackedTensor, Packing, SUPER_BLOCK};
use crate::part::RandomDraw;
use crate::weight::WeightFormat;

/// Groups of a super-block.
pub const SUPER_GROUPS: usize = SUPER_BLOCK / GROUP;

/// Steps in a group.
pub const STEPS: usize = GROUP / 8;

/// One load of the kernels; aligned, so that no load crosses a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [u8; 64]);

/// Scales or minimums of a panel's columns; aligned, so that no load crosses a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(32))]
struct ScaleLine([u16; LANES]);

/// A quantised weight `[columns, k]`.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantisedWeight {
    // Private: the kernels rely on the panels matching these sizes.
    bits: IntegerFormat,
    kind: GroupScales,
    columns: usize,
    groups: usize,
    /// Groups that share scales, a power of two.
    shared: usize,
    lines: Vec<Line>,
    scales: Vec<ScaleLine>,
    /// Pairs of the super-blocks; empty in other kinds.
    super_scales: Vec<ScaleLine>,
}

/// One panel of a weight that is being written.
struct PanelMut<'a> {
    bits: IntegerFormat,
    kind: GroupScales,
    groups: usize,
    shared: usize,
    lines: &'a mut [Line],
    scales: &'a mut [ScaleLine],
    super_scales: &'a mut [ScaleLine],
}

impl PanelMut<'_> {
    /// Writes a row of a stored tensor into a column.
    fn pack(&mut self, lane: usize, tensor: &PackedTensor<'_>, row: usize) {
        for group in 0..self.groups {
            let mut integers = [0; GROUP];
            tensor.integers_into(row, group * GROUP, &mut integers);
            self.set(lane, group, tensor.scales_at(row, group * GROUP), &integers);
            if group % SUPER_GROUPS == 0
                && let Some(pair) = tensor.super_block(row, group * GROUP)
            {
                for (line, bits) in self.super_scales[2 * (group / SUPER_GROUPS)..][..2].iter_mut().zip(pair) {
                    line.0[lane] = bits;
                }
            }
        }
    }

    /// Writes a group of a column: its scales, and its integers.
    fn set(&mut self, lane: usize, group: usize, scales: [u16; 2], integers: &[i8; GROUP]) {
        let count = self.kind.count();
        for (line, scale) in self.scales[group / self.shared * count..][..count].iter_mut().zip(scales) {
            line.0[lane] = scale;
        }
        let (at, added) = (lane * 4, added(self.kind));
        let (lower, upper) = integers.split_at(GROUP / 2);
        let fours = lower.as_chunks::<4>().0.iter().zip(upper.as_chunks::<4>().0);
        let lines = &mut self.lines[group * STEPS * self.bits.lines()..][..STEPS * self.bits.lines()];
        match self.bits {
            IntegerFormat::Eight => {
                for (lines, (low, high)) in lines.as_chunks_mut::<2>().0.iter_mut().zip(fours) {
                    for (line, four) in lines.iter_mut().zip([low, high]) {
                        line.0[at..at + 4].copy_from_slice(&four.map(i8::cast_unsigned));
                    }
                }
            }
            IntegerFormat::Four => {
                for (line, (low, high)) in lines.iter_mut().zip(fours) {
                    let nibble = |integer: i8| integer.wrapping_add(added).cast_unsigned() & 0xf;
                    let both: [u8; 4] = std::array::from_fn(|i| nibble(low[i]) | nibble(high[i]) << 4);
                    line.0[at..at + 4].copy_from_slice(&both);
                }
            }
        }
    }
}

/// Number that stored four-bit integers of this kind have added.
fn added(kind: GroupScales) -> i8 {
    if kind.has_minimums() { 0 } else { 8 }
}

/// Integer format of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerFormat {
    /// Eight bits, -128 to 127.
    Eight,
    /// Four bits, -8 to 7, or 0 to 15 beside minimums.
    Four,
}

impl IntegerFormat {
    /// Integer format of `format`; `None` for floating point.
    pub fn of(format: WeightFormat) -> Option<Self> {
        match format {
            WeightFormat::Float => None,
            WeightFormat::Int8 => Some(Self::Eight),
            WeightFormat::Int4 => Some(Self::Four),
        }
    }

    /// Integer format of stored integers.
    pub fn of_packing(packing: Packing) -> Self {
        match packing {
            Packing::Four => Self::Four,
            Packing::Eight | Packing::Bytes => Self::Eight,
        }
    }

    /// Least and greatest integer of quantisation, and the divisor of a group's greatest magnitude.
    const fn range(self) -> (i32, i32, f32) {
        match self {
            Self::Eight => (-127, 127, 127.0),
            Self::Four => (-8, 7, 7.5),
        }
    }

    /// Lines in a step.
    const fn lines(self) -> usize {
        match self {
            Self::Eight => 2,
            Self::Four => 1,
        }
    }
}

/// Error: a weight has a number that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFinite;

impl QuantisedWeight {
    /// Quantises a weight. Each call of `row` writes the numbers of the next output column.
    pub fn new(
        bits: IntegerFormat,
        columns: usize,
        k: usize,
        mut row: impl FnMut(&mut [f32]),
    ) -> Result<Self, NotFinite> {
        let mut weight = Self::zeros((bits, GroupScales::Bf16), columns, k, 1);
        let mut numbers = vec![0.0; weight.groups * GROUP];
        for (number, mut panel) in weight.panels_mut().enumerate() {
            for lane in 0..LANES.min(columns - number * LANES) {
                row(&mut numbers[..k]);
                for (group, numbers) in numbers.as_chunks().0.iter().enumerate() {
                    let (scale, integers) = quantise_group(bits, numbers)?;
                    panel.set(lane, group, [scale, 0], &integers);
                }
            }
        }
        Ok(weight)
    }

    fn zeros((bits, kind): (IntegerFormat, GroupScales), columns: usize, k: usize, shared: usize) -> Self {
        let groups = k.div_ceil(GROUP);
        let (count, scales) = sizes(columns, groups, shared, kind);
        let zero = match bits {
            IntegerFormat::Four if !kind.has_minimums() => 0x88,
            IntegerFormat::Eight | IntegerFormat::Four => 0,
        };
        let lines = filled(Line([zero; 64]), count * STEPS * bits.lines());
        let pairs =
            if kind == GroupScales::SuperBlock { columns.div_ceil(LANES) * groups.div_ceil(SUPER_GROUPS) } else { 0 };
        let [scales, super_scales] = [scales, 2 * pairs].map(|lines| filled(ScaleLine([0; LANES]), lines));
        Self { bits, kind, columns, groups, shared, lines, scales, super_scales }
    }

    /// Draws random integers, spread evenly over the whole format. All groups share one scale, which gives the numbers the spread of `draw`
    /// without its mean.
    pub fn drawn(bits: IntegerFormat, columns: usize, k: usize, draw: RandomDraw) -> Self {
        let (groups, kind) = (k.div_ceil(GROUP), GroupScales::Bf16);
        let (count, scales) = sizes(columns, groups, 1, kind);
        let line = |line: usize| {
            let words: [u64; 8] = std::array::from_fn(|word| draw.bits((line * 8 + word) as u64));
            let mut bytes = [0; 64];
            bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            Line(bytes)
        };
        let greatest = match bits {
            IntegerFormat::Eight => 128.0,
            IntegerFormat::Four => 8.0,
        };
        let scale = ((draw.spread / greatest).to_bits() >> 16) as u16;
        let mut lines = filled(Line([0; 64]), count * STEPS * bits.lines());
        lines.iter_mut().enumerate().for_each(|(number, to)| *to = line(number));
        let scales = filled(ScaleLine([scale; LANES]), scales);
        Self { bits, kind, columns, groups, shared: 1, lines, scales, super_scales: Vec::new() }
    }

    /// Repacks stored integers, scales and minimums without changing a number, on all threads of `pool`. The tensors, joined along `out`,
    /// were checked, are at least one, and have integers and scales of one kind.
    pub fn packed(pool: Option<&Pool>, k: usize, tensors: &[PackedTensor<'_>]) -> Self {
        let kind = (IntegerFormat::of_packing(tensors[0].packing), tensors[0].group_scales());
        let columns = tensors.iter().map(|tensor| tensor.shape[0]).sum();
        let shared = tensors.iter().map(|tensor| tensor.shared_inputs() / GROUP).min().unwrap_or(1);
        let mut weight = Self::zeros(kind, columns, k, shared);
        let rows = tensors.iter().flat_map(|tensor| (0..tensor.shape[0]).map(move |row| (tensor, row)));
        let rows: Vec<_> = rows.collect();
        let mut panels: Vec<_> = weight.panels_mut().zip(rows.chunks(LANES)).collect();
        let pack = |_: usize, (panel, rows): &mut (PanelMut<'_>, &[(&PackedTensor<'_>, usize)])| {
            for (lane, &(tensor, row)) in rows.iter().enumerate() {
                panel.pack(lane, tensor, row);
            }
        };
        match pool {
            Some(pool) => pool.for_each(&mut panels, pack),
            None => panels.iter_mut().enumerate().for_each(|(number, panel)| pack(number, panel)),
        }
        weight
    }

    /// The panels, in order.
    fn panels_mut(&mut self) -> impl Iterator<Item = PanelMut<'_>> {
        let (bits, kind, groups, shared) = (self.bits, self.kind, self.groups, self.shared);
        let scales = self.scale_groups() * kind.count();
        let super_scales = if kind == GroupScales::SuperBlock { 2 * self.super_blocks() } else { 0 };
        let mut pairs = &mut self.super_scales[..];
        let lines = self.lines.chunks_mut((groups * STEPS * bits.lines()).max(1));
        lines.zip(self.scales.chunks_mut(scales.max(1))).map(move |(lines, scales)| {
            let (super_scales, rest) = std::mem::take(&mut pairs).split_at_mut(super_scales);
            pairs = rest;
            PanelMut { bits, kind, groups, shared, lines, scales, super_scales }
        })
    }

    /// Index of a group's first line of scales.
    fn first_scale(&self, column: usize, group: usize) -> usize {
        (column / LANES * self.scale_groups() + group / self.shared) * self.kind.count()
    }

    /// Index of the first of a super-block's two lines.
    fn first_super_scale(&self, column: usize, group: usize) -> usize {
        2 * (column / LANES * self.super_blocks() + group / SUPER_GROUPS)
    }

    /// Super-blocks of an output column, in the kind that has them.
    pub(super) fn super_blocks(&self) -> usize {
        self.groups.div_ceil(SUPER_GROUPS)
    }

    /// Number that stored four-bit integers have added.
    fn added(&self) -> i8 {
        added(self.kind)
    }

    /// Returns the dequantised number at (output column, input).
    pub fn number(&self, column: usize, input: usize) -> f32 {
        let (at, (step, half, byte)) = (column / LANES * self.groups + input / GROUP, place(column, input % GROUP));
        let integer = match self.bits {
            IntegerFormat::Eight => self.lines[(at * STEPS + step) * 2 + half].0[byte] as i8,
            IntegerFormat::Four => (self.lines[at * STEPS + step].0[byte] >> (4 * half) & 0xf) as i8 - self.added(),
        };
        let number = f32::from(integer) * self.scale(column, input);
        if self.kind.has_minimums() { number + self.minimum(column, input) } else { number }
    }

    /// Dequantises an output column into `to`, which has its inputs.
    pub fn look_up(&self, column: usize, to: &mut [f32]) {
        for (input, to) in to.iter_mut().enumerate() {
            *to = self.number(column, input);
        }
    }

    /// Returns the scale of the weight at (output column, input).
    pub fn scale(&self, column: usize, input: usize) -> f32 {
        if self.kind == GroupScales::SuperBlock {
            return self.super_product(column, input, 0);
        }
        let second = self.kind == GroupScales::F16Halves && input % GROUP >= GROUP / 2;
        let line = &self.scales[self.first_scale(column, input / GROUP) + usize::from(second)];
        self.kind.widen(line.0[column % LANES])
    }

    /// Returns the minimum of the weight at (output column, input); zero without minimums.
    pub fn minimum(&self, column: usize, input: usize) -> f32 {
        match self.kind {
            GroupScales::SuperBlock => self.super_product(column, input, 1),
            GroupScales::F16Minimum => {
                self.kind.widen(self.scales[self.first_scale(column, input / GROUP) + 1].0[column % LANES])
            }
            GroupScales::Bf16 | GroupScales::F16 | GroupScales::F16Halves => 0.0,
        }
    }

    /// Returns a group's scale (0) or minimum (1) times its super-block's, exactly.
    fn super_product(&self, column: usize, input: usize, which: usize) -> f32 {
        let group = input / GROUP;
        let pair = self.scales[self.first_scale(column, group)].0[column % LANES].to_le_bytes();
        let of_block = self.super_scales[self.first_super_scale(column, group) + which].0[column % LANES];
        self.kind.widen(of_block) * f32::from(pair[which])
    }

    /// Integer format of the weight.
    pub fn bits(&self) -> IntegerFormat {
        self.bits
    }

    /// Numbers beside the integers of a group.
    pub fn kind(&self) -> GroupScales {
        self.kind
    }

    /// Number of output columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Groups of an output column.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Pointer to the panels: `lines` has [`STEPS`] steps for each of [`QuantisedWeight::groups`] groups of each panel.
    pub(super) fn lines(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }

    /// Panels of [`LANES`] output columns.
    pub fn panels(&self) -> usize {
        self.columns.div_ceil(LANES)
    }

    /// Groups that share scales.
    pub(super) fn shared(&self) -> usize {
        self.shared
    }

    /// Scales of an output column, or pairs of them.
    pub(super) fn scale_groups(&self) -> usize {
        self.groups.div_ceil(self.shared)
    }

    /// Pointer to the scales: [`LANES`] times [`GroupScales::count`] for each of [`QuantisedWeight::scale_groups`] of each panel.
    pub(super) fn scales(&self) -> *const u16 {
        self.scales.as_ptr().cast()
    }

    /// Pointer to the pairs of super-blocks: two times [`LANES`] for each of [`QuantisedWeight::super_blocks`] of each panel, if the kind
    /// has them.
    pub(super) fn super_scales(&self) -> *const u16 {
        self.super_scales.as_ptr().cast()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + size_of_val(&self.scales[..]) + size_of_val(&self.super_scales[..])
    }
}

/// Returns the groups of all panels, and their lines of scales.
fn sizes(columns: usize, groups: usize, shared: usize, kind: GroupScales) -> (usize, usize) {
    let panels = columns.div_ceil(LANES);
    let size = |groups: usize| panels.checked_mul(groups).expect("a weight's size is a number");
    (size(groups), size(groups.div_ceil(shared) * kind.count()))
}

/// Returns the step, the half, and the byte in a line of input `i` of a group.
const fn place(column: usize, i: usize) -> (usize, usize, usize) {
    (i / 4 % STEPS, i / 16, column % LANES * 4 + i % 4)
}

/// Quantises a group; returns its scale, as bfloat16, and its integers.
pub fn quantise_group(bits: IntegerFormat, numbers: &[f32; GROUP]) -> Result<(u16, [i8; GROUP]), NotFinite> {
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(NotFinite);
    }
    let greatest = numbers.iter().fold(0.0, |greatest: f32, number| number.abs().max(greatest));
    if greatest < LEAST {
        return Ok((0, [0; GROUP]));
    }
    let (least, most, by) = bits.range();
    // Rounds up to the next bfloat16. A number of this size does not carry into the sign.
    let scale = (greatest / by).to_bits().next_multiple_of(1 << 16);
    let integer = |number: f32| nearest(number / f32::from_bits(scale)).clamp(least, most) as i8;
    Ok(((scale >> 16) as u16, numbers.map(integer)))
}
