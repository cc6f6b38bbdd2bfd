//! Matrices of integers with a scale, and perhaps a minimum, for each group along the input.

use half::f16;

use crate::error::FormatError;

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
    /// Scales `[out, groups]`, IEEE half precision, little-endian.
    pub scales: Vec<u8>,
    /// Minimums `[out, groups]`, in the format of the scales; `None` for symmetric integers.
    pub minimums: Option<Vec<u8>>,
    /// Inputs that share a scale.
    pub group: usize,
}

impl PackedMatrix {
    /// Number of bytes of integers, scales and minimums.
    pub fn bytes(&self) -> usize {
        self.integers.len() + self.scales.len() + self.minimums.as_ref().map_or(0, Vec::len)
    }

    /// Dequantises the matrix, row-major, in single precision.
    pub fn numbers(&self) -> Vec<f32> {
        let [out, inputs] = self.shape;
        let groups = inputs.div_ceil(self.group.max(1));
        let at = |halves: &[u8], index: usize| f16::from_le_bytes([halves[2 * index], halves[2 * index + 1]]).to_f32();
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
                let group = row * groups + input / self.group;
                let minimum = self.minimums.as_ref().map_or(0.0, |minimums| at(minimums, group));
                numbers.push(integer * at(&self.scales, group) + minimum);
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
            group,
        };
        Self { matrix }
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
        let PackedMatrix { scales, minimums, .. } = &self.matrix;
        if !is_finite(scales) || minimums.as_ref().is_some_and(|minimums| !is_finite(minimums)) {
            return Err(FormatError::refused(
                file,
                format!("tensor {name}"),
                "has a scale that is NaN, infinite or beyond half precision: copy the file again",
            ));
        }
        Ok(self.matrix)
    }
}
