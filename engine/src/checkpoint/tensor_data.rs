//! A tensor as the models get it.

use std::borrow::Cow;

use repartee_checkpoint::PackedMatrix;
use repartee_kernels::{DType, PackedTensor, RandomDraw};

/// A tensor in a format that the devices take.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorView<'a> {
    /// Number format of the elements.
    pub dtype: DType,
    /// Shape, slowest dimension first.
    pub shape: &'a [usize],
    /// Elements, row-major and little endian: those of the file, or converted ones. Their address need not be aligned to
    /// the element's size.
    pub bytes: Cow<'a, [u8]>,
}

/// Data of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData<'a> {
    /// Floating-point numbers, as stored in a file, or dequantised.
    Stored(TensorView<'a>),
    /// Integers of a quantised checkpoint, as stored in a file.
    Packed(PackedTensor<'a>),
    /// Integers of a quantised checkpoint in another order than in the file.
    Repacked(PackedMatrix),
    /// Random numbers of a synthetic checkpoint.
    Drawn(RandomDraw),
}
