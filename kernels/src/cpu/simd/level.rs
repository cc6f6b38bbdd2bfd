//! Levels of vector instructions, and compilation of loops for each of them.

use std::fmt;
use std::sync::OnceLock;

#[cfg(all(target_arch = "aarch64", feature = "simd"))]
use super::aarch64;

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
    /// AVX2, fused multiply-add, and F16C, which all processors with both have.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    Avx2,
    /// AVX-512 with the extensions F, VL, DQ and BW.
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    Avx512,
    /// NEON and fused multiply-add, which all processors of the architecture have.
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    Neon,
    /// NEON with dot products of bytes.
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    NeonDotprod,
    /// NEON with dot products of bytes and products of matrices of bytes.
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    NeonI8mm,
}

impl LevelKind {
    /// All compiled kinds, the lowest first.
    const ALL: &[Self] = &[
        Self::Baseline,
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        Self::Avx2,
        #[cfg(all(target_arch = "x86_64", feature = "simd"))]
        Self::Avx512,
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        Self::Neon,
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        Self::NeonDotprod,
        #[cfg(all(target_arch = "aarch64", feature = "simd"))]
        Self::NeonI8mm,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx512 => "avx512",
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            Self::Neon => "neon",
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            Self::NeonDotprod => "neon+dotprod",
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            Self::NeonI8mm => "neon+i8mm",
        }
    }

    /// True if this processor has the instructions.
    fn is_supported(self) -> bool {
        match self {
            Self::Baseline => true,
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            Self::Avx512 => {
                Self::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            Self::Neon => true,
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            Self::NeonDotprod => aarch64::has_dotprod(),
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            Self::NeonI8mm => aarch64::has_dotprod() && aarch64::has_i8mm(),
        }
    }
}

impl SimdLevel {
    /// Plain instructions, which every processor has.
    pub const BASELINE: Self = Self(LevelKind::Baseline);

    /// Returns the best level of this processor; `REPARTEE_SIMD`, a [`SimdLevel::name`], lowers it, for tests and comparisons.
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

    /// Name of the level: `baseline`; `avx2` or `avx512` on x86-64; `neon`, `neon+dotprod` or `neon+i8mm` on AArch64.
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

/// Compiles `fn NAME<FUSED>(..)` for each [`SimdLevel`] and defines `fn DISPATCHED(level, ..)`, which selects one.
macro_rules! dispatch {
    ($(#[$doc:meta])* $public:vis fn $name:ident = $generic:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $public fn $name(level: $crate::cpu::simd::level::SimdLevel, $($arg: $ty),*) $(-> $ret)? {
            $crate::cpu::simd::level::dispatch!(@body level, $generic($($arg: $ty),*) $(-> $ret)?,)
        }
    };
    // An unsafe function: the caller gives the guarantees.
    ($(#[$doc:meta])* $public:vis unsafe fn $name:ident = $generic:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $public unsafe fn $name(level: $crate::cpu::simd::level::SimdLevel, $($arg: $ty),*) {
            $crate::cpu::simd::level::dispatch!(@body level, $generic($($arg: $ty),*), unsafe)
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
            $crate::cpu::simd::level::LevelKind::Baseline => $($unsafe)? { $generic::<false>($($arg),*) },
            // SAFETY: a `SimdLevel` of this kind exists only where the processor has these instructions.
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            $crate::cpu::simd::level::LevelKind::Avx2 => unsafe { avx2($($arg),*) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "simd"))]
            $crate::cpu::simd::level::LevelKind::Avx512 => unsafe { avx512($($arg),*) },
            // Every processor of the architecture has the instructions of these loops.
            #[cfg(all(target_arch = "aarch64", feature = "simd"))]
            $crate::cpu::simd::level::LevelKind::Neon
            | $crate::cpu::simd::level::LevelKind::NeonDotprod
            | $crate::cpu::simd::level::LevelKind::NeonI8mm => $($unsafe)? { $generic::<true>($($arg),*) },
        }
    }};
}
pub(crate) use dispatch;
