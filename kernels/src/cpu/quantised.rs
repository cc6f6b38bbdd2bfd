//! Weights of eight-bit or four-bit integers that share a scale in groups.
//!
//! Symmetric, in groups of [`GROUP`] numbers along the input, the last of a row filled up with zeros. A number stands for an integer
//! times its group's scale, which is bfloat16, rounded up: so each number is off by half a scale at most.
//!
//! | format | integers | scale of a group, before rounding | bits a weight |
//! |---|---|---|---|
//! | int8 | -127 to 127 | its greatest magnitude / 127 | 8.5 |
//! | int4 | -8 to 7 | its greatest magnitude / 7.5 | 4.5 |
//!
//! With 7.5 both ends are off by half a scale, -8 is used, and published int4 checkpoints have the same range. The int8 kernels do
//! with -128 too, which published checkpoints may have.
//!
//! # Layout
//! Panels of [`LANES`] output columns, each `[group][step]`. A step holds eight inputs of every column: the four from `4 * step` on
//! and the four from `16 + 4 * step` on. For int8 it is `[half][column][4]` bytes; for int4 `[column][4]`, with the first half in the low
//! four bits and 8 added to each integer. Scales are `[panel][group][column]`.

use super::gemm::LANES;
use super::groups::{GROUP, LEAST, nearest};
use crate::ops::WeightFormat;
use crate::packed::PackedTensor;
use crate::part::RandomDraw;

/// Steps in a group.
pub const STEPS: usize = GROUP / 8;

/// What a processor reads at once; aligned, so that no read crosses a line of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [u8; 64]);

/// A weight `[columns, k]` of integers.
#[derive(Debug, Clone)]
pub struct QuantisedWeight {
    // Private: the kernels rely on the panels having as many numbers as these say.
    bits: IntegerFormat,
    columns: usize,
    groups: usize,
    lines: Vec<Line>,
    scales: Vec<u16>,
}

/// The integers of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerFormat {
    /// -128 to 127.
    Eight,
    /// -8 to 7.
    Four,
}

impl IntegerFormat {
    /// `None` for numbers that are not quantised.
    pub fn of(format: WeightFormat) -> Option<Self> {
        match format {
            WeightFormat::Float => None,
            WeightFormat::Int8 => Some(Self::Eight),
            WeightFormat::Int4 => Some(Self::Four),
        }
    }

    /// Least and greatest integer that quantising gives, and what a group's greatest magnitude is divided by.
    const fn range(self) -> (i32, i32, f32) {
        match self {
            Self::Eight => (-127, 127, 127.0),
            Self::Four => (-8, 7, 7.5),
        }
    }

    /// Lines of a step.
    const fn lines(self) -> usize {
        match self {
            Self::Eight => 2,
            Self::Four => 1,
        }
    }
}

/// A weight has a number that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFinite;

impl QuantisedWeight {
    /// Quantises a weight. `row` writes the numbers of one output column after the other.
    pub fn new(bits: IntegerFormat, columns: usize, k: usize, mut row: impl FnMut(&mut [f32])) -> Result<Self, NotFinite> {
        let mut weight = Self::zeros(bits, columns, k);
        let mut numbers = vec![0.0; weight.groups * GROUP];
        for column in 0..columns {
            row(&mut numbers[..k]);
            for (group, numbers) in numbers.as_chunks().0.iter().enumerate() {
                let (scale, integers) = quantise_group(bits, numbers)?;
                weight.set(column, group, scale, &integers);
            }
        }
        Ok(weight)
    }

    fn zeros(bits: IntegerFormat, columns: usize, k: usize) -> Self {
        let groups = k.div_ceil(GROUP);
        let count = columns.div_ceil(LANES).checked_mul(groups).expect("a weight's size is a number");
        let zero = match bits {
            IntegerFormat::Eight => 0,
            IntegerFormat::Four => 0x88,
        };
        let lines = vec![Line([zero; 64]); count * STEPS * bits.lines()];
        Self { bits, columns, groups, lines, scales: vec![0; count * LANES] }
    }

    /// A weight of random integers, spread evenly over all that the format has. Every group has the same scale, with which numbers are
    /// as far from zero as `draw` has them, whose mean is left out.
    pub fn drawn(bits: IntegerFormat, columns: usize, k: usize, draw: RandomDraw) -> Self {
        let groups = k.div_ceil(GROUP);
        let count = columns.div_ceil(LANES).checked_mul(groups).expect("a weight's size is a number");
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
        let lines = (0..count * STEPS * bits.lines()).map(line).collect();
        Self { bits, columns, groups, lines, scales: vec![scale; count * LANES] }
    }

