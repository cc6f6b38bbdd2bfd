//! Activations, lists, batches, and what outlives a step.

use std::sync::Arc;

use super::memory::{Buffer, DeviceMemory};

/// Activations: `[rows, columns]`, row-major, in single precision.
pub struct Tensor {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) data: Buffer,
}

impl Tensor {
    pub(super) fn new(data: Buffer, rows: usize, columns: usize) -> Self {
        Self { rows, columns, data }
    }

    /// Its numbers.
    pub(super) fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Its address on the device.
    pub(super) fn at(&self) -> u64 {
        self.data.at()
    }
}

/// A list of ids or numbers of rows, or a whole row spec.
#[derive(Clone)]
pub struct CudaIndex {
    pub(super) words: Arc<Buffer>,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl CudaIndex {
    pub(super) fn new(words: Buffer, len: usize) -> Self {
        Self { words: Arc::new(words), start: 0, len }
    }

    /// Its address on the device.
    pub(super) fn at(&self) -> u64 {
        self.words.at() + (self.start * size_of::<u32>()) as u64
    }
}

/// The rows of an attention step.
pub struct CudaBatch {
    pub(super) words: CudaIndex,
    pub(super) sequences: usize,
    /// Words of a sequence.
    pub(super) stride: usize,
}

/// Memory updated in place.
pub enum CudaState {
    /// Keys and values of an attention layer, `[block][position][width]` each.
    KeyValue {
        /// Keys.
        keys: DeviceMemory,
        /// Values.
        values: DeviceMemory,
        /// Positions in a block.
        block_len: usize,
        /// Numbers of a position.
        width: usize,
    },
    /// What a convolution remembers, `[slot][row][column]`.
    Tail {
        /// Its numbers.
        data: DeviceMemory,
        /// Rows remembered.
        rows: usize,
        /// Channels.
        columns: usize,
    },
    /// Ids that each slot has produced, `[slot][id]`, a byte each.
    TokenMask {
        /// Its bytes.
        flags: DeviceMemory,
        /// Ids.
        vocabulary: usize,
    },
    /// Rows that outlive a step.
    Rows {
        /// Their numbers.
        data: DeviceMemory,
        /// Numbers in a row.
        columns: usize,
    },
}

impl CudaState {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::KeyValue { .. } => "keys and values",
            Self::Tail { .. } => "a tail",
            Self::TokenMask { .. } => "a token mask",
            Self::Rows { .. } => "rows",
        }
    }

    /// The rows' address and how many numbers each has.
    pub(super) fn rows(&self) -> (u64, usize) {
        match self {
            Self::Rows { data, columns } => (data.at, *columns),
            other => panic!("rows are needed, got {}", other.kind()),
        }
    }

    /// A tail's address, rows and channels.
    pub(super) fn tail(&self) -> (u64, usize, usize) {
        match self {
            Self::Tail { data, rows, columns } => (data.at, *rows, *columns),
            other => panic!("a convolution needs a tail, got {}", other.kind()),
        }
    }

    /// A mask's address and its ids.
    pub(super) fn mask(&self) -> (u64, usize) {
        match self {
            Self::TokenMask { flags, vocabulary } => (flags.at, *vocabulary),
            other => panic!("a token mask is needed, got {}", other.kind()),
        }
    }
}
