//! Reorders the numbers of parts for the kernels.

use super::loading::WeightLoader;
use super::matrix::{IntegerScales, Matrix, MatrixKind, VectorWeight};
use crate::cpu::groups::GROUP;
use crate::cpu::quantised::{IntegerFormat, quantise_group};
use crate::packed::{GroupScales, PackedTensor, SUPER_BLOCK};
use crate::part::{RandomDraw, WeightPart};
use crate::weight::{DType, KernelError, WeightLayout};

/// Rows of all parts, concatenated.
pub(super) struct PartRows<'a> {
    parts: &'a [WeightPart<'a>],
    /// Numbers in a row.
    columns: usize,
    /// Number of rows.
    count: usize,
    /// True if all parts are bf16.
    pub(super) is_bf16: bool,
}

impl<'a> PartRows<'a> {
    /// Wraps the parts.
    pub(super) fn new(parts: &'a [WeightPart<'a>]) -> Self {
        let is_bf16 = |part: &WeightPart<'_>| match part {
            WeightPart::Stored(tensor) => tensor.dtype == DType::Bf16,
            WeightPart::Packed(_) => false,
            WeightPart::Drawn(_) => true,
        };
        Self {
            parts,
            columns: parts.first().map_or(0, |part| part.shape()[1..].iter().product()),
            count: parts.iter().map(|part| part.shape()[0]).sum(),
            is_bf16: parts.iter().all(is_bf16),
        }
    }

    /// Yields each row from `first` on, by its part and its index there.
    fn from(&self, first: usize) -> impl Iterator<Item = (&'a WeightPart<'a>, usize)> {
        let mut before = 0;
        let parts = self.parts.iter().map(move |part| {
            let (rows, start) = (part.shape()[0], before);
            before += rows;
            (part, first.saturating_sub(start).min(rows)..rows)
        });
        parts.flat_map(|(part, rows)| rows.map(move |row| (part, row)))
    }

    /// Writes a row to `numbers` in single precision.
    fn widen_into(&self, (part, row): (&WeightPart<'_>, usize), numbers: &mut [f32]) {
        let first = row * self.columns;
        match part {
            WeightPart::Stored(tensor) => {
                tensor.dtype.widen_into(&tensor.bytes[first * tensor.dtype.size()..], numbers)
            }
            WeightPart::Packed(_) => unreachable!("integers stay as they are"),
            WeightPart::Drawn(tensor) => {
                let drawn = (first as u64..).map(|index| tensor.draw.number(index));
                numbers.iter_mut().zip(drawn).for_each(|(to, number)| *to = number);
            }
        }
    }

    /// Writes a bf16 row to `to` as bytes.
    fn bytes_into(&self, (part, row): (&WeightPart<'_>, usize), to: &mut [u8]) {
        let first = row * self.columns;
        match part {
            WeightPart::Stored(tensor) => to.copy_from_slice(&tensor.bytes[2 * first..][..to.len()]),
            WeightPart::Packed(_) => unreachable!("integers stay as they are"),
            WeightPart::Drawn(tensor) => {
                let drawn = (first as u64..).map(|index| cut(tensor.draw.number(index)).to_le_bytes());
                to.as_chunks_mut().0.iter_mut().zip(drawn).for_each(|(to, bits)| *to = bits);
            }
        }
    }

    /// Returns all numbers in single precision; drawn ones are truncated to bf16 first.
    pub(super) fn widened(&self) -> Vec<f32> {
        if self.is_bf16 {
            return self.bits().into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect();
        }
        let mut all = vec![0.0; self.count * self.columns];
        for (row, to) in self.from(0).zip(all.chunks_exact_mut(self.columns)) {
            self.widen_into(row, to);
        }
        all
    }

    /// Returns all numbers as bits of bf16; all parts must be bf16.
    pub(super) fn bits(&self) -> Vec<u16> {
        let mut bytes = vec![0; 2 * self.columns];
        let mut all = Vec::with_capacity(self.count * self.columns);
        for row in self.from(0) {
            self.bytes_into(row, &mut bytes);
            all.extend(bytes.as_chunks().0.iter().map(|bits| u16::from_le_bytes(*bits)));
        }
        all
    }

    /// Returns rows and distribution of each part if all are drawn.
    fn drawn(&self) -> Option<Vec<(usize, RandomDraw)>> {
        let drawn = |part: &WeightPart<'_>| match part {
            WeightPart::Drawn(tensor) => Some((tensor.shape[0], tensor.draw)),
            WeightPart::Stored(_) | WeightPart::Packed(_) => None,
        };
        self.parts.iter().map(drawn).collect()
    }

    fn name(&self) -> &'a str {
        self.parts.first().map_or("", |part| part.name())
    }
}

