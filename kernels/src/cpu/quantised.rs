//! Quantised weights: eight-bit or four-bit integers with one scale for each group.
//!
//! Symmetric, in groups of [`GROUP`] numbers along the input, the last of a row padded with zeros. A number is its integer times its
//! group's scale, which is bfloat16, rounded up. So the error of each number is at most half a scale.
//!
//! | format | integers | scale of a group, before rounding | bits a weight |
//! |---|---|---|---|
//! | int8 | -127 to 127 | its greatest magnitude / 127 | 8.5 |
//! | int4 | -8 to 7 | its greatest magnitude / 7.5 | 4.5 |
//!
//! With 7.5 both ends have an error of half a scale, -8 is used, and published int4 checkpoints have the same range. The int8 kernels also
//! accept -128, which published checkpoints may have.
//!
//! # Layout
//! Panels of [`LANES`] output columns, each `[group][step]`. A step holds eight inputs of every column: the four from `4 * step` on and the
//! four from `16 + 4 * step` on. For int8 it is `[half][column][4]` bytes; for int4 `[column][4]`, with the first half in the low four bits
//! and 8 added to each integer. Scales are `[panel][group][column]`.

use super::groups::{GROUP, LEAST, nearest};
use super::simd::LANES;
use crate::packed::PackedTensor;
use crate::part::RandomDraw;
use crate::weight::WeightFormat;

/// Steps in a group.
pub const STEPS: usize = GROUP / 8;

/// One load of the kernels; aligned, so that no load crosses a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [u8; 64]);

/// A quantised weight `[columns, k]`.
#[derive(Debug, Clone)]
pub struct QuantisedWeight {
    // Private: the kernels rely on the panels matching these sizes.
    bits: IntegerFormat,
    columns: usize,
    groups: usize,
    lines: Vec<Line>,
    scales: Vec<u16>,
}

/// Integer format of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerFormat {
    /// Eight bits, -128 to 127.
    Eight,
    /// Four bits, -8 to 7.
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

    /// Draws random integers, spread evenly over the whole format. All groups share one scale, which gives the numbers the spread of `draw`
    /// without its mean.
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

    /// Repacks a checkpoint's integers and scales without changing a number. The tensors, joined along `out`, were checked and have
    /// integers of this size.
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

    /// Returns the dequantised number at (output column, input).
    pub fn number(&self, column: usize, input: usize) -> f32 {
        let (at, (step, half, byte)) = (column / LANES * self.groups + input / GROUP, place(column, input % GROUP));
        let integer = match self.bits {
            IntegerFormat::Eight => self.lines[(at * STEPS + step) * 2 + half].0[byte] as i8,
            IntegerFormat::Four => (self.lines[at * STEPS + step].0[byte] >> (4 * half) & 0xf) as i8 - 8,
        };
        f32::from(integer) * self.scale(column, input)
    }

    /// Returns the scale of the weight at (output column, input).
    pub fn scale(&self, column: usize, input: usize) -> f32 {
        let at = column / LANES * self.groups + input / GROUP;
        f32::from_bits(u32::from(self.scales[at * LANES + column % LANES]) << 16)
    }

    /// Integer format of the weight.
    pub fn bits(&self) -> IntegerFormat {
        self.bits
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

    /// Pointer to the scales: [`LANES`] for each group of each panel.
    pub(super) fn scales(&self) -> *const u16 {
        self.scales.as_ptr()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + size_of_val(&self.scales[..])
    }
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
