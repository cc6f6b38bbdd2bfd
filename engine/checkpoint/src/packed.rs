//! Matrices of integers with a scale, and perhaps a minimum, for each group along the input.

use half::f16;

use crate::error::FormatError;

/// Inputs of a super-block.
const SUPER_BLOCK: usize = 256;

/// Order of the integers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerPacking {
    /// Four bits, two in a byte, the first in the lower half. With minimums 0 to 15; without them 8 is added to each.
    Four,
    /// One byte each, two's complement.
    Bytes,
}

/// Quantised matrix `[out, inputs]`. Each number is its integer times its group's scale, plus the group's minimum.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedMatrix {
    /// Sizes `[out, inputs]`.
    pub shape: [usize; 2],
    /// Packing of the integers.
    pub packing: IntegerPacking,
    /// Packed integers, row-major.
    pub integers: Vec<u8>,
    /// Scales `[out, groups]`, IEEE half precision, little-endian; with super-blocks a byte each, 0 to 63.
    pub scales: Vec<u8>,
    /// Minimums `[out, groups]`, in the format of the scales; `None` for symmetric integers.
    pub minimums: Option<Vec<u8>>,
    /// Pairs `[out, super-blocks of 256 inputs]` of half precision: a scale and a minimum that multiply those of the groups.
    pub super_scales: Option<Vec<u8>>,
    /// Inputs that share a scale.
    pub group: usize,
}

impl PackedMatrix {
    /// Number of bytes of integers, scales and minimums.
    pub fn bytes(&self) -> usize {
        let optional = [&self.minimums, &self.super_scales].into_iter().flatten();
        self.integers.len() + self.scales.len() + optional.map(Vec::len).sum::<usize>()
    }

    /// Dequantises the matrix, row-major, in single precision.
    pub fn numbers(&self) -> Vec<f32> {
        let [out, inputs] = self.shape;
        let groups = inputs.div_ceil(self.group.max(1));
        let half =
            |halves: &[u8], index: usize| f16::from_le_bytes([halves[2 * index], halves[2 * index + 1]]).to_f32();
        let super_blocks = inputs.div_ceil(SUPER_BLOCK);
        // A scale (0) or a minimum (1) of a group.
        let at = |numbers: &[u8], [row, input, which]: [usize; 3]| {
            let group = row * groups + input / self.group;
            match &self.super_scales {
                Some(pairs) => {
                    let of_block = half(pairs, 2 * (row * super_blocks + input / SUPER_BLOCK) + which);
                    of_block * f32::from(numbers[group])
                }
                None => half(numbers, group),
            }
        };
        let mut numbers = Vec::with_capacity(out * inputs);
        for row in 0..out {
            for input in 0..inputs {
                let integer = match (self.packing, &self.minimums) {
                    (IntegerPacking::Bytes, _) => f32::from(self.integers[row * inputs + input].cast_signed()),
                    (IntegerPacking::Four, minimums) => {
                        let four = self.integers[row * inputs.div_ceil(2) + input / 2] >> (input % 2 * 4) & 0xf;
                        f32::from(four) - if minimums.is_none() { 8.0 } else { 0.0 }
                    }
                };
                let minimum = self.minimums.as_ref().map_or(0.0, |minimums| at(minimums, [row, input, 1]));
                numbers.push(integer * at(&self.scales, [row, input, 0]) + minimum);
            }
        }
        numbers
    }
}

/// Packed matrix under construction, filled group by group.
#[derive(Debug)]
pub(crate) struct MatrixBuilder {
    matrix: PackedMatrix,
}

impl MatrixBuilder {
    pub(crate) fn new(shape: [usize; 2], packing: IntegerPacking, group: usize, has_minimums: bool) -> Self {
        let groups = shape[0] * shape[1].div_ceil(group);
        let row = if packing == IntegerPacking::Four { shape[1].div_ceil(2) } else { shape[1] };
        let matrix = PackedMatrix {
            shape,
            packing,
            integers: Vec::with_capacity(shape[0] * row),
            scales: Vec::with_capacity(2 * groups),
            minimums: has_minimums.then(|| Vec::with_capacity(2 * groups)),
            super_scales: None,
            group,
        };
        Self { matrix }
    }

    /// Builder of a matrix of groups of 32 in super-blocks, with scales and minimums of six bits.
    pub(crate) fn in_super_blocks(shape: [usize; 2], packing: IntegerPacking) -> Self {
        let mut builder = Self::new(shape, packing, 32, true);
        builder.matrix.super_scales = Some(Vec::with_capacity(4 * shape[0] * shape[1].div_ceil(SUPER_BLOCK)));
        builder
    }

    /// Appends the scale and the minimum of a super-block.
    pub(crate) fn super_block(&mut self, scale: f16, minimum: f16) {
        if let Some(pairs) = &mut self.matrix.super_scales {
            pairs.extend([scale.to_le_bytes(), minimum.to_le_bytes()].as_flattened());
        }
    }

    /// Appends the scale and the minimum of a group in a super-block.
    pub(crate) fn six_bits(&mut self, scale: u8, minimum: u8) {
        self.matrix.scales.push(scale);
        if let Some(minimums) = &mut self.matrix.minimums {
            minimums.push(minimum);
        }
    }

    /// Appends the 32 integers of a group, four bits each: of each byte those that `half` takes out of it.
    #[inline]
    pub(crate) fn fours(&mut self, bytes: &[u8; 32], half: impl Fn(u8) -> u8) {
        let mut packed = [0; 16];
        for (packed, [low, high]) in packed.iter_mut().zip(bytes.as_chunks().0) {
            *packed = half(*low) & 0xf | half(*high) << 4;
        }
        self.matrix.integers.extend_from_slice(&packed);
    }

    /// Appends the 32 integers of a group, eight bits each; `at` gives them by their place.
    #[inline]
    pub(crate) fn eights(&mut self, at: impl Fn(usize) -> i8) {
        let mut integers = [0; 32];
        for (place, integer) in integers.iter_mut().enumerate() {
            *integer = at(place).cast_unsigned();
        }
        self.matrix.integers.extend_from_slice(&integers);
    }

    /// Appends the scale of a group, rounded to the nearest if it is not representable.
    pub(crate) fn scale(&mut self, scale: f32) {
        self.matrix.scales.extend(f16::from_f32(scale).to_le_bytes());
    }

    /// Appends the minimum of a group, rounded as a scale.
    pub(crate) fn minimum(&mut self, minimum: f32) {
        if let Some(minimums) = &mut self.matrix.minimums {
            minimums.extend(f16::from_f32(minimum).to_le_bytes());
        }
    }

    /// Finishes the matrix; refuses scales and minimums that are NaN or infinite.
    pub(crate) fn finish(self, file: &str, name: &str) -> Result<PackedMatrix, FormatError> {
        let is_finite = |halves: &[u8]| halves.as_chunks().0.iter().all(|half| f16::from_le_bytes(*half).is_finite());
        let PackedMatrix { scales, minimums, super_scales, .. } = &self.matrix;
        // With super-blocks only their pairs are of half precision.
        let finite = match super_scales {
            Some(pairs) => is_finite(pairs),
            None => is_finite(scales) && minimums.as_ref().is_none_or(|minimums| is_finite(minimums)),
        };
        if !finite {
            return Err(FormatError::refused(
                file,
                format!("tensor {name}"),
                "has a scale that is NaN, infinite or beyond half precision: copy the file again",
            ));
        }
        Ok(self.matrix)
    }
}
