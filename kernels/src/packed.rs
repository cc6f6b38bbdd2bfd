//! Integer matrices of published files: with a scale for each group along the input, and in some formats a minimum.
//!
//! | published format | packing | scales | minimums | group |
//! |---|---|---|---|---|
//! | `compressed-tensors` | all | bfloat16 | none | a multiple of 32, or the row |
//! | GGUF Q4_0, Q8_0, Q5_0 | `Four`, `Bytes`, `Bytes` | half precision | none | 32 |
//! | GGUF Q6_K | `Bytes` | half precision | none | 16 |
//! | GGUF Q4_1, Q5_1 | `Four`, `Bytes` | half precision | half precision | 32 |
//! | GGUF Q4_K, Q5_K | `Four`, `Bytes` | six bits, times one of half precision | likewise | 32, in super-blocks of 256 |
//! | AWQ, GPTQ | `Four` | half precision | half precision | a multiple of 32, or the row |

use crate::weight::{DType, KernelError, WeightLayout};

/// A group size must be a multiple of this, unless one group spans the row.
const GROUP_UNIT: usize = 32;
/// Group size of bytes with scales of half precision, beside the multiples.
const HALF_GROUP: usize = GROUP_UNIT / 2;
/// Inputs of a super-block, whose groups share a scale of scales and a scale of minimums.
pub const SUPER_BLOCK: usize = 256;
/// Greatest scale or minimum of a group in a super-block.
const SIX_BITS: u8 = 63;

/// Order of the integers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// `pack-quantized`, four bits: 8 added to each, eight in a 32-bit word, the first in the lowest bits. A row is whole words. Beside
    /// minimums the integers are 0 to 15, and nothing is added.
    Four,
    /// `pack-quantized`, eight bits: 128 added to each, four in a 32-bit word.
    Eight,
    /// `int-quantized`: one byte each, two's complement.
    Bytes,
}

/// A quantised matrix `[out, inputs]`. Each number is its integer times its group's scale, plus its group's minimum if there are minimums.
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
    /// Scales `[out, groups]`, little-endian; with super-blocks a byte each, 0 to 63.
    pub scales: &'a [u8],
    /// Number format of the scales, or of the super-blocks' scales: bfloat16 or half precision.
    pub scale_format: DType,
    /// Minimums `[out, groups]` of half precision, little-endian, beside scales of half precision and [`Packing::Four`] or
    /// [`Packing::Bytes`]; with super-blocks a byte each, 0 to 63.
    pub minimums: Option<&'a [u8]>,
    /// Pairs `[out, super-blocks]` of half precision, little-endian: a scale and a minimum that multiply those of the groups of
    /// [`SUPER_BLOCK`] inputs. Only beside minimums, with a group of 32.
    pub super_scales: Option<&'a [u8]>,
    /// Inputs that share a scale: a multiple of 32, at least those of a row, or 16 for [`Packing::Bytes`] with scales of half precision
    /// and without minimums. The last group of a row may have fewer.
    pub group: usize,
}

/// Numbers beside the integers of 32 inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupScales {
    /// A scale of bfloat16.
    Bf16,
    /// A scale of half precision.
    F16,
    /// A scale of half precision for each sixteen inputs.
    F16Halves,
    /// A scale and a minimum of half precision.
    F16Minimum,
    /// A scale in the lower byte and a minimum in the upper one, which are multiplied by those of their super-block.
    SuperBlock,
}