/// Truncates a number to bf16.
fn cut(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}

pub(super) fn single(loader: &WeightLoader<'_>, name: &str, numbers: &[f32]) -> Result<VectorWeight, KernelError> {
    Ok(VectorWeight { len: numbers.len(), memory: loader.numbers(name, numbers)? })
}

/// Uploads a matrix of bf16 if all parts are bf16, else of f32.
pub(super) fn floats(loader: &WeightLoader<'_>, rows: &PartRows<'_>, pitch: usize) -> Result<Matrix, KernelError> {
    let PartRows { columns, count, is_bf16, .. } = *rows;
    let size = if is_bf16 { 2 } else { 4 };
    let memory = loader.memory(rows.name(), count * pitch * size)?;
    let kind = if is_bf16 { MatrixKind::Bf16 } else { MatrixKind::F32 };
    if let Some(drawn) = rows.drawn() {
        let mut at = memory.at;
        for (rows, draw) in drawn {
            loader.draw(at, rows, draw, (columns, pitch));
            at += (rows * pitch * size) as u64;
        }
        loader.settle();
        return Ok(Matrix { memory, kind, outputs: count, columns, pitch });
    }
    let mut numbers = vec![0.0; columns];
    loader.rows(memory.at, count, pitch * size, |range, to| {
        for (row, to) in rows.from(range.start).zip(to.chunks_exact_mut(pitch * size)) {
            let (to, rest) = to.split_at_mut(columns * size);
            rest.fill(0);
            if is_bf16 {
                rows.bytes_into(row, to);
            } else {
                rows.widen_into(row, &mut numbers);
                to.as_chunks_mut().0.iter_mut().zip(&numbers).for_each(|(to, number)| *to = number.to_le_bytes());
            }
        }
    });
    Ok(Matrix { memory, kind, outputs: count, columns, pitch })
}

/// Bytes of a row of `pitch` integers.
fn integer_bytes(bits: IntegerFormat, pitch: usize) -> usize {
    match bits {
        IntegerFormat::Eight => pitch,
        IntegerFormat::Four => pitch / 2,
    }
}

/// Uploads a matrix of stored integers of one kind, at least one tensor, without changing a number.
pub(super) fn stored_integers(loader: &WeightLoader<'_>, tensors: &[PackedTensor<'_>]) -> Result<Matrix, KernelError> {
    let (name, columns) = (tensors[0].name, tensors[0].shape[1]);
    let (bits, kind) = (IntegerFormat::of_packing(tensors[0].packing), tensors[0].group_scales());
    let count = tensors.iter().map(|tensor| tensor.shape[0]).sum();
    let pitch = columns.next_multiple_of(GROUP);
    // Inputs that share a scale: a power of two for the kernels.
    let shared = tensors.iter().map(PackedTensor::shared_inputs).min().unwrap_or(GROUP);
    let shared = if kind == GroupScales::F16Halves { GROUP / 2 } else { shared };
    let minimums = kind.has_minimums();
    let in_row = pitch.div_ceil(shared) * if minimums { 2 } else { 1 };
    let row_bytes = integer_bytes(bits, pitch);
    let added = if minimums { 0 } else { 8 };
    let memory = loader.memory(name, count * row_bytes)?;
    let rows = || tensors.iter().flat_map(|tensor| (0..tensor.shape[0]).map(move |row| (tensor, row)));
    let mut left = rows();
    loader.rows(memory.at, count, row_bytes, |_, to| {
        for (to, (tensor, row)) in to.chunks_exact_mut(row_bytes).zip(&mut left) {
            for (group, to) in to.chunks_exact_mut(integer_bytes(bits, GROUP)).enumerate() {
                let mut integers = [0; GROUP];
                tensor.integers_into(row, group * GROUP, &mut integers);
                put(bits, added, &integers, to);
            }
        }
    });
    let mut scales = Vec::with_capacity(count * in_row);
    for (tensor, row) in rows() {
        if kind == GroupScales::SuperBlock {
            scales.extend((0..pitch).step_by(GROUP).map(|first| tensor.scales_at(row, first)[0]));
            scales.extend((0..pitch).step_by(SUPER_BLOCK).filter_map(|first| tensor.super_block(row, first)).flatten());
            continue;
        }
        for first in (0..pitch).step_by(shared) {
            // Padding has no scale of its own.
            let input = first.min(columns - 1);
            scales.push(tensor.scale(row, input));
            if minimums {
                scales.push(tensor.minimum(row, input));
            }
        }
    }
    let scales =
        IntegerScales { memory: loader.numbers(name, &scales)?, scaling: IntegerScales::scaling(kind, shared) };
    Ok(Matrix { memory, kind: MatrixKind::Integers(bits, scales), outputs: count, columns, pitch })
}

