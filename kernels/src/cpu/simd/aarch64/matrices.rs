//! Integer dot products of sixteen columns with two rows, by products of matrices of bytes.

use std::arch::aarch64::*;
use std::arch::asm;

use super::dots::{DotInt4, DotInt8};
use super::lanes::NeonLanes;
use crate::cpu::simd::dots::Dots;

/// Sums of two columns with two rows.
type Block = int32x4_t;

/// Adds the products of two columns with two rows, eight inputs each.
///
/// # Safety
/// The processor has products of matrices of bytes.
#[inline(always)]
unsafe fn multiply(mut sums: Block, columns: int32x4_t, rows: int32x4_t) -> Block {
    // SAFETY: the caller guarantees the instruction, which touches registers alone.
    unsafe {
        asm!("smmla {sums:v}.4s, {columns:v}.16b, {rows:v}.16b", sums = inlateout(vreg) sums,
            columns = in(vreg) columns, rows = in(vreg) rows, options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Adds the products of both halves of a step: each register of both rows has the sums of two columns with two rows.
///
/// # Safety
/// The processor has products of matrices of bytes.
#[inline(always)]
unsafe fn add_pair(rows: [[Block; 4]; 2], halves: [[int8x16_t; 4]; 2], x: [[i32; 2]; 2]) -> [[Block; 4]; 2] {
    let [mut even, mut odd] = rows;
    // SAFETY: NEON is in every processor of the architecture; `x` has four numbers; the caller guarantees the product.
    unsafe {
        let x = vld1q_s32(x.as_ptr().cast());
        for i in 0..4 {
            let [first, second] = [vreinterpretq_s32_s8(halves[0][i]), vreinterpretq_s32_s8(halves[1][i])];
            even[i] = multiply(even[i], vzip1q_s32(first, second), x);
            odd[i] = multiply(odd[i], vzip2q_s32(first, second), x);
        }
    }
    [even, odd]
}

/// Separates the rows of all blocks.
#[inline(always)]
fn separate([even, odd]: [[Block; 4]; 2]) -> [[int32x4_t; 4]; 2] {
    // SAFETY: NEON is in every processor of the architecture.
    unsafe {
        [std::array::from_fn(|i| vuzp1q_s32(even[i], odd[i])), std::array::from_fn(|i| vuzp2q_s32(even[i], odd[i]))]
    }
}

/// Implements [`Dots`]: two rows by products of matrices, a single row as another type does.
macro_rules! paired {
    ($(#[$doc:meta])* $name:ident, $single:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name($single);

        impl Dots for $name {
            const STEP: usize = $single::STEP;
            const ADDED: i32 = $single::ADDED;
            const STORED_ADDED: bool = $single::STORED_ADDED;
            const PAIRED: bool = true;
            type Sums = NeonLanes;
            type Quad = <$single as Dots>::Quad;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's guarantee.
                unsafe { Self($single::zero()) }
            }
            #[inline(always)]
            unsafe fn load(from: *const u8) -> [Self::Quad; 2] {
                // SAFETY: the caller's guarantees.
                unsafe { $single::load(from) }
            }
            #[inline(always)]
            unsafe fn add(self, weights: Self::Quad, x: i32) -> Self {
                // SAFETY: the caller's guarantee.
                unsafe { Self(self.0.add(weights, x)) }
            }
            #[inline(always)]
            unsafe fn add_pair([above, below]: [Self; 2], halves: [Self::Quad; 2], x: [[i32; 2]; 2]) -> [Self; 2] {
                // SAFETY: the caller's guarantee.
                unsafe { add_pair([above.0.0, below.0.0], halves, x) }.map(|sums| Self($single(sums)))
            }
            #[inline(always)]
            unsafe fn separate([above, below]: [Self; 2]) -> [Self; 2] {
                separate([above.0.0, below.0.0]).map(|sums| Self($single(sums)))
            }
            #[inline(always)]
            unsafe fn finish(self, added: i32) -> NeonLanes {
                // SAFETY: the caller's guarantee.
                unsafe { self.0.finish(added) }
            }
        }
    };
}

paired!(/// Products of int8, of two rows by products of matrices.
    MatrixInt8, DotInt8);
paired!(/// Products of int4, of two rows by products of matrices. Weights have 8 added, as they are stored.
    MatrixInt4, DotInt4);
