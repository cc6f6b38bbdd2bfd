//! Integer dot products of a group of inputs with sixteen columns of a weight.

use super::lanes::{Lanes, ScalarLanes};

/// Exact sums of sixteen columns over one group, in the layout of `quantised`.
///
/// A sum takes at most eight calls of [`Dots::add`], of four inputs each: a whole group. Some implementations overflow beyond.
pub trait Dots: Copy {
    /// Bytes of a step: eight inputs of sixteen columns.
    const STEP: usize;
    /// Number that each weight has added while it is multiplied.
    const ADDED: i32;
    /// True if weights are stored with that number added.
    const STORED_ADDED: bool;
    /// True if two rows are computed together, by [`Dots::add_pair`]. Their sums are mixed until [`Dots::separate`].
    const PAIRED: bool = false;
    /// Registers for the sums in single precision.
    type Sums: Lanes;
    /// Four inputs of sixteen columns.
    type Quad: Copy;

    /// Returns sums of zero.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn zero() -> Self;
    /// Loads both halves of a step.
    ///
    /// # Safety
    /// The processor has the implementation's instructions; `from` is readable for [`Dots::STEP`] bytes.
    unsafe fn load(from: *const u8) -> [Self::Quad; 2];
    /// Adds the products of four inputs, each a byte of `x` between -127 and 127.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn add(self, weights: Self::Quad, x: i32) -> Self;
    /// Adds the products of both halves of a step to the sums of two rows; `x` has the rows' inputs of each half.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    #[inline(always)]
    unsafe fn add_pair(rows: [Self; 2], [first, second]: [Self::Quad; 2], x: [[i32; 2]; 2]) -> [Self; 2] {
        let [above, below] = rows;
        // SAFETY: the caller's guarantee.
        unsafe { [above.add(first, x[0][0]).add(second, x[0][1]), below.add(first, x[1][0]).add(second, x[1][1])] }
    }
    /// Separates the sums of two rows that [`Dots::add_pair`] has computed.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    #[inline(always)]
    unsafe fn separate(rows: [Self; 2]) -> [Self; 2] {
        rows
    }
    /// Subtracts `added` from each sum, [`Dots::ADDED`] times the sum of the inputs, and converts to single precision, exactly. With 0 the
    /// added numbers remain; ignored by implementations that add none.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn finish(self, added: i32) -> Self::Sums;
}

/// Products of int8 for any processor.
#[derive(Clone, Copy)]
pub struct ScalarInt8([i32; 16]);

/// Products of int4 for any processor.
#[derive(Clone, Copy)]
pub struct ScalarInt4([i32; 16]);

/// Four inputs of sixteen columns, widened.
type Quad = [[i32; 4]; 16];

/// Adds the products of four inputs to each sum.
#[inline(always)]
fn add(mut sums: [i32; 16], weights: &Quad, x: i32) -> [i32; 16] {
    let x = x.to_ne_bytes().map(|byte| i32::from(byte as i8));
    for (sum, weights) in sums.iter_mut().zip(weights) {
        for (weight, x) in weights.iter().zip(x) {
            *sum = sum.wrapping_add(weight.wrapping_mul(x));
        }
    }
    sums
}

impl Dots for ScalarInt8 {
    const STEP: usize = 128;
    const ADDED: i32 = 0;
    const STORED_ADDED: bool = false;
    type Sums = ScalarLanes;
    type Quad = Quad;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 16])
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [Quad; 2] {
        // SAFETY: the caller guarantees 128 readable bytes.
        let halves: [[[i8; 4]; 16]; 2] = unsafe { std::ptr::read_unaligned(from.cast()) };
        halves.map(|half| half.map(|column| column.map(i32::from)))
    }
    #[inline(always)]
    unsafe fn add(self, weights: Quad, x: i32) -> Self {
        Self(add(self.0, &weights, x))
    }
    #[inline(always)]
    unsafe fn finish(self, _added: i32) -> ScalarLanes {
        ScalarLanes(self.0.map(|sum| sum as f32))
    }
}

impl Dots for ScalarInt4 {
    const STEP: usize = 64;
    const ADDED: i32 = 8;
    const STORED_ADDED: bool = true;
    type Sums = ScalarLanes;
    type Quad = Quad;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 16])
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [Quad; 2] {
        // SAFETY: the caller guarantees 64 readable bytes.
        let step: [[u8; 4]; 16] = unsafe { std::ptr::read_unaligned(from.cast()) };
        let half = |shift: u32| step.map(|column| column.map(|byte| i32::from(byte >> shift & 0xf)));
        [half(0), half(4)]
    }
    #[inline(always)]
    unsafe fn add(self, weights: Quad, x: i32) -> Self {
        Self(add(self.0, &weights, x))
    }
    #[inline(always)]
    unsafe fn finish(self, added: i32) -> ScalarLanes {
        ScalarLanes(self.0.map(|sum| sum.wrapping_sub(added) as f32))
    }
}
