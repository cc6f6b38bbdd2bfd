//! Matrices of integers as `compressed-tensors` stores them: symmetric, with scales that groups along the input share.

use crate::ops::{KernelError, WeightLayout};

/// Numbers of a group must be a multiple of so many, unless a whole row is one group.
const GROUP_UNIT: usize = 32;

/// How integers lie in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// `pack-quantized`, four bits: 8 added to each, eight in a word of 32 bits, the first in the lowest bits. A row is whole words.
    Four,
    /// `pack-quantized`, eight bits: 128 added to each, four in a word.
    Eight,
    /// `int-quantized`: a byte each, two's complement.
    Bytes,
}

/// A matrix `[out, inputs]`. Each number is its integer times its group's scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedTensor<'a> {
    /// Name in the checkpoint, for messages.
    pub name: &'a str,
    /// `[out, inputs]`
    pub shape: &'a [usize],
    /// How the integers lie.
    pub packing: Packing,
    /// The integers, row after row.
    pub integers: &'a [u8],
    /// `[out, groups]`, bfloat16, little-endian.
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

    /// Bytes of a row.
    pub fn row_bytes(self, inputs: usize) -> usize {
        match self {
            Self::Four => inputs.div_ceil(8) * 4,
            Self::Eight => inputs.div_ceil(4) * 4,
            Self::Bytes => inputs,
        }
    }

    /// Packs an integer into a row whose bytes were zero.
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
    /// Refuses another shape than that of a matrix, other groups than can be served, and too few or too many bytes.
    pub fn check(&self) -> Result<(), KernelError> {
        let wrong =
            || KernelError::Shape { name: self.name.to_owned(), shape: self.shape.to_vec(), layout: WeightLayout::Linear };
        let &[out, inputs] = self.shape else { return Err(wrong()) };
        if self.group == 0 || !(self.group.is_multiple_of(GROUP_UNIT) || self.group >= inputs) {
            return Err(KernelError::Group { name: self.name.to_owned(), group: self.group });
        }
        let expected = [out * self.packing.row_bytes(inputs), out * inputs.div_ceil(self.group) * 2];
        for (bytes, expected) in [self.integers, self.scales].into_iter().zip(expected) {
            if bytes.len() != expected {
                return Err(KernelError::Bytes { name: self.name.to_owned(), expected, found: bytes.len() });
            }
        }
        Ok(())
    }

    /// The integers of a row from `first` on, as many as there is room for and are left.
    pub fn integers_into(&self, row: usize, first: usize, to: &mut [i8]) {
        let inputs = self.shape[1];
        let bytes = self.packing.row_bytes(inputs);
        let row = &self.integers[row * bytes..][..bytes];
        for (input, to) in (first..inputs).zip(to) {
            *to = self.packing.get(row, input);
        }
    }

    /// The bits of the scale of an input.
    pub fn scale(&self, row: usize, input: usize) -> u16 {
        let groups = self.shape[1].div_ceil(self.group);
        let at = 2 * (row * groups + input / self.group);
        u16::from_le_bytes([self.scales[at], self.scales[at + 1]])
    }

    /// All numbers, row after row. The tensor was checked.
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
