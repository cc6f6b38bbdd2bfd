//! [`Lanes`] in the registers of x86-64.

use std::arch::x86_64::*;

use super::Lanes;

/// One 512-bit register.
#[derive(Clone, Copy)]
pub struct Wide(__m512);

impl Lanes for Wide {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller answers for AVX-512.
        unsafe { Self(_mm512_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller answers for AVX-512.
        unsafe { Self(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller answers for AVX-512 and for sixteen readable numbers.
        unsafe { Self(_mm512_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller answers for AVX-512 and for sixteen readable numbers, which are 256 bits.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller answers for AVX-512 and for room for sixteen numbers.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller answers for AVX-512.
        unsafe { Self(_mm512_fmadd_ps(a.0, b.0, self.0)) }
    }
}

/// Two 256-bit registers.
#[derive(Clone, Copy)]
pub struct Pair(__m256, __m256);

impl Lanes for Pair {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller answers for AVX2.
        unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller answers for AVX2.
        unsafe {
            let x = _mm256_set1_ps(x);
            Self(x, x)
        }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller answers for AVX2 and for sixteen readable numbers, eight for each register.
        unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller answers for AVX2 and for sixteen readable numbers, eight (128 bits) for each register.
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
        // SAFETY: the caller answers for AVX2 and for room for sixteen numbers, eight of each register.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller answers for AVX2 and fused multiply-add.
        unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }
}