    /// A weight of integers that a checkpoint has, with its scales: the numbers are the same. The tensors, joined along `out`, were
    /// checked and have integers of so many bits.
    pub fn packed(bits: IntegerFormat, k: usize, tensors: &[PackedTensor<'_>]) -> Result<Self, NotFinite> {
        let mut weight = Self::zeros(bits, tensors.iter().map(|tensor| tensor.shape[0]).sum(), k);
        let rows = tensors.iter().flat_map(|tensor| (0..tensor.shape[0]).map(move |row| (tensor, row)));
        for (column, (tensor, row)) in rows.enumerate() {
            for group in 0..weight.groups {
                let scale = tensor.scale(row, group * GROUP);
                if !f32::from_bits(u32::from(scale) << 16).is_finite() {
                    return Err(NotFinite);
                }
                let mut integers = [0; GROUP];
                tensor.integers_into(row, group * GROUP, &mut integers);
                weight.set(column, group, scale, &integers);
            }
        }
        Ok(weight)
    }

    fn set(&mut self, column: usize, group: usize, scale: u16, integers: &[i8; GROUP]) {
        let at = column / LANES * self.groups + group;
        self.scales[at * LANES + column % LANES] = scale;
        for (i, &integer) in integers.iter().enumerate() {
            let (step, half, byte) = place(column, i);
            match self.bits {
                IntegerFormat::Eight => self.lines[(at * STEPS + step) * 2 + half].0[byte] = integer as u8,
                IntegerFormat::Four => {
                    let (line, shift) = (&mut self.lines[at * STEPS + step].0[byte], 4 * half);
                    *line = *line & !(0xf << shift) | ((integer + 8) as u8) << shift;
                }
            }
        }
    }

    /// The number that stands for the weight at (output column, input).
    pub fn number(&self, column: usize, input: usize) -> f32 {
        let (at, (step, half, byte)) = (column / LANES * self.groups + input / GROUP, place(column, input % GROUP));
        let integer = match self.bits {
            IntegerFormat::Eight => self.lines[(at * STEPS + step) * 2 + half].0[byte] as i8,
            IntegerFormat::Four => (self.lines[at * STEPS + step].0[byte] >> (4 * half) & 0xf) as i8 - 8,
        };
        f32::from(integer) * self.scale(column, input)
    }

    /// The scale of the weight at (output column, input).
    pub fn scale(&self, column: usize, input: usize) -> f32 {
        let at = column / LANES * self.groups + input / GROUP;
        f32::from_bits(u32::from(self.scales[at * LANES + column % LANES]) << 16)
    }

    /// The integers.
    pub fn bits(&self) -> IntegerFormat {
        self.bits
    }

    /// Output columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Groups of an output column.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Where panels begin: `lines` has [`STEPS`] steps for each of [`Quantised::groups`] groups of each panel.
    pub(super) fn lines(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }

    /// Where scales begin: [`LANES`] for each group of each panel.
    pub(super) fn scales(&self) -> *const u16 {
        self.scales.as_ptr()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + size_of_val(&self.scales[..])
    }
}

/// Step, half and byte of a line at which input `i` of a group lies.
const fn place(column: usize, i: usize) -> (usize, usize, usize) {
    (i / 4 % STEPS, i / 16, column % LANES * 4 + i % 4)
}

/// A group's scale, as bfloat16, and integers.
pub fn quantise_group(bits: IntegerFormat, numbers: &[f32; GROUP]) -> Result<(u16, [i8; GROUP]), NotFinite> {
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(NotFinite);
    }
    let greatest = numbers.iter().fold(0.0, |greatest: f32, number| number.abs().max(greatest));
    if greatest < LEAST {
        return Ok((0, [0; GROUP]));
    }
    let (least, most, by) = bits.range();
    // Up to the next bfloat16. A number of this size has no carry into the sign.
    let scale = (greatest / by).to_bits().next_multiple_of(1 << 16);
    let integer = |number: f32| nearest(number / f32::from_bits(scale)).clamp(least, most) as i8;
    Ok(((scale >> 16) as u16, numbers.map(integer)))
}
