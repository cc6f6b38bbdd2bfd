//! Implements [`Lanes`](super::lanes::Lanes) and [`Dots`](super::dots::Dots) in the registers of AArch64.
//!
//! - `lanes`: numbers of single precision; `dots`: integers, with widening products and with dot products; `matrices`: integers of two
//!   rows, with products of matrices; [`peak`]: loops on registers
//!
//! NEON and its fused multiply-add belong to every processor of the architecture; dot products of bytes do not. Instructions without a
//! stable intrinsic in every supported compiler are written as assembly.

mod dots;
mod lanes;
mod matrices;
pub mod peak;

use std::arch::{asm, is_aarch64_feature_detected};

pub use dots::{DotInt4, DotInt8, NeonInt4, NeonInt8};
pub use lanes::NeonLanes;
pub use matrices::{MatrixInt4, MatrixInt8};

/// True if this processor has dot products of bytes.
pub fn has_dotprod() -> bool {
    is_aarch64_feature_detected!("dotprod")
}

/// True if this processor has products of matrices of bytes.
pub fn has_i8mm() -> bool {
    is_aarch64_feature_detected!("i8mm")
}

/// Prefetches into the nearest cache.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: every processor of the architecture has the instruction, and it accepts any address.
    unsafe { asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(readonly, nostack, preserves_flags)) }
}
