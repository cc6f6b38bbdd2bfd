//! KV cache of an attention layer, in blocks of positions.
//!
//! Keys lie transposed in chunks of [`LANES`] positions, so that one pass multiplies a query with that many keys.

use std::ops::Range;

use super::discard::{PageVec, ZeroBits, discard_parts};
use crate::batch::AttentionBatch;

/// Positions in a chunk of transposed keys.
pub(super) const LANES: usize = 16;

/// Number format of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvFormat {
    /// Single precision, as computed.
    #[default]
    F32,
    /// bfloat16, rounded to nearest, ties to even: half the memory.
    Bf16,
}

impl KvFormat {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::Bf16 => size_of::<u16>(),
        }
    }
}

/// A number format of the cache.
pub(super) trait KvNumber: ZeroBits + Default + Sync {
    /// Rounds to the nearest number of the format.
    fn of(number: f32) -> Self;
    /// Widens to single precision, exactly.
    fn widen(self) -> f32;
}

impl KvNumber for f32 {
    #[inline(always)]
    fn of(number: f32) -> Self {
        number
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

/// bfloat16 by its bits.
impl KvNumber for u16 {
    #[inline(always)]
    fn of(number: f32) -> Self {
        half::bf16::from_f32(number).to_bits()
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}

/// KV cache of one layer.
#[derive(Debug)]
pub struct KvCache {
    /// Positions in a block.
    pub(super) block_len: usize,
    /// Numbers in one position's keys.
    pub(super) width: usize,
    pub(super) numbers: Numbers,
}

#[derive(Debug)]
pub(super) enum Numbers {
    F32(Both<f32>),
    Bf16(Both<u16>),
}

#[derive(Debug)]
pub(super) struct Both<N> {
    keys: PageVec<N>,
    values: PageVec<N>,
}

impl KvCache {
    /// Allocates `blocks` zeroed blocks; the system commits memory on first use.
    pub fn new(format: KvFormat, blocks: usize, block_len: usize, width: usize) -> Self {
        let (keys, values) = (blocks * block_len.next_multiple_of(LANES) * width, blocks * block_len * width);
        let numbers = match format {
            KvFormat::F32 => Numbers::F32(Both { keys: PageVec::zeros(keys), values: PageVec::zeros(values) }),
            KvFormat::Bf16 => Numbers::Bf16(Both { keys: PageVec::zeros(keys), values: PageVec::zeros(values) }),
        };
        Self { block_len, width, numbers }
    }

    /// Returns the block that holds `position` of the sequence with `table`; a short table is a ring.
    #[inline(always)]
    pub(super) fn block(&self, table: &[u32], position: usize) -> usize {
        table[position / self.block_len % table.len()] as usize
    }

    /// Returns the offset of a chunk's keys.
    #[inline(always)]
    pub(super) fn chunk(&self, block: usize, chunk: usize) -> usize {
        (block * self.block_len.div_ceil(LANES) + chunk) * self.width * LANES
    }

    /// Copies one block over another.
    pub fn copy_block(&mut self, from: usize, to: usize) {
        fn copy<N: Copy>(numbers: &mut [N], count: usize, from: usize, to: usize) {
            numbers.copy_within(from * count..(from + 1) * count, to * count);
        }
        let (keys, values) = (self.block_len.next_multiple_of(LANES) * self.width, self.block_len * self.width);
        match &mut self.numbers {
            Numbers::F32(both) => {
                copy(both.keys.slice_mut(), keys, from, to);
                copy(both.values.slice_mut(), values, from, to);
            }
            Numbers::Bf16(both) => {
                copy(both.keys.slice_mut(), keys, from, to);
                copy(both.values.slice_mut(), values, from, to);
            }
        }
    }

    /// Discards `range` of `parts` equal parts; see [`Ops::discard`](crate::Ops::discard).
    pub fn discard(&mut self, range: &Range<usize>, parts: usize) -> usize {
        match &mut self.numbers {
            Numbers::F32(both) => both.discard(range, parts),
            Numbers::Bf16(both) => both.discard(range, parts),
        }
    }

    /// Stores the rows' keys and values at their positions.
    pub fn store(&mut self, k: &[f32], v: &[f32], batch: &AttentionBatch) {
        for sequence in &batch.sequences {
            let table = &batch.tables[sequence.table.clone()];
            for i in 0..sequence.rows {
                let position = sequence.position + i;
                let (block, within) = (self.block(table, position), position % self.block_len);
                let row = (sequence.row + i) * self.width..(sequence.row + i + 1) * self.width;
                let keys = self.chunk(block, within / LANES) + within % LANES;
                let values = (block * self.block_len + within) * self.width;
                match &mut self.numbers {
                    Numbers::F32(both) => both.store((keys, &k[row.clone()]), (values, &v[row])),
                    Numbers::Bf16(both) => both.store((keys, &k[row.clone()]), (values, &v[row])),
                }
            }
        }
    }
}

impl<N: KvNumber> Both<N> {
    /// Keys of all positions, `[block][chunk of sixteen positions][width][position]`.
    pub(super) fn keys(&self) -> &[N] {
        self.keys.slice()
    }

    /// Values of all positions, `[block][position][width]`.
    pub(super) fn values(&self) -> &[N] {
        self.values.slice()
    }

    fn discard(&mut self, range: &Range<usize>, parts: usize) -> usize {
        discard_parts(self.keys.slice_mut(), range, parts) + discard_parts(self.values.slice_mut(), range, parts)
    }

    /// Stores one position's keys and values at the given offsets.
    fn store(&mut self, (keys_at, keys): (usize, &[f32]), (values_at, values): (usize, &[f32])) {
        let lanes = self.keys.slice_mut()[keys_at..].iter_mut().step_by(LANES);
        lanes.zip(keys).for_each(|(to, &key)| *to = N::of(key));
        let to = &mut self.values.slice_mut()[values_at..values_at + values.len()];
        to.iter_mut().zip(values).for_each(|(to, &value)| *to = N::of(value));
    }
}
