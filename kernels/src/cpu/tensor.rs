//! Activations, and state that outlives a step.

use std::ops::Range;

use super::arena::Buffer;
use super::conv_state::ConvState;
use super::discard::discard_parts;
use super::kv_cache::KvCache;

/// Activations: `[rows, columns]`, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) data: Buffer,
}

impl Tensor {
    pub(super) fn new(data: Buffer, columns: usize) -> Self {
        let rows = data.len().checked_div(columns).unwrap_or(0);
        assert_eq!(rows * columns, data.len(), "values do not fill whole rows");
        Self { rows, columns, data }
    }

    /// Address of the numbers; a repeated step keeps it.
    pub fn address(&self) -> usize {
        self.data.as_ptr().addr()
    }
}

/// Memory that operations update in place.
#[derive(Debug)]
pub enum CpuState {
    /// KV cache of an attention layer.
    KeyValue(KvCache),
    /// State of a causal convolution.
    Tail(ConvState),
    /// Ids that each slot has produced.
    TokenMask {
        /// Size of the vocabulary.
        vocabulary: usize,
        /// One flag for each `[slot][id]`.
        flags: Vec<bool>,
    },
    /// Rows that outlive a step.
    Rows {
        /// Numbers in a row.
        columns: usize,
        /// Numbers of all rows, `[row][columns]`.
        data: Vec<f32>,
    },
}

impl CpuState {
    pub(super) fn cache(&mut self) -> &mut KvCache {
        match self {
            Self::KeyValue(cache) => cache,
            other => panic!("attention needs keys and values, got {other:?}"),
        }
    }

    pub(super) fn tail(&mut self) -> &mut ConvState {
        match self {
            Self::Tail(tail) => tail,
            other => panic!("a convolution needs a tail, got {other:?}"),
        }
    }

    /// Returns the rows' numbers and their width.
    pub(super) fn rows(&self) -> (&[f32], usize) {
        match self {
            Self::Rows { columns, data } => (data, *columns),
            other => panic!("rows are needed, got {other:?}"),
        }
    }

    /// Discards `range` of `parts` equal parts; see [`Ops::discard`](crate::Ops::discard).
    pub(super) fn discard(&mut self, range: &Range<usize>, parts: usize) -> usize {
        match self {
            Self::KeyValue(cache) => cache.discard(range, parts),
            Self::Rows { data, .. } => discard_parts(data, range, parts),
            // Small, and cleared rather than overwritten.
            Self::Tail(_) | Self::TokenMask { .. } => 0,
        }
    }

    /// Clears the ids of a slot.
    pub(super) fn reset(&mut self, slot: usize) {
        if let Self::TokenMask { vocabulary, flags } = self {
            flags[slot * *vocabulary..(slot + 1) * *vocabulary].fill(false);
        }
    }
}