/// Uploads a matrix of integers: drawn, or quantised here.
pub(super) fn integers(
    loader: &WeightLoader<'_>,
    bits: IntegerFormat,
    rows: &PartRows<'_>,
) -> Result<Matrix, KernelError> {
    let PartRows { columns, count, .. } = *rows;
    let groups = columns.div_ceil(GROUP);
    let pitch = groups * GROUP;
    let row_bytes = integer_bytes(bits, pitch);
    let memory = loader.memory(rows.name(), count * row_bytes)?;
    let scales = loader.memory(rows.name(), count * groups * 2)?;
    let (at, scales_at) = (memory.at, scales.at);
    let scales = IntegerScales { memory: scales, scaling: IntegerScales::scaling(GroupScales::Bf16, GROUP) };
    let matrix = Matrix { memory, kind: MatrixKind::Integers(bits, scales), outputs: count, columns, pitch };
    if let Some(drawn) = rows.drawn() {
        // Drawn as on the processor: integers over the whole format, and one scale that gives the numbers the spread of the draw.
        let mut first = 0;
        for (rows, draw) in drawn {
            let greatest = if bits == IntegerFormat::Eight { 128.0 } else { 8.0 };
            loader.draw_integers(at + (first * row_bytes) as u64, rows * row_bytes / 8, draw.seed);
            let scale = RandomDraw { mean: draw.spread / greatest, spread: 0.0, ..draw };
            loader.draw(scales_at + (first * groups * 2) as u64, rows, scale, (groups, groups));
            first += rows;
        }
        loader.settle();
        return Ok(matrix);
    }
    let (mut numbers, mut bad) = (vec![0.0; pitch], None);
    let mut all_scales = vec![0u16; count * groups];
    loader.rows(at, count, row_bytes, |range, to| {
        let scales = all_scales[range.start * groups..].chunks_exact_mut(groups);
        for ((row, to), scales) in rows.from(range.start).zip(to.chunks_exact_mut(row_bytes)).zip(scales) {
            rows.widen_into(row, &mut numbers[..columns]);
            for (group, scale) in scales.iter_mut().enumerate() {
                let first = group * GROUP;
                let found = numbers[first..].first_chunk().and_then(|numbers| quantise_group(bits, numbers).ok());
                let (found, integers) = found.unwrap_or_else(|| {
                    bad.get_or_insert(row.0.name());
                    (0, [0; GROUP])
                });
                *scale = found;
                put(bits, 8, &integers, &mut to[first * row_bytes / pitch..]);
            }
        }
    });
    if let Some(name) = bad {
        return Err(KernelError::NotFinite { name: name.to_owned() });
    }
    loader.write(scales_at, &all_scales);
    Ok(matrix)
}

/// Packs the integers of a group; four-bit ones with `added`.
fn put(bits: IntegerFormat, added: i8, integers: &[i8; GROUP], to: &mut [u8]) {
    match bits {
        IntegerFormat::Eight => to.iter_mut().zip(integers).for_each(|(to, &integer)| *to = integer as u8),
        IntegerFormat::Four => {
            let nibble = |integer: i8| (integer + added) as u8;
            to.iter_mut()
                .zip(integers.as_chunks().0)
                .for_each(|(to, &[low, high])| *to = nibble(low) | nibble(high) << 4);
        }
    }
}

/// Maps the kernels' order of a convolution's numbers to the checkpoint's; also returns the numbers of an output.
pub(super) fn taps_outermost(layout: WeightLayout, shape: &[usize]) -> (Box<dyn Fn(usize) -> usize>, usize) {
    if let WeightLayout::ConvTranspose1d { stride, .. } = layout {
        let (channels, out, kernel) = (shape[0], shape[1], shape[2]);
        let taps = kernel / stride;
        let k = taps * channels;
        // Output row j of a block takes tap j of this input row and tap j + stride of the row before.
        let at = move |i: usize| {
            let (phase, o) = (i / k / out, i / k % out);
            let (tap, channel) = (i % k / channels, i % channels);
            (channel * out + o) * kernel + phase + (taps - 1 - tap) * stride
        };
        return (Box::new(at), k);
    }
    let (channels, taps) = (shape[1], shape[2..].iter().product::<usize>());
    let k = taps * channels;
    (Box::new(move |i: usize| (i / k * channels + i % channels) * taps + i % k / channels), k)
}
