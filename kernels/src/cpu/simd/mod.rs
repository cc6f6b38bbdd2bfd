//! Vector instructions of the processor, and compilation of loops for each level of them.
//!
//! Element-wise loops are plain Rust over slices; the macro `dispatch` compiles and vectorises them once for each level. The matrix
//! product, which needs registers placed by hand, is written over [`Lanes`].
//!
//! Levels above [`SimdLevel::BASELINE`] need an x86-64 processor and the crate's feature `simd`, which is on by default. Without them the same
//! loops are compiled for the baseline alone, in plain Rust.

mod dots;
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
mod x86;

use std::fmt;
use std::sync::OnceLock;

pub use dots::{Dots, ScalarInt4, ScalarInt8};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
pub(super) use x86::peak;
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
pub use x86::{Avx2Int4, Avx2Int8, Avx2Lanes, Avx512Lanes, VnniInt4, VnniInt8};

/// Proof that this processor has certain vector instructions.
///
/// Only [`SimdLevel::detect`] and [`SimdLevel::available`] create one above the baseline, after checking the processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimdLevel(LevelKind);

/// Instruction set of a [`SimdLevel`], for `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LevelKind {
    /// Instructions of every processor of the architecture.
    Baseline,
    /// AVX2 and fused multiply-add.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    Avx2,
    /// AVX-512 with the extensions F, VL, DQ and BW.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    Avx512,
}

impl LevelKind {
    /// All compiled kinds, the lowest first.
    const ALL: &[Self] = &[
        Self::Baseline,
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        Self::Avx2,
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        Self::Avx512,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx512 => "avx512",
        }
    }

    /// True if this processor has the instructions.
    fn is_supported(self) -> bool {
        match self {
            Self::Baseline => true,
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx512 => {
                Self::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
            }
        }
    }
}

impl SimdLevel {
    /// Plain instructions, which every processor has.
    pub const BASELINE: Self = Self(LevelKind::Baseline);

    /// Returns the best level of this processor; `REPARTEE_SIMD=baseline|avx2` lowers it, for tests and comparisons.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let best = LevelKind::ALL.iter().rfind(|kind| kind.is_supported()).copied().unwrap_or(LevelKind::Baseline);
            let asked = std::env::var("REPARTEE_SIMD").ok();
            let limit = LevelKind::ALL.iter().find(|kind| asked.as_deref() == Some(kind.name()));
            Self(limit.map_or(best, |&limit| limit.min(best)))
        })
    }

    /// Lists every level up to [`SimdLevel::detect`], the lowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let best = Self::detect();
        LevelKind::ALL.iter().copied().filter(move |&kind| kind <= best.0 && kind.is_supported()).map(Self)
    }

    /// Names the levels that are compiled in but not available.
    pub fn unavailable() -> impl Iterator<Item = &'static str> {
        let best = Self::detect();
        LevelKind::ALL.iter().filter(move |&&kind| kind > best.0 || !kind.is_supported()).map(|kind| kind.name())
    }

    /// Name of the level: `baseline`, `avx2` or `avx512`.
    pub const fn name(self) -> &'static str {
        self.0.name()
    }

    /// True if integer products use AVX-512 VNNI, which only some processors with AVX-512 have. Without it such a processor computes
    /// integer products as with AVX2.
    pub fn has_vnni(self) -> bool {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            LevelKind::Avx512 => is_x86_feature_detected!("avx512vnni"),
            _ => false,
        }
    }

    /// Instruction set, for `match`.
    pub(crate) const fn kind(self) -> LevelKind {
        self.0
    }
}

impl fmt::Debug for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Multiply-add of the level: fused if the processor can, else two roundings (software fusing would be slow).
#[inline(always)]
pub fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Prefetches the cache line of `at`, which need not be readable. Does nothing on architectures without a known instruction.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    x86::prefetch(at);
    #[cfg(not(all(target_arch = "x86_64", feature = "simd")))]
    let _ = at;
}

/// Compiles `fn NAME<FUSED>(..)` for each [`SimdLevel`] and defines `fn DISPATCHED(level, ..)`, which selects one.
macro_rules! dispatch {
    ($(#[$doc:meta])* $public:vis fn $name:ident = $generic:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $public fn $name(level: $crate::cpu::simd::SimdLevel, $($arg: $ty),*) $(-> $ret)? {
            $crate::cpu::simd::dispatch!(@body level, $generic($($arg: $ty),*) $(-> $ret)?,)
        }
    };
    // An unsafe function: the caller gives the guarantees.
    ($(#[$doc:meta])* $public:vis unsafe fn $name:ident = $generic:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $public unsafe fn $name(level: $crate::cpu::simd::SimdLevel, $($arg: $ty),*) {
            $crate::cpu::simd::dispatch!(@body level, $generic($($arg: $ty),*), unsafe)
        }
    };
    (@body $level:ident, $generic:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $($unsafe:ident)?) => {{
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
        #[allow(clippy::too_many_arguments)]
        $($unsafe)? fn avx512($($arg: $ty),*) $(-> $ret)? { $($unsafe)? { $generic::<true>($($arg),*) } }
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        #[target_feature(enable = "avx2,fma")]
        #[allow(clippy::too_many_arguments)]
        $($unsafe)? fn avx2($($arg: $ty),*) $(-> $ret)? { $($unsafe)? { $generic::<true>($($arg),*) } }
        match $level.kind() {
            $crate::cpu::simd::LevelKind::Baseline => $($unsafe)? { $generic::<false>($($arg),*) },
            // SAFETY: a `SimdLevel` of this kind exists only where the processor has these instructions.
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            $crate::cpu::simd::LevelKind::Avx2 => unsafe { avx2($($arg),*) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            $crate::cpu::simd::LevelKind::Avx512 => unsafe { avx512($($arg),*) },
        }
    }};
}
pub(crate) use dispatch;

/// Sixteen numbers in registers: one row of a packed panel.
pub trait Lanes: Copy {
    /// Returns sixteen zeros.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn zero() -> Self;
    /// Fills all lanes with `x`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn splat(x: f32) -> Self;
    /// Loads sixteen numbers, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load(from: *const f32) -> Self;
    /// Loads sixteen bfloat16, unaligned, and widens them exactly.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load_bf16(from: *const u16) -> Self;
    /// Stores sixteen numbers, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `to` is writable for sixteen numbers.
    unsafe fn store(self, to: *mut f32);
    /// Returns `self + a * b`, fused if the level has it.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    /// Returns `self + b`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn plus(self, b: Self) -> Self;
    /// Returns `self * b`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn times(self, b: Self) -> Self;
}

/// Sixteen plain numbers, for any processor.
#[derive(Clone, Copy)]
pub struct ScalarLanes(pub(super) [f32; 16]);

impl Lanes for ScalarLanes {
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 16])
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 16])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees sixteen readable numbers.
        Self(unsafe { std::ptr::read_unaligned(from.cast()) })
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees sixteen readable numbers.
        let narrow: [u16; 16] = unsafe { std::ptr::read_unaligned(from.cast()) };
        Self(narrow.map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees room for sixteen numbers.
        unsafe { std::ptr::write_unaligned(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        let mut sum = self.0;
        for ((sum, a), b) in sum.iter_mut().zip(a.0).zip(b.0) {
            *sum += a * b;
        }
        Self(sum)
    }
    #[inline(always)]
    unsafe fn plus(self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] + b.0[lane]))
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] * b.0[lane]))
    }
}
