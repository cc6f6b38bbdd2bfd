//! Activations, lists, batches, and state that outlives a step.

use std::sync::Arc;

use super::arena::Buffer;
use super::memory::DeviceMemory;

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

    /// Number of its numbers.
    pub(super) fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Address on the device.
    pub(super) fn at(&self) -> u64 {
        self.data.at()
    }

    /// Address on the device; a repeated step keeps it.
    pub fn address(&self) -> usize {
        self.at() as usize
    }
}

/// A list of ids or row indices, or a whole row spec.
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

    /// Address on the device.
    pub(super) fn at(&self) -> u64 {
        self.words.at() + (self.start * size_of::<u32>()) as u64
    }
}

/// Rows of an attention step.
pub struct CudaBatch {
    pub(super) words: CudaIndex,
    pub(super) sequences: usize,
    /// Words of a sequence.
    pub(super) stride: usize,
}

/// Memory that operations update in place.
pub enum CudaState {
    /// KV cache of an attention layer, `[block][position][width]` each for keys and values.
    KeyValue {
        /// Keys of all positions.
        keys: DeviceMemory,
        /// Values of all positions.
        values: DeviceMemory,
        /// Positions in a block.
        block_len: usize,
        /// Numbers of a position.
        width: usize,
    },
    /// State of a causal convolution, `[slot][row][column]`.
    Tail {
        /// Numbers of all slots.
        data: DeviceMemory,
        /// Input rows kept for each slot.
        rows: usize,
        /// Channels of a row.
        columns: usize,
    },
    /// Ids that each slot has produced, `[slot][id]`, one byte each.
    TokenMask {
        /// Bytes of all slots.
        flags: DeviceMemory,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Rows that outlive a step.
    Rows {
        /// Numbers of all rows.
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

    /// Returns the rows' address and their width.
    pub(super) fn rows(&self) -> (u64, usize) {
        match self {
            Self::Rows { data, columns } => (data.at, *columns),
            other => panic!("rows are needed, got {}", other.kind()),
        }
    }

    /// Returns a tail's address, rows and channels.
    pub(super) fn tail(&self) -> (u64, usize, usize) {
        match self {
            Self::Tail { data, rows, columns } => (data.at, *rows, *columns),
            other => panic!("a convolution needs a tail, got {}", other.kind()),
        }
    }

    /// Returns a mask's address and the size of its vocabulary.
    pub(super) fn mask(&self) -> (u64, usize) {
        match self {
            Self::TokenMask { flags, vocabulary } => (flags.at, *vocabulary),
            other => panic!("a token mask is needed, got {}", other.kind()),
        }
    }
}
