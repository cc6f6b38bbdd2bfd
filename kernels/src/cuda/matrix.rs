//! Matrices and vectors of weights on the device.

use super::memory::DeviceMemory;
use crate::cpu::quantised::IntegerFormat;
use crate::packed::GroupScales;

/// Vector in single precision.
pub struct VectorWeight {
    pub(super) memory: DeviceMemory,
    pub(super) len: usize,
}

/// A matrix `[outputs][pitch]`; the first `columns` of each row count, the rest is padding.
pub struct Matrix {
    pub(super) memory: DeviceMemory,
    pub(super) kind: MatrixKind,
    pub(super) outputs: usize,
    pub(super) columns: usize,
    pub(super) pitch: usize,
}

/// Number format of a matrix.
pub enum MatrixKind {
    /// Single precision, f32.
    F32,
    /// Half the memory: bf16.
    Bf16,
    /// Integers, with their scales.
    Integers(IntegerFormat, IntegerScales),
}

/// Scales of integers, and minimums.
pub struct IntegerScales {
    pub(super) memory: DeviceMemory,
    /// Parameter of the kernels: see `Scales` in `kernels/cuda/product.cuh`.
    pub(super) scaling: u32,
}

impl IntegerScales {
    /// Returns the kernels' parameter for scales that a power of two of inputs share.
    pub(super) fn scaling(kind: GroupScales, shared: usize) -> u32 {
        const HALF: u32 = 32;
        const MINIMUM: u32 = 64;
        const SUPER: u32 = 128;
        shared.trailing_zeros()
            | match kind {
                GroupScales::Bf16 => 0,
                GroupScales::F16 | GroupScales::F16Halves => HALF,
                GroupScales::F16Minimum => HALF | MINIMUM,
                GroupScales::SuperBlock => HALF | MINIMUM | SUPER,
            }
    }
}

impl MatrixKind {
    /// Scales of integers; `None` for floating-point numbers.
    pub(super) fn scales(&self) -> Option<&IntegerScales> {
        match self {
            Self::Integers(_, scales) => Some(scales),
            Self::F32 | Self::Bf16 => None,
        }
    }

    /// True if the numbers are bf16.
    pub(super) fn is_bf16(&self) -> bool {
        matches!(self, Self::Bf16)
    }
}

/// Outputs of matrices that are joined along the output.
pub(super) fn outputs(matrices: &[Matrix]) -> usize {
    matrices.iter().map(|matrix| matrix.outputs).sum()
}
