//! Sizes and parameters of launches.

use cudarc::driver::CudaFunction;

/// Threads of a block of element-wise kernels.
pub(super) const TILE_THREADS: usize = 128;
/// Warps of a block in kernels with one output or group for each warp.
pub(super) const WARPS: usize = 4;
pub(super) const WARP: usize = 32;
/// Columns of a norm from which on a group has a block of [`WIDE_THREADS`] in place of a warp.
pub(super) const WIDE: usize = 512;
/// Threads of a block that norms one group.
pub(super) const WIDE_THREADS: usize = 256;
/// Bytes of a number.
pub(super) const SIZE: usize = size_of::<f32>();

/// Tile of a block of [`TILE_THREADS`]: rows and outputs, as in `kernels/cuda/mma.cuh` and `kernels/cuda/float_tile.cuh`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) outputs: usize,
}

impl Tile {
    pub(super) const FEW: Self = Self { rows: 8, outputs: 16 };
    pub(super) const SOME: Self = Self { rows: 32, outputs: 16 };
    pub(super) const MANY: Self = Self { rows: 64, outputs: 32 };
    /// The tile of f32 weights, which are not multiplied on tensor cores.
    pub(super) const FLOAT: Self = Self { rows: 32, outputs: 32 };
    /// Blocks that are enough to keep a device busy: about two for each of its multiprocessors.
    const ENOUGH: usize = 256;

    /// Returns the tile for `rows` rows and `outputs` outputs; all tiles give a row the same bits. The largest tile reads least, if there
    /// are enough of them.
    pub(super) fn of(rows: usize, outputs: usize) -> Self {
        let (along, across) = Self::MANY.grid(rows, outputs);
        match rows {
            0..=8 => Self::FEW,
            9..=32 => Self::SOME,
            _ if along * across < Self::ENOUGH => Self::SOME,
            _ => Self::MANY,
        }
    }

    /// Chooses among the kernels for the three tiles.
    pub(super) fn kernel(self, [few, some, many]: [&CudaFunction; 3]) -> &CudaFunction {
        match self {
            Self::FEW => few,
            Self::SOME => some,
            _ => many,
        }
    }

    /// Grid with one block for each tile.
    pub(super) fn grid(self, rows: usize, outputs: usize) -> (usize, usize) {
        (rows.div_ceil(self.rows), outputs.div_ceil(self.outputs))
    }
}

/// Numbers of a head that a block of attention sums: the kernel's register limit. Heads over the cache have no more.
pub(super) const MAX_HEAD_DIM: usize = 256;

/// Factor of attention scores.
pub(super) fn scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

/// Bytes of shared memory of a block of attention.
pub(super) fn attention_bytes(head_dim: usize) -> usize {
    (WARPS * (head_dim + 2) + head_dim) * SIZE
}

/// Parameters of a kernel, in order.
#[derive(Default)]
pub(super) struct Args {
    all: [u64; MOST_ARGS],
    count: usize,
}

/// Largest number of parameters of a kernel.
const MOST_ARGS: usize = 20;

impl Args {
    pub(super) fn of(some: &[u64]) -> Self {
        let mut args = Self::default();
        args.extend(some);
        args
    }

    pub(super) fn extend(&mut self, more: &[u64]) {
        self.all[self.count..][..more.len()].copy_from_slice(more);
        self.count += more.len();
    }

    pub(super) fn all(&mut self) -> &mut [u64] {
        &mut self.all[..self.count]
    }
}

/// Converts a float to a kernel parameter.
pub(super) fn bits(number: f32) -> u64 {
    u64::from(number.to_bits())
}