impl GroupScales {
    /// Numbers of 16 bits for 32 inputs.
    pub fn count(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 | Self::SuperBlock => 1,
            Self::F16Halves | Self::F16Minimum => 2,
        }
    }

    /// True if a group has a minimum.
    pub fn has_minimums(self) -> bool {
        matches!(self, Self::F16Minimum | Self::SuperBlock)
    }

    /// Widens a scale or a minimum, exactly; of a super-block, where the groups of this kind have bytes.
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Self::Bf16 => half::bf16::from_bits(bits).to_f32(),
            Self::F16 | Self::F16Halves | Self::F16Minimum | Self::SuperBlock => half::f16::from_bits(bits).to_f32(),
        }
    }
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

    /// Packs an integer into a zeroed row; beside minimums [`Packing::Four`] takes it less 8.
    pub fn put(self, row: &mut [u8], input: usize, integer: i8) {
        match self {
            Self::Four => row[input / 2] |= (integer.wrapping_add(8) as u8 & 0xf) << (input % 2 * 4),
            Self::Eight => row[input] = integer as u8 ^ 0x80,
            Self::Bytes => row[input] = integer as u8,
        }
    }

    #[inline(always)]
    fn get(self, row: &[u8], input: usize) -> i8 {
        match self {
            Self::Four => (row[input / 2] >> (input % 2 * 4) & 0xf) as i8 - 8,
            Self::Eight => (row[input] ^ 0x80) as i8,
            Self::Bytes => row[input] as i8,
        }
    }
}

impl<'a> PackedTensor<'a> {
    /// Returns a matrix with scales of bfloat16 and without minimums, as `compressed-tensors` has them.
    pub fn symmetric(
        name: &'a str,
        shape: &'a [usize],
        packing: Packing,
        integers: &'a [u8],
        scales: &'a [u8],
        group: usize,
    ) -> Self {
        Self {
            name,
            shape,
            packing,
            integers,
            scales,
            scale_format: DType::Bf16,
            minimums: None,
            super_scales: None,
            group,
        }
    }

