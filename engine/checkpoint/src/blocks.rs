//! GGML's blocks, repacked into the form of our products, or dequantised by candle.
//!
//! Integers are kept as they are. Scales and minimums that a block stores in half precision are kept too, and so are those
//! of Q4_K and Q5_K: integers of six bits and two halves for each block. The scales of Q6_K are products of a half and an
//! integer of eight bits, and are rounded to half precision here.

use std::borrow::Cow;

use candle_core::CpuStorage;
use candle_core::quantized::GgmlDType;
use half::f16;

use crate::error::FormatError;
use crate::packed::{IntegerPacking, MatrixBuilder, PackedMatrix};

/// Numbers of a block of the K formats.
const K: usize = 256;

/// Repacks a matrix `[out, inputs]`; `None` if its format or its width has no packed form. `file` and `name` are for
/// messages.
///
/// # Errors
/// The bytes are not as many as the shape asks for, or a scale is not finite.
pub fn pack(
    (file, name): (&str, &str),
    kind: GgmlDType,
    shape: [usize; 2],
    bytes: &[u8],
) -> Result<Option<PackedMatrix>, FormatError> {
    check_length((file, name), kind, &shape, bytes)?;
    if !shape[1].is_multiple_of(kind.block_size()) {
        return Ok(None);
    }
    let four = |minimums| MatrixBuilder::new(shape, IntegerPacking::Four, 32, minimums);
    let eight = |group, minimums| MatrixBuilder::new(shape, IntegerPacking::Bytes, group, minimums);
    let super_blocks = |packing| MatrixBuilder::in_super_blocks(shape, packing);
    let matrix = match kind {
        GgmlDType::Q4_0 => blocks(four(false), bytes, |to, [d0, d1, qs @ ..]: &[u8; 18]| {
            to.scale(half([*d0, *d1]));
            to.fours(&nibbles(qs), |four| four);
        }),
        GgmlDType::Q4_1 => blocks(four(true), bytes, |to, [d0, d1, m0, m1, qs @ ..]: &[u8; 20]| {
            to.scale(half([*d0, *d1]));
            to.minimum(half([*m0, *m1]));
            to.fours(&nibbles(qs), |four| four);
        }),
        GgmlDType::Q5_0 => blocks(eight(32, false), bytes, |to, [d0, d1, h0, h1, h2, h3, qs @ ..]: &[u8; 22]| {
            to.scale(half([*d0, *d1]));
            let high = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
            let low = nibbles(qs);
            to.eights(|i| five(low[i], high >> i).wrapping_sub(16));
        }),
        GgmlDType::Q5_1 => blocks(eight(32, true), bytes, |to, [d0, d1, m0, m1, rest @ ..]: &[u8; 24]| {
            to.scale(half([*d0, *d1]));
            to.minimum(half([*m0, *m1]));
            let [h0, h1, h2, h3, qs @ ..] = rest;
            let high = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
            let low = nibbles(qs);
            to.eights(|i| five(low[i], high >> i));
        }),
        GgmlDType::Q8_0 => blocks(eight(32, false), bytes, |to, [d0, d1, qs @ ..]: &[u8; 34]| {
            to.scale(half([*d0, *d1]));
            to.eights(|i| qs[i].cast_signed());
        }),
        GgmlDType::Q4K => blocks(super_blocks(IntegerPacking::Four), bytes, |to, block: &[u8; 144]| {
            k_scales(to, block);
            for qs in block[16..].as_chunks::<32>().0 {
                to.fours(qs, |q| q);
                to.fours(qs, |q| q >> 4);
            }
        }),
        GgmlDType::Q5K => blocks(super_blocks(IntegerPacking::Bytes), bytes, |to, block: &[u8; 176]| {
            k_scales(to, block);
            let (high, low) = block[16..].as_chunks::<32>().0.split_at(1);
            for (i, qs) in low.iter().enumerate() {
                to.eights(|at| five(qs[at] & 0xf, u32::from(high[0][at] >> (2 * i))));
                to.eights(|at| five(qs[at] >> 4, u32::from(high[0][at] >> (2 * i + 1))));
            }
        }),
        GgmlDType::Q6K => blocks(eight(16, false), bytes, |to, block: &[u8; 210]| {
            let scale = half([block[208], block[209]]);
            block[192..208].iter().for_each(|group| to.scale(scale * f32::from(group.cast_signed())));
            let (low, high) = (block[..128].as_chunks::<64>().0, block[128..192].as_chunks::<32>().0);
            for (low, high) in low.iter().zip(high) {
                let (first, second) = low.as_chunks::<32>().0.split_at(1);
                for (quarter, low) in [first, second, first, second].into_iter().enumerate() {
                    let shift = quarter / 2 * 4;
                    let six = |at: usize| low[0][at] >> shift & 0xf | (high[at] >> (2 * quarter) & 3) << 4;
                    to.eights(|at| six(at).cast_signed().wrapping_sub(32));
                }
            }
        }),
        _ => return Ok(None),
    };
    matrix.finish(file, name).map(Some)
}

