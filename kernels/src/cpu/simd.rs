//! What the processor offers, and how a loop is compiled for each kind of it.
//!
//! Element-wise loops are written once as plain Rust over slices and compiled three times by the macro `dispatch`; the
//! compiler vectorises each for its level. The matrix product, where registers have to be placed by hand, is written over [`Lanes`].

use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Vector instructions that a loop may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every 64-bit x86 processor has.
    Baseline,
    /// AVX2 and fused multiply-add.
    Avx2,
    /// AVX-512.
    Avx512,
}

impl Level {
    /// The best level of this machine; `REPARTEE_SIMD=baseline|avx2` lowers it, for tests and comparisons.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let best = if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("fma")
            {
                Self::Avx512
            } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                Self::Avx2
            } else {
                Self::Baseline
            };
            let asked = match std::env::var("REPARTEE_SIMD").as_deref() {
                Ok("baseline") => Self::Baseline,
                Ok("avx2") => Self::Avx2,
                _ => best,
            };
            asked.min(best)
        })
    }
}

/// Multiply-add as the level has it: fused where the processor can, else two roundings (a fused one in software would
/// be slow).
#[inline(always)]
pub fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Compiles `fn NAME<FUSED>(..)` for each [`Level`] and defines `fn DISPATCHED(level, ..)` that chooses.
macro_rules! dispatch {
    ($(#[$doc:meta])* $public:vis fn $name:ident = $generic:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $public fn $name(level: $crate::cpu::simd::Level, $($arg: $ty),*) $(-> $ret)? {
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) $(-> $ret)? { $generic::<true>($($arg),*) }
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) $(-> $ret)? { $generic::<true>($($arg),*) }
            match level {
                // SAFETY: a level is only ever made by `Level::detect`, which asks the processor first.
                $crate::cpu::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                $crate::cpu::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                $crate::cpu::simd::Level::Baseline => $generic::<false>($($arg),*),
            }
        }
    };
}
pub(crate) use dispatch;

/// Sixteen numbers in registers: what one row of a packed panel needs.
pub trait Lanes: Copy {
    /// All zero.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn zero() -> Self;
    /// All `x`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn splat(x: f32) -> Self;
    /// From memory, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load(from: *const f32) -> Self;
    /// bfloat16 from memory, unaligned, widened: exact.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load_bf16(from: *const u16) -> Self;
    /// To memory, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `to` is writable for sixteen numbers.
    unsafe fn store(self, to: *mut f32);
    /// `self + a * b`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
}

/// One 512-bit register.
#[derive(Clone, Copy)]
pub struct Wide(__m512);

impl Lanes for Wide {
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(_mm512_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Self(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Self(_mm512_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        unsafe { Self(_mm512_fmadd_ps(a.0, b.0, self.0)) }
    }
}

/// Two 256-bit registers.
#[derive(Clone, Copy)]
pub struct Pair(__m256, __m256);

impl Lanes for Pair {
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe {
            let x = _mm256_set1_ps(x);
            Self(x, x)
        }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        unsafe {
            let half = |from: *const u16| {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            };
            Self(half(from), half(from.add(8)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }
}

/// Sixteen plain numbers.
#[derive(Clone, Copy)]
pub struct Plain([f32; 16]);

impl Lanes for Plain {
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
        unsafe { Self(std::ptr::read_unaligned(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        let narrow: [u16; 16] = unsafe { std::ptr::read_unaligned(from.cast()) };
        Self(narrow.map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
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
}
