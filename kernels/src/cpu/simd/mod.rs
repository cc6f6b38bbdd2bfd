//! Vector instructions of the processor, and compilation of loops for each level of them.
//!
//! - [`level`]: levels, and the macro `dispatch`, which compiles and vectorises a plain loop once for each
//! - [`lanes`]: registers placed by hand, for the matrix product; [`dots`]: products of integers in them; `x86`, `aarch64`: both for x86-64
//!   and for AArch64
//! - [`peak`]: multiply-adds on registers alone
//!
//! Levels above [`SimdLevel::BASELINE`] need an x86-64 or AArch64 processor and the crate's feature `simd`, which is on by default. Without
//! them the same loops are compiled for the baseline alone, in plain Rust.

#[cfg(all(target_arch = "aarch64", feature = "simd"))]
pub(super) mod aarch64;
pub mod dots;
pub mod lanes;
pub mod level;
pub mod peak;
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
pub(super) mod x86;

#[cfg(all(target_arch = "aarch64", feature = "simd"))]
pub use aarch64::{DotInt4, DotInt8, MatrixInt4, MatrixInt8, NeonInt4, NeonInt8, NeonLanes};
pub use dots::{Dots, ScalarInt4, ScalarInt8};
pub use lanes::{LANES, Lanes, ScalarLanes};
pub(crate) use level::{LevelKind, dispatch};
pub use level::{SimdLevel, multiply_add};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
pub use x86::{Avx2Int4, Avx2Int8, Avx2Lanes, Avx512Lanes, VnniInt4, VnniInt8};

/// Prefetches the cache line of `at`, which need not be readable. Does nothing on architectures without a known instruction.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    x86::prefetch(at);
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    aarch64::prefetch(at);
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), feature = "simd")))]
    let _ = at;
}