    /// Splits the parts of a weight into runs of integers and scales of one kind.
    pub fn runs<'p>(parts: &'p [Self]) -> impl Iterator<Item = &'p [Self]> + use<'p, 'a> {
        let kind = |part: &Self| (part.packing.bits(), part.group_scales());
        parts.chunk_by(move |a, b| kind(a) == kind(b))
    }

    /// Checks shape, group size, formats, number of bytes, and that scales and minimums are finite.
    pub fn check(&self) -> Result<(), KernelError> {
        let name = || self.name.to_owned();
        let wrong = || KernelError::Shape { name: name(), shape: self.shape.to_vec(), layout: WeightLayout::Linear };
        let &[out, inputs] = self.shape else { return Err(wrong()) };
        self.check_formats()?;
        let halves = self.group_scales() == GroupScales::F16Halves && self.packing == Packing::Bytes;
        if self.group == 0 || !(self.group.is_multiple_of(GROUP_UNIT) || self.group >= inputs || halves) {
            return Err(KernelError::Group { name: name(), group: self.group });
        }
        let scales = inputs.div_ceil(self.group) * if self.super_scales.is_some() { 1 } else { 2 };
        let bytes = [
            (self.integers, self.packing.row_bytes(inputs)),
            (self.scales, scales),
            (self.minimums.unwrap_or_default(), if self.minimums.is_some() { scales } else { 0 }),
            (
                self.super_scales.unwrap_or_default(),
                if self.super_scales.is_some() { inputs.div_ceil(SUPER_BLOCK) * 4 } else { 0 },
            ),
        ];
        for (bytes, row_bytes) in bytes {
            let expected = out.checked_mul(row_bytes).ok_or_else(wrong)?;
            if bytes.len() != expected {
                return Err(KernelError::Bytes { name: name(), expected, found: bytes.len() });
            }
        }
        if let (Some(super_scales), Some(minimums)) = (self.super_scales, self.minimums) {
            let finite = super_scales.as_chunks().0.iter().all(|bits| half::f16::from_le_bytes(*bits).is_finite());
            let six_bits = self.scales.iter().chain(minimums).all(|&byte| byte <= SIX_BITS);
            return if finite && six_bits { Ok(()) } else { Err(KernelError::NotFinite { name: name() }) };
        }
        let exponent = if self.scale_format == DType::Bf16 { 0x7f80 } else { 0x7c00 };
        let numbers = [self.scales, self.minimums.unwrap_or_default()].into_iter().flat_map(|all| all.as_chunks().0);
        if numbers.into_iter().any(|&bits| u16::from_le_bytes(bits) & exponent == exponent) {
            return Err(KernelError::NotFinite { name: name() });
        }
        Ok(())
    }

    fn check_formats(&self) -> Result<(), KernelError> {
        let problem = match (self.scale_format, self.minimums, self.packing) {
            (DType::F32, ..) => "scales of single precision",
            (DType::Bf16, Some(_), _) => "minimums beside scales of bfloat16",
            (DType::F16, Some(_), Packing::Eight) => "minimums beside integers with 128 added",
            (DType::Bf16 | DType::F16, None, _) if self.super_scales.is_some() => "super-blocks without minimums",
            (DType::F16, Some(_), _) if self.super_scales.is_some() && self.group != GROUP_UNIT => {
                "super-blocks beside groups of other than 32 inputs"
            }
            (DType::Bf16 | DType::F16, ..) => return Ok(()),
        };
        Err(KernelError::Scales { name: self.name.to_owned(), problem })
    }

    /// Numbers beside the integers on a device; the tensor must have passed [`PackedTensor::check`].
    pub fn group_scales(&self) -> GroupScales {
        let halves = self.group == HALF_GROUP && self.shape.get(1).is_some_and(|&inputs| inputs > HALF_GROUP);
        match (self.scale_format, self.minimums) {
            (DType::Bf16, _) => GroupScales::Bf16,
            (_, Some(_)) if self.super_scales.is_some() => GroupScales::SuperBlock,
            (_, Some(_)) => GroupScales::F16Minimum,
            _ if halves => GroupScales::F16Halves,
            _ => GroupScales::F16,
        }
    }

    /// Inputs that share a scale on a device: the largest power of two that divides the group, or that spans the row; 32 for groups of 16.
    pub fn shared_inputs(&self) -> usize {
        let inputs = self.shape.get(1).copied().unwrap_or(0);
        let shared = if self.group >= inputs {
            inputs.checked_next_power_of_two().unwrap_or(GROUP_UNIT)
        } else {
            1 << self.group.trailing_zeros()
        };
        shared.max(GROUP_UNIT)
    }

    /// Unpacks integers of a row from `first` on into `to`, until either ends.
    pub fn integers_into(&self, row: usize, first: usize, to: &mut [i8]) {
        let inputs = self.shape[1];
        let bytes = self.packing.row_bytes(inputs);
        let row = &self.integers[row * bytes..][..bytes];
        let added = self.added();
        let count = inputs.saturating_sub(first).min(to.len());
        let to = &mut to[..count];
        match self.packing {
            // Two at a time: a group begins at a whole byte.
            Packing::Four if first.is_multiple_of(2) => {
                let unpacked = |four: u8| (four as i8).wrapping_add(added - 8);
                let (pairs, last) = to.as_chunks_mut::<2>();
                let bytes = &row[first / 2..];
                for (pair, &both) in pairs.iter_mut().zip(bytes) {
                    *pair = [unpacked(both & 0xf), unpacked(both >> 4)];
                }
                if let ([last], Some(&both)) = (last, bytes.get(count / 2)) {
                    *last = unpacked(both & 0xf);
                }
            }
            Packing::Four => {
                for (input, to) in (first..inputs).zip(to) {
                    *to = self.packing.get(row, input) + added;
                }
            }
            Packing::Eight => to.iter_mut().zip(&row[first..]).for_each(|(to, &byte)| *to = (byte ^ 0x80) as i8),
            Packing::Bytes => to.iter_mut().zip(&row[first..]).for_each(|(to, &byte)| *to = byte as i8),
        }
    }

    /// Returns the number to add to an unpacked integer.
    fn added(&self) -> i8 {
        if self.packing == Packing::Four && self.minimums.is_some() { 8 } else { 0 }
    }

    /// Returns the bits of an input's scale, without super-blocks.
    pub fn scale(&self, row: usize, input: usize) -> u16 {
        self.group_number(self.scales, row, input)
    }

    /// Returns the bits of an input's minimum, half precision, without super-blocks; zero without minimums.
    pub fn minimum(&self, row: usize, input: usize) -> u16 {
        self.minimums.map_or(0, |minimums| self.group_number(minimums, row, input))
    }

    fn group_number(&self, numbers: &[u8], row: usize, input: usize) -> u16 {
        let at = 2 * self.group_index(row, input);
        u16::from_le_bytes([numbers[at], numbers[at + 1]])
    }

    fn group_index(&self, row: usize, input: usize) -> usize {
        row * self.shape[1].div_ceil(self.group) + input / self.group
    }

    /// Returns the bits of a super-block's scale and minimum; `None` without super-blocks.
    pub fn super_block(&self, row: usize, input: usize) -> Option<[u16; 2]> {
        let at = 2 * (row * self.shape[1].div_ceil(SUPER_BLOCK) + input / SUPER_BLOCK);
        let pairs = self.super_scales?.as_chunks().0;
        Some([u16::from_le_bytes(pairs[at]), u16::from_le_bytes(pairs[at + 1])])
    }

    /// Returns an input's scale and minimum, exactly.
    fn factors(&self, row: usize, input: usize) -> [f32; 2] {
        let kind = self.group_scales();
        let Some(super_block) = self.super_block(row, input) else {
            return [kind.widen(self.scale(row, input)), kind.widen(self.minimum(row, input))];
        };
        let group = self.group_index(row, input);
        let bytes = [self.scales[group], self.minimums.map_or(0, |minimums| minimums[group])];
        [0, 1].map(|at: usize| kind.widen(super_block[at]) * f32::from(bytes[at]))
    }

    /// Returns the bits of the numbers beside the 32 inputs from `first` on, as [`PackedTensor::group_scales`] says; zeros fill up.
    pub fn scales_at(&self, row: usize, first: usize) -> [u16; 2] {
        if self.super_scales.is_some() {
            let group = self.group_index(row, first);
            let minimum = self.minimums.map_or(0, |minimums| minimums[group]);
            return [u16::from_le_bytes([self.scales[group], minimum]), 0];
        }
        let second = match self.group_scales() {
            GroupScales::Bf16 | GroupScales::F16 | GroupScales::SuperBlock => 0,
            GroupScales::F16Minimum => self.minimum(row, first),
            GroupScales::F16Halves if first + HALF_GROUP < self.shape[1] => self.scale(row, first + HALF_GROUP),
            GroupScales::F16Halves => 0,
        };
        [self.scale(row, first), second]
    }

    /// Dequantises a row, in two roundings. The tensor must have passed [`PackedTensor::check`].
    pub fn row_into(&self, row: usize, to: &mut [f32]) {
        let (added, bytes) = (self.added(), self.packing.row_bytes(self.shape[1]));
        let integers = &self.integers[row * bytes..][..bytes];
        for (group, to) in to.chunks_mut(self.group).enumerate() {
            let first = group * self.group;
            let [scale, minimum] = self.factors(row, first);
            let number = |input| f32::from(self.packing.get(integers, input) + added) * scale;
            if self.minimums.is_some() {
                to.iter_mut().zip(first..).for_each(|(to, input)| *to = number(input) + minimum);
            } else {
                to.iter_mut().zip(first..).for_each(|(to, input)| *to = number(input));
            }
        }
    }

    /// Dequantises the matrix, row-major. The tensor must have passed [`PackedTensor::check`].
    pub fn numbers(&self) -> Vec<f32> {
        let &[out, inputs] = self.shape else { return Vec::new() };
        let mut numbers = vec![0.0; out * inputs];
        for (row, to) in numbers.chunks_exact_mut(inputs).enumerate() {
            self.row_into(row, to);
        }
        numbers
    }
}