/// Dequantises a tensor of any format to single precision, row-major, by candle.
///
/// # Errors
/// The bytes are not as many as the shape asks for, or the format is unknown to candle.
pub fn numbers(
    (file, name): (&str, &str),
    kind: GgmlDType,
    shape: &[usize],
    bytes: &[u8],
) -> Result<Vec<f32>, FormatError> {
    let count = check_length((file, name), kind, shape, bytes)?;
    let refused = |message: String| FormatError::refused(file, format!("tensor {name}"), message);
    // candle takes no bytes at an odd address.
    let bytes = if bytes.as_ptr().addr().is_multiple_of(4) { Cow::Borrowed(bytes) } else { Cow::Owned(bytes.to_vec()) };
    if !bytes.as_ptr().addr().is_multiple_of(4) {
        return Err(refused("lies at an odd place in memory, which is a defect of this program".to_owned()));
    }
    match kind.from_data(bytes).dequantize(count) {
        Ok(CpuStorage::F32(numbers)) => Ok(numbers),
        Ok(_) => Err(refused(format!("{kind:?} is dequantised to other numbers than f32"))),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// Number of bytes of the packed form of a tensor; `None` for a format without one.
pub fn packed_length(kind: GgmlDType, shape: &[usize]) -> Option<u64> {
    // Bits of 32 numbers. A super-block has 32 for 256.
    let bits = match kind {
        GgmlDType::Q4_0 => 32 * 4 + 16,
        GgmlDType::Q4K => 32 * 4 + 16 + 4,
        GgmlDType::Q4_1 => 32 * 4 + 32,
        GgmlDType::Q5_0 | GgmlDType::Q8_0 => 32 * 8 + 16,
        GgmlDType::Q5K => 32 * 8 + 16 + 4,
        GgmlDType::Q5_1 | GgmlDType::Q6K => 32 * 8 + 32,
        _ => return None,
    };
    let count = shape.iter().try_fold(1u64, |count, &size| count.checked_mul(size as u64))?;
    Some(count / 32 * bits / 8)
}

/// Number of bytes of a tensor; `None` if no memory holds as many, or blocks do not divide its numbers.
pub fn length(kind: GgmlDType, shape: &[usize]) -> Option<usize> {
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
    count.is_multiple_of(kind.block_size()).then_some(count / kind.block_size())?.checked_mul(kind.type_size())
}

/// Checks the length of a tensor; returns its count of numbers.
fn check_length(
    (file, name): (&str, &str),
    kind: GgmlDType,
    shape: &[usize],
    bytes: &[u8],
) -> Result<usize, FormatError> {
    if length(kind, shape) == Some(bytes.len()) {
        return Ok(shape.iter().product());
    }
    let message = format!("{} bytes of {kind:?} do not make a tensor of shape {shape:?}", bytes.len());
    Err(FormatError::refused(file, format!("tensor {name}"), message))
}

/// Appends every block of `N` bytes.
fn blocks<const N: usize>(
    mut to: MatrixBuilder,
    bytes: &[u8],
    append: impl Fn(&mut MatrixBuilder, &[u8; N]),
) -> MatrixBuilder {
    bytes.as_chunks().0.iter().for_each(|block| append(&mut to, block));
    to
}

fn half(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

/// Integers of a block of 32: the lower halves of all bytes, then the upper ones.
fn nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 0xf } else { bytes[i - 16] >> 4 })
}

/// Integer of four bits and the lowest bit of `high`.
fn five(low: u8, high: u32) -> i8 {
    (low | (high as u8 & 1) << 4).cast_signed()
}

/// Appends the eight scales and minimums of a block whose first bytes are those of Q4_K and Q5_K: the scale of scales,
/// the scale of minimums, and integers of six bits for each group of 32.
fn k_scales(to: &mut MatrixBuilder, block: &[u8]) {
    let [scale, minimum] = [[block[0], block[1]], [block[2], block[3]]].map(f16::from_le_bytes);
    to.super_block(scale, -minimum);
    let packed = &block[4..16];
    for group in 0..K / 32 {
        let (factor, offset) = if group < 4 {
            (packed[group] & 63, packed[group + 4] & 63)
        } else {
            let (upper, low) = (packed[group + 4], group - 4);
            (upper & 0xf | packed[low] >> 6 << 4, upper >> 4 | packed[group] >> 6 << 4)
        };
        to.six_bits(factor, offset);
    }
}
