//! Matrices of AWQ and GPTQ: integers in words of 32 bits, and a scale and a zero point for each group of inputs.
//!
//! Both store a matrix with its inputs outermost. A number is (integer - zero) * scale. The packed form keeps integers
//! and scales, and has -zero * scale, rounded to half precision, as the minimum; without minimums if every zero is the
//! middle of the integers.

use std::fmt;

use half::f16;

use crate::error::FormatError;
use crate::packed::{IntegerPacking, PackedMatrix};

/// Column of each integer in a word of AWQ, lowest bits first.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Arrangement of integers and zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupedFormat {
    /// AWQ of the version `gemm`: integers of four bits, eight outputs in a word, in AWQ's order.
    Awq,
    /// GPTQ: inputs of one output in a word. Zeros are stored minus one, except in its format `gptq_v2`.
    Gptq {
        /// True for zeros that are stored as they are.
        exact_zeros: bool,
    },
}

/// Stored tensors of a matrix.
#[derive(Clone, Copy)]
pub struct GroupedMatrix<'a> {
    /// File, for messages.
    pub file: &'a str,
    /// Name of the module with the matrix, for messages.
    pub name: &'a str,
    /// Sizes `[out, inputs]`.
    pub shape: [usize; 2],
    /// Arrangement of integers and zeros.
    pub format: GroupedFormat,
    /// `qweight`, words of 32 bits.
    pub integers: &'a [u8],
    /// `qzeros`, words of 32 bits.
    pub zeros: &'a [u8],
    /// `scales`, `[groups, out]`, half precision.
    pub scales: &'a [u8],
    /// `g_idx`, the group of each input; `None` for groups in order.
    pub order: Option<&'a [u8]>,
}

impl fmt::Debug for GroupedMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, shape, format, .. } = self;
        f.debug_struct("GroupedMatrix").field("name", name).field("shape", shape).field("format", format).finish()
    }
}

/// Sizes of a matrix that fit its bytes.
struct Sizes {
    bits: usize,
    groups: usize,
    group: usize,
}

