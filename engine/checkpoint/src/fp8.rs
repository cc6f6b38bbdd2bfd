//! Matrices of eight-bit floating-point numbers (e4m3), dequantised to bfloat16.
//!
//! A number is multiplied by its scale in single precision, which is exact up to one rounding, and the product is rounded to
//! the nearest bfloat16, ties to even. Scales are published for a whole matrix, for each output channel
//! (`weight_scale`), or for blocks of 128 by 128 (`weight_scale_inv`, which multiplies too in spite of its name).

use candle_core::{DType, Device, Tensor};
use half::bf16;

use crate::error::FormatError;

/// Edge of a block where a checkpoint does not name another.
pub const BLOCK: usize = 128;

/// Scales of a matrix.
#[derive(Debug, Clone, Copy)]
pub struct Fp8Scales<'a> {
    /// As many numbers as the shape says, row-major.
    pub numbers: &'a [f32],
    /// Shape of the scales: none or `[1]` for one, `[out]` or `[out, 1]` for channels, otherwise blocks.
    pub shape: &'a [usize],
    /// Outputs and inputs of a block.
    pub block: [usize; 2],
}

impl Fp8Scales<'_> {
    /// Outputs and inputs that share a scale; `None` if the scales do not fit the matrix.
    fn shared(&self, [out, inputs]: [usize; 2]) -> Option<[usize; 2]> {
        let [rows, columns] = match *self.shape {
            [] | [1] | [1, 1] => return (self.numbers.len() == 1).then_some([out.max(1), inputs.max(1)]),
            [rows] | [rows, 1] if rows == out => return (self.numbers.len() == out).then_some([1, inputs.max(1)]),
            [rows, columns] => [rows, columns],
            _ => return None,
        };
        let [high, wide] = self.block;
        let fits = high > 0 && wide > 0 && [rows, columns] == [out.div_ceil(high), inputs.div_ceil(wide)];
        (fits && self.numbers.len() == rows * columns).then_some(self.block)
    }
}

/// Dequantises a matrix `[out, inputs]`; returns bfloat16, row-major, little-endian.
///
/// # Errors
/// The bytes or the scales do not fit the shape.
pub fn dequantise(
    (file, name): (&str, &str),
    shape: [usize; 2],
    bytes: &[u8],
    scales: Fp8Scales<'_>,
) -> Result<Vec<u8>, FormatError> {
    let refused = |message: String| FormatError::refused(file, format!("tensor {name}"), message);
    let [out, inputs] = shape;
    let [high, wide] =
        scales.shared(shape).filter(|_| Some(bytes.len()) == out.checked_mul(inputs)).ok_or_else(|| {
            refused(format!(
                "{} bytes and scales of shape {:?} do not make a matrix {shape:?}",
                bytes.len(),
                scales.shape
            ))
        })?;
    let values = values().map_err(|error| refused(error.to_string()))?;
    let columns = inputs.div_ceil(wide);
    let mut numbers = Vec::with_capacity(2 * bytes.len());
    for (row, bytes) in bytes.chunks_exact(inputs.max(1)).enumerate() {
        for (column, bytes) in bytes.chunks(wide).enumerate() {
            let scale = scales.numbers[row / high * columns + column];
            numbers
                .extend(bytes.iter().flat_map(|&byte| bf16::from_f32(values[usize::from(byte)] * scale).to_le_bytes()));
        }
    }
    Ok(numbers)
}

/// Number that each byte stands for, by candle.
fn values() -> candle_core::Result<Vec<f32>> {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let numbers = Tensor::from_raw_buffer(&bytes, DType::F8E4M3, &[bytes.len()], &Device::Cpu)?;
    numbers.to_dtype(DType::F32)?.to_vec1()
}
