//! Embedding tables: entries are looked up by id.

use super::groups::{LEAST, nearest};
use super::quantised::NotFinite;
use crate::packed::{PackedTensor, Packing};
use crate::part::RandomDraw;
use crate::weight::DType;

/// Entries of one width, stored as bfloat16, single precision or integers.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Numbers in an entry.
    pub width: usize,
    numbers: Numbers,
}

/// Numbers of all entries, `[entry][width]`.
#[derive(Debug, Clone, PartialEq)]
enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
    Int8 {
        /// Integers from -127 to 127.
        integers: Vec<i8>,
        /// Scale of each entry: its greatest magnitude over 127.
        scales: Vec<f32>,
    },
    /// Stored integers as they are, each part with its own kind.
    Stored(Vec<StoredEntries>),
}

/// Entries of a [`PackedTensor`], in memory of their own.
#[derive(Debug, Clone, PartialEq)]
struct StoredEntries {
    shape: [usize; 2],
    packing: Packing,
    integers: Vec<u8>,
    scales: Vec<u8>,
    scale_format: DType,
    minimums: Option<Vec<u8>>,
    super_scales: Option<Vec<u8>>,
    group: usize,
}

impl StoredEntries {
    /// Copies a tensor of entries of one width.
    fn new(width: usize, tensor: &PackedTensor<'_>) -> Self {
        Self {
            shape: [tensor.shape[0], width],
            packing: tensor.packing,
            integers: tensor.integers.to_vec(),
            scales: tensor.scales.to_vec(),
            scale_format: tensor.scale_format,
            minimums: tensor.minimums.map(<[u8]>::to_vec),
            super_scales: tensor.super_scales.map(<[u8]>::to_vec),
            group: tensor.group,
        }
    }

    fn bytes(&self) -> usize {
        let optional = [&self.minimums, &self.super_scales].into_iter().flatten();
        self.integers.len() + self.scales.len() + optional.map(Vec::len).sum::<usize>()
    }

    fn tensor(&self) -> PackedTensor<'_> {
        PackedTensor {
            name: "",
            shape: &self.shape,
            packing: self.packing,
            integers: &self.integers,
            scales: &self.scales,
            scale_format: self.scale_format,
            minimums: self.minimums.as_deref(),
            super_scales: self.super_scales.as_deref(),
            group: self.group,
        }
    }
}

impl Table {
    /// Creates a table of single precision.
    pub fn new(width: usize, numbers: Vec<f32>) -> Self {
        Self { width, numbers: Numbers::F32(numbers) }
    }

    /// Creates a table of bfloat16, given by their bits.
    pub fn new_bf16(width: usize, numbers: Vec<u16>) -> Self {
        Self { width, numbers: Numbers::Bf16(numbers) }
    }

    /// Quantises entries to eight-bit integers with one scale each. Each call of `entry` writes the numbers of the next entry.
    pub fn quantised(width: usize, entries: usize, mut entry: impl FnMut(&mut [f32])) -> Result<Self, NotFinite> {
        let (mut integers, mut scales) = (Vec::with_capacity(entries * width), Vec::with_capacity(entries));
        let mut numbers = vec![0.0f32; width];
        for _ in 0..entries {
            entry(&mut numbers);
            if !numbers.iter().all(|number| number.is_finite()) {
                return Err(NotFinite);
            }
            let greatest = numbers.iter().fold(0.0, |greatest: f32, number| number.abs().max(greatest));
            let by = if greatest < LEAST { 0.0 } else { 127.0 / greatest };
            scales.push(greatest / 127.0);
            integers.extend(numbers.iter().map(|number| nearest(number * by) as i8));
        }
        Ok(Self { width, numbers: Numbers::Int8 { integers, scales } })
    }

    /// Draws entries of random integers with the spread of `draw`, without its mean.
    pub fn drawn(width: usize, entries: usize, draw: RandomDraw) -> Self {
        let count = width * entries;
        let bytes = (0..count.div_ceil(8)).flat_map(|word| draw.bits(word as u64).to_le_bytes());
        let integers = bytes.take(count).map(|byte| (byte as i8).max(-127)).collect();
        Self { width, numbers: Numbers::Int8 { integers, scales: vec![draw.spread / 127.0; entries] } }
    }

    /// Copies stored integers, joined along the entries, in their own size. The tensors were checked.
    pub fn packed(width: usize, tensors: &[PackedTensor<'_>]) -> Self {
        let entries = tensors.iter().map(|tensor| StoredEntries::new(width, tensor)).collect();
        Self { width, numbers: Numbers::Stored(entries) }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => size_of_val(&numbers[..]),
            Numbers::Bf16(numbers) => size_of_val(&numbers[..]),
            Numbers::Int8 { integers, scales } => integers.len() + size_of_val(&scales[..]),
            Numbers::Stored(parts) => parts.iter().map(StoredEntries::bytes).sum(),
        }
    }

    /// Copies an entry to `to`. bfloat16 is widened, exactly; integers are multiplied by their scale.
    pub fn look_up(&self, id: usize, to: &mut [f32]) {
        let range = id * self.width..(id + 1) * self.width;
        match &self.numbers {
            Numbers::F32(numbers) => to.copy_from_slice(&numbers[range]),
            Numbers::Bf16(numbers) => {
                for (to, &bits) in to.iter_mut().zip(&numbers[range]) {
                    *to = f32::from_bits(u32::from(bits) << 16);
                }
            }
            Numbers::Int8 { integers, scales } => {
                for (to, &integer) in to.iter_mut().zip(&integers[range]) {
                    *to = f32::from(integer) * scales[id];
                }
            }
            Numbers::Stored(parts) => {
                let mut row = id;
                for part in parts {
                    if row < part.shape[0] {
                        return part.tensor().row_into(row, to);
                    }
                    row -= part.shape[0];
                }
                panic!("a table without entry {id}");
            }
        }
    }
}
