//! Matrices and vectors of weights on the device.

use super::memory::DeviceMemory;
use crate::cpu::quantised::IntegerFormat;

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
    /// Integers, with the memory of their scales.
    Integers(IntegerFormat, DeviceMemory),
}

impl MatrixKind {
    /// Address of the scales; `None` unless the numbers are integers.
    pub(super) fn scales(&self) -> Option<u64> {
        match self {
            Self::Integers(_, scales) => Some(scales.at),
            Self::F32 | Self::Bf16 => None,
        }
    }

    /// True if the numbers are bf16.
    pub(super) fn is_bf16(&self) -> bool {
        matches!(self, Self::Bf16)
    }
}