impl GroupedMatrix<'_> {
    fn refused(&self, message: impl Into<String>) -> FormatError {
        FormatError::refused(self.file, format!("tensor {}", self.name), message)
    }

    /// Finds the bits of an integer and the groups, and checks every length.
    fn sizes(&self) -> Result<Sizes, FormatError> {
        let [out, inputs] = self.shape;
        let count = out.checked_mul(inputs).filter(|count| *count > 0);
        let count = count.ok_or_else(|| self.refused(format!("has the empty shape {:?}", self.shape)))?;
        let bits = match self.integers.len() * 8 / count {
            bits @ (4 | 8) if self.integers.len() * 8 == count * bits => bits,
            bits => return Err(self.refused(format!("has integers of about {bits} bits, and 4 and 8 are read"))),
        };
        let in_word = 32 / bits;
        if !out.is_multiple_of(in_word)
            || !inputs.is_multiple_of(in_word)
            || bits == 8 && self.format == GroupedFormat::Awq
        {
            return Err(self.refused(format!("of shape {:?} has no whole words of {bits} bits", self.shape)));
        }
        let groups = self.scales.len() / (2 * out);
        let group = if groups == 0 { 0 } else { inputs.div_ceil(groups) };
        let whole = groups * 2 * out == self.scales.len() && group > 0 && inputs.div_ceil(group) == groups;
        if !whole || self.zeros.len() != groups * out * bits / 8 {
            return Err(self.refused("its qzeros, scales and qweight do not fit together: copy the file again"));
        }
        if self.order.is_some_and(|order| order.len() != 4 * inputs) {
            return Err(self.refused("its g_idx does not have a group for each input: copy the file again"));
        }
        Ok(Sizes { bits, groups, group })
    }

    /// Repacks the matrix; `None` if `g_idx` reorders the groups, because a product takes neighbouring inputs.
    ///
    /// # Errors
    /// The tensors do not fit together, or a scale is not finite.
    pub fn pack(&self) -> Result<Option<PackedMatrix>, FormatError> {
        let sizes = self.sizes()?;
        let in_order = self
            .groups_of_inputs()
            .is_none_or(|mut order| (0..self.shape[1]).all(|input| order.next() == Some(input / sizes.group)));
        if !in_order {
            return Ok(None);
        }
        let [out, _] = self.shape;
        let middle = 1 << (sizes.bits - 1);
        let zeros = self.zeros(&sizes);
        let scales = self.scales()?;
        let is_symmetric = zeros.iter().all(|zero| *zero == middle);
        let by_output = |at: &dyn Fn(usize) -> f16| {
            let groups = (0..out).flat_map(|output| (0..sizes.groups).map(move |group| group * out + output));
            groups.flat_map(|index| at(index).to_le_bytes()).collect::<Vec<u8>>()
        };
        // Integers of eight bits are stored without a sign, and the packed ones have one.
        let shift = if sizes.bits == 8 { f32::from(middle) } else { 0.0 };
        let minimum = |index: usize| f16::from_f32((shift - f32::from(zeros[index])) * scales[index].to_f32());
        let minimums = (!is_symmetric).then(|| by_output(&minimum));
        let is_finite =
            |halves: &Vec<u8>| halves.as_chunks().0.iter().all(|half| f16::from_le_bytes(*half).is_finite());
        if !minimums.iter().all(is_finite) {
            return Err(self.refused("has a scale beyond half precision: copy the file again"));
        }
        Ok(Some(PackedMatrix {
            shape: self.shape,
            packing: if sizes.bits == 4 { IntegerPacking::Four } else { IntegerPacking::Bytes },
            integers: self.integers(&sizes),
            scales: by_output(&|index| scales[index]),
            minimums,
            super_scales: None,
            group: sizes.group,
        }))
    }

    /// Dequantises the matrix, row-major, exactly.
    ///
    /// # Errors
    /// As [`GroupedMatrix::pack`], or `g_idx` names a group that does not exist.
    pub fn numbers(&self) -> Result<Vec<f32>, FormatError> {
        let sizes = self.sizes()?;
        let [out, inputs] = self.shape;
        let groups: Vec<usize> = match self.groups_of_inputs() {
            Some(order) => order.collect(),
            None => (0..inputs).map(|input| input / sizes.group).collect(),
        };
        if groups.iter().any(|group| *group >= sizes.groups) {
            return Err(self.refused(format!("its g_idx names a group beyond the {} that it has", sizes.groups)));
        }
        let (zeros, scales, integers) = (self.zeros(&sizes), self.scales()?, self.integers(&sizes));
        let mut numbers = Vec::with_capacity(out * inputs);
        for (output, row) in integers.chunks_exact(inputs * sizes.bits / 8).enumerate() {
            for (input, group) in groups.iter().enumerate() {
                let integer = match sizes.bits {
                    4 => row[input / 2] >> (input % 2 * 4) & 0xf,
                    _ => row[input] ^ 0x80,
                };
                let at = group * out + output;
                numbers.push((f32::from(integer) - f32::from(zeros[at])) * scales[at].to_f32());
            }
        }
        Ok(numbers)
    }

    fn groups_of_inputs(&self) -> Option<impl Iterator<Item = usize>> {
        let group = |bytes: &[u8; 4]| usize::try_from(i32::from_le_bytes(*bytes)).unwrap_or(usize::MAX);
        self.order.map(|order| order.as_chunks().0.iter().map(group))
    }

    /// Scales `[groups, out]`.
    fn scales(&self) -> Result<Vec<f16>, FormatError> {
        let scales: Vec<f16> = self.scales.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half)).collect();
        if !scales.iter().all(|scale| scale.is_finite()) {
            return Err(self.refused("has a scale that is NaN or infinite: copy the file again"));
        }
        Ok(scales)
    }

    /// Zeros `[groups, out]`.
    fn zeros(&self, sizes: &Sizes) -> Vec<u8> {
        let added = match self.format {
            GroupedFormat::Awq | GroupedFormat::Gptq { exact_zeros: true } => 0,
            GroupedFormat::Gptq { exact_zeros: false } => 1,
        };
        // AutoGPTQ wraps a zero that does not fit any more.
        let mask = u8::MAX >> (8 - sizes.bits);
        let words = self.zeros.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        words.flat_map(|word| self.in_a_word(word, sizes.bits)).map(|zero| zero.wrapping_add(added) & mask).collect()
    }

    /// Integers of a word, in the order of the columns.
    fn in_a_word(&self, word: u32, bits: usize) -> impl Iterator<Item = u8> {
        let mut integers = [0; 8];
        for (place, column) in AWQ_ORDER.into_iter().enumerate().take(32 / bits) {
            let column = if self.format == GroupedFormat::Awq { column } else { place };
            integers[column] = (word >> (place * bits) & ((1 << bits) - 1)) as u8;
        }
        integers.into_iter().take(32 / bits)
    }

    /// Packed integers `[out, inputs]`.
    fn integers(&self, sizes: &Sizes) -> Vec<u8> {
        let [out, inputs] = self.shape;
        let row = inputs * sizes.bits / 8;
        let mut packed = vec![0; out * row];
        let words = self.integers.as_chunks::<4>().0;
        match self.format {
            // A word is four bytes of its output's row.
            GroupedFormat::Gptq { .. } => {
                let sign = if sizes.bits == 8 { 0x80 } else { 0 };
                for (at, words) in words.chunks_exact(out).enumerate() {
                    for (output, word) in words.iter().enumerate() {
                        packed[output * row + 4 * at..][..4].copy_from_slice(&word.map(|byte| byte ^ sign));
                    }
                }
            }
            GroupedFormat::Awq => {
                for (input, words) in words.chunks_exact(out / 8).enumerate() {
                    for (eight, word) in words.iter().enumerate() {
                        for (i, integer) in self.in_a_word(u32::from_le_bytes(*word), 4).enumerate() {
                            packed[(8 * eight + i) * row + input / 2] |= integer << (input % 2 * 4);
                        }
                    }
                }
            }
        }
        packed
    }
}
