//! Peak loops on registers alone: multiply-adds on [`SUMS`] registers, [`ROUNDS`] times each.

use std::arch::aarch64::*;
use std::arch::asm;
use std::hint::black_box;

use crate::cpu::simd::peak::{ROUNDS, SUMS};

/// Runs multiply-adds of single precision in 128-bit registers.
pub fn neon(x: f32) {
    // SAFETY: NEON is in every processor of the architecture.
    unsafe {
        let mut sums = [vdupq_n_f32(x); SUMS];
        let (factor, term) = (vdupq_n_f32(x * 0.999), vdupq_n_f32(x * 0.001));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, factor, term);
            }
        }
        black_box(sums);
    }
}

/// Runs multiply-adds of bytes by widening multiplications, eight at a time.
pub fn widening(x: f32) {
    // SAFETY: as above.
    unsafe {
        let mut sums = [vdupq_n_s16(x as i16); SUMS];
        let (left, right) = (vdup_n_s8(x as i8), vdup_n_s8(2 * x as i8));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = vmlal_s8(*sum, left, right);
            }
        }
        black_box(sums);
    }
}

/// Runs multiply-adds of bytes, four at a time, in 128-bit registers.
///
/// # Safety
/// The processor has dot products of bytes.
#[target_feature(enable = "neon,dotprod")]
pub unsafe fn dotprod(x: f32) {
    let mut sums = [vdupq_n_s32(x as i32); SUMS];
    let (left, right) = (vdupq_n_s8(x as i8), vdupq_n_s8(2 * x as i8));
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            // SAFETY: the caller guarantees the instruction, which touches registers alone.
            unsafe {
                asm!("sdot {sum:v}.4s, {left:v}.16b, {right:v}.16b", sum = inlateout(vreg) *sum, left = in(vreg) left,
                    right = in(vreg) right, options(pure, nomem, nostack, preserves_flags));
            }
        }
    }
    black_box(sums);
}
