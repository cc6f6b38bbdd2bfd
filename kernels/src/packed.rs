//! Integer matrices in the formats of `compressed-tensors`: symmetric, with one scale for each group along the input.

use crate::weight::{KernelError, WeightLayout};

/// A group size must be a multiple of this, unless one group spans the row.
const GROUP_UNIT: usize = 32;

/// Order of the integers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// `pack-quantized`, four bits: 8 added to each, eight in a 32-bit word, the first in the lowest bits. A row is whole words.
    Four,
    /// `pack-quantized`, eight bits: 128 added to each, four in a 32-bit word.
    Eight,
    /// `int-quantized`: one byte each, two's complement.
    Bytes,
}

/// A quantised matrix `[out, inputs]`. Each number is its integer times its group's scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedTensor<'a> {
    /// Name in the checkpoint, for messages.
    pub name: &'a str,
    /// Sizes `[out, inputs]`.
    pub shape: &'a [usize],
    /// Packing of the integers.
    pub packing: Packing,
    /// Packed integers, row-major.
    pub integers: &'a [u8],
    /// Scales `[out, groups]`, bfloat16, little-endian.
    pub scales: &'a [u8],
    /// Inputs that share a scale; the last group of a row may have fewer.
    pub group: usize,
}

impl Packing {
    /// Bits of an integer.
    pub fn bits(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight | Self::Bytes => 8,
        }
    }

    /// Bytes of a row of `inputs` integers.
    pub fn row_bytes(self, inputs: usize) -> usize {
        match self {
            Self::Four => inputs.div_ceil(8) * 4,
            Self::Eight => inputs.div_ceil(4) * 4,
            Self::Bytes => inputs,
        }
    }

    /// Packs an integer into a zeroed row.
    pub fn put(self, row: &mut [u8], input: usize, integer: i8) {
        match self {
            Self::Four => row[input / 2] |= (integer.wrapping_add(8) as u8 & 0xf) << (input % 2 * 4),
            Self::Eight => row[input] = integer as u8 ^ 0x80,
            Self::Bytes => row[input] = integer as u8,
        }
    }

    fn get(self, row: &[u8], input: usize) -> i8 {
        match self {
            Self::Four => (row[input / 2] >> (input % 2 * 4) & 0xf) as i8 - 8,
            Self::Eight => (row[input] ^ 0x80) as i8,
            Self::Bytes => row[input] as i8,
        }
    }
}

impl PackedTensor<'_> {
    /// Checks shape, group size and number of bytes.
    pub fn check(&self) -> Result<(), KernelError> {
        let wrong = || KernelError::Shape {
            name: self.name.to_owned(),
            shape: self.shape.to_vec(),
            layout: WeightLayout::Linear,
        };
        let &[out, inputs] = self.shape else { return Err(wrong()) };
        if self.group == 0 || !(self.group.is_multiple_of(GROUP_UNIT) || self.group >= inputs) {
            return Err(KernelError::Group { name: self.name.to_owned(), group: self.group });
        }
        let expected = [self.packing.row_bytes(inputs), inputs.div_ceil(self.group) * 2];
        for (bytes, row_bytes) in [self.integers, self.scales].into_iter().zip(expected) {
            let expected = out.checked_mul(row_bytes).ok_or_else(wrong)?;
            if bytes.len() != expected {
                return Err(KernelError::Bytes { name: self.name.to_owned(), expected, found: bytes.len() });
            }
        }
        Ok(())
    }

    /// Unpacks integers of a row from `first` on into `to`, until either ends.
    pub fn integers_into(&self, row: usize, first: usize, to: &mut [i8]) {
        let inputs = self.shape[1];
        let bytes = self.packing.row_bytes(inputs);
        let row = &self.integers[row * bytes..][..bytes];
        for (input, to) in (first..inputs).zip(to) {
            *to = self.packing.get(row, input);
        }
    }

    /// Returns the bits of an input's scale, bfloat16.
    pub fn scale(&self, row: usize, input: usize) -> u16 {
        let groups = self.shape[1].div_ceil(self.group);
        let at = 2 * (row * groups + input / self.group);
        u16::from_le_bytes([self.scales[at], self.scales[at + 1]])
    }

    /// Dequantises the matrix, row-major. The tensor must have passed [`PackedTensor::check`].
    pub fn numbers(&self) -> Vec<f32> {
        let &[out, inputs] = self.shape else { return Vec::new() };
        let mut integers = vec![0; inputs];
        let mut numbers = Vec::with_capacity(out * inputs);
        for row in 0..out {
            self.integers_into(row, 0, &mut integers);
            numbers.extend(
                integers.iter().enumerate().map(|(input, &integer)| {
                    f32::from(integer) * f32::from_bits(u32::from(self.scale(row, input)) << 16)
                }),
            );
        }
        numbers
    }
}
