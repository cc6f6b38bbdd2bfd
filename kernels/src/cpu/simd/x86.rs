//! Implements [`Lanes`] and [`Dots`] in the registers of x86-64.

pub mod peak;

use std::arch::x86_64::*;

use super::dots::Dots;
use super::lanes::Lanes;

/// Prefetches into the nearest cache.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: every processor of the architecture has the instruction, and it accepts any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// One 512-bit register, for AVX-512.
#[derive(Clone, Copy)]
pub struct Avx512Lanes(__m512);

/// Mask of the first `count` of sixteen lanes.
#[inline(always)]
fn first_lanes(count: usize) -> __mmask16 {
    ((1u32 << count.min(16)) - 1) as __mmask16
}

impl Lanes for Avx512Lanes {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees AVX-512 and for sixteen readable numbers.
        unsafe { Self(_mm512_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees AVX-512 and for sixteen readable numbers, which are 256 bits.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees AVX-512 and for sixteen readable numbers, which are 256 bits.
        unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u16) -> [Self; 2] {
        // SAFETY: the caller guarantees AVX-512 and for sixteen readable numbers, which are 256 bits.
        unsafe {
            let pairs = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            let lower = _mm512_cvtepi32_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xff)));
            let upper = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(pairs));
            [Self(lower), Self(upper)]
        }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: the caller guarantees AVX-512 and for `count` readable numbers; the others are not read.
        unsafe { Self(_mm512_maskz_loadu_ps(first_lanes(count), from)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees AVX-512 and for room for sixteen numbers.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: the caller guarantees AVX-512 and for room for `count` numbers; the others are not written.
        unsafe { _mm512_mask_storeu_ps(to, first_lanes(count), self.0) }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_fmadd_ps(a.0, b.0, self.0)) }
    }
    #[inline(always)]
    unsafe fn plus(self, b: Self) -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_add_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_mul_ps(self.0, b.0)) }
    }
}

/// Two 256-bit registers, for AVX2.
#[derive(Clone, Copy)]
pub struct Avx2Lanes(__m256, __m256);

impl Lanes for Avx2Lanes {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let x = _mm256_set1_ps(x);
            Self(x, x)
        }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees AVX2 and for sixteen readable numbers, eight for each register.
        unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees AVX2 and for sixteen readable numbers, eight (128 bits) for each register.
        unsafe {
            let half = |from: *const u16| {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            };
            Self(half(from), half(from.add(8)))
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees AVX2 and F16C, and for sixteen readable numbers, eight (128 bits) for each register.
        unsafe {
            let half = |from: *const u16| _mm_loadu_si128(from.cast());
            Self(_mm256_cvtph_ps(half(from)), _mm256_cvtph_ps(half(from.add(8))))
        }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u16) -> [Self; 2] {
        // SAFETY: the caller guarantees AVX2 and for sixteen readable numbers, eight (128 bits) for each register.
        unsafe {
            // No closures: one that is not inlined would lack the instructions.
            let first = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let second = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast()));
            let mask = _mm256_set1_epi32(0xff);
            let lower = [_mm256_and_si256(first, mask), _mm256_and_si256(second, mask)];
            let upper = [_mm256_srli_epi32::<8>(first), _mm256_srli_epi32::<8>(second)];
            [
                Self(_mm256_cvtepi32_ps(lower[0]), _mm256_cvtepi32_ps(lower[1])),
                Self(_mm256_cvtepi32_ps(upper[0]), _mm256_cvtepi32_ps(upper[1])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees AVX2 and for room for sixteen numbers, eight of each register.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller guarantees AVX2 and fused multiply-add.
        unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }
    #[inline(always)]
    unsafe fn plus(self, b: Self) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { Self(_mm256_add_ps(self.0, b.0), _mm256_add_ps(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { Self(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1)) }
    }
}

/// Products of int8 in one 512-bit register, with VNNI.
///
/// The instruction multiplies unsigned by signed, so weights have 128 added.
#[derive(Clone, Copy)]
pub struct VnniInt8(__m512i);

impl Dots for VnniInt8 {
    const STEP: usize = 128;
    const ADDED: i32 = 128;
    const STORED_ADDED: bool = false;
    type Sums = Avx512Lanes;
    type Quad = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_setzero_si512()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [__m512i; 2] {
        // SAFETY: the caller guarantees AVX-512 and 128 readable bytes. Flipping the sign bit adds 128.
        unsafe {
            let sign = _mm512_set1_epi8(i8::MIN);
            let line = |from: *const u8| _mm512_xor_si512(_mm512_loadu_si512(from.cast()), sign);
            [line(from), line(from.add(64))]
        }
    }
    #[inline(always)]
    unsafe fn add(self, weights: __m512i, x: i32) -> Self {
        // SAFETY: the caller guarantees AVX-512 VNNI.
        unsafe { Self(_mm512_dpbusd_epi32(self.0, weights, _mm512_set1_epi32(x))) }
    }
    #[inline(always)]
    unsafe fn finish(self, added: i32) -> Avx512Lanes {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Avx512Lanes(_mm512_cvtepi32_ps(_mm512_sub_epi32(self.0, _mm512_set1_epi32(added)))) }
    }
}

/// Products of int4 in one 512-bit register, with VNNI. Weights have 8 added, as they are stored.
#[derive(Clone, Copy)]
pub struct VnniInt4(__m512i);

impl Dots for VnniInt4 {
    const STEP: usize = 64;
    const ADDED: i32 = 8;
    const STORED_ADDED: bool = true;
    type Sums = Avx512Lanes;
    type Quad = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Self(_mm512_setzero_si512()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [__m512i; 2] {
        // SAFETY: the caller guarantees AVX-512 and for 64 readable bytes.
        unsafe {
            let (line, low) = (_mm512_loadu_si512(from.cast()), _mm512_set1_epi8(0xf));
            [_mm512_and_si512(line, low), _mm512_and_si512(_mm512_srli_epi16::<4>(line), low)]
        }
    }
    #[inline(always)]
    unsafe fn add(self, weights: __m512i, x: i32) -> Self {
        // SAFETY: the caller guarantees AVX-512 VNNI.
        unsafe { Self(_mm512_dpbusd_epi32(self.0, weights, _mm512_set1_epi32(x))) }
    }
    #[inline(always)]
    unsafe fn finish(self, added: i32) -> Avx512Lanes {
        // SAFETY: the caller guarantees AVX-512.
        unsafe { Avx512Lanes(_mm512_cvtepi32_ps(_mm512_sub_epi32(self.0, _mm512_set1_epi32(added)))) }
    }
}

/// Products of int8 in two 256-bit registers, eight columns each.
///
/// The instruction adds two products of an unsigned and a signed byte in sixteen bits, saturating: the weight's magnitude, at most 128,
/// times the activation with the weight's sign, at most 127 either way, twice, fits.
#[derive(Clone, Copy)]
pub struct Avx2Int8(__m256i, __m256i);

impl Dots for Avx2Int8 {
    const STEP: usize = 128;
    const ADDED: i32 = 0;
    const STORED_ADDED: bool = false;
    type Sums = Avx2Lanes;
    type Quad = [__m256i; 2];

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { Self(_mm256_setzero_si256(), _mm256_setzero_si256()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [[__m256i; 2]; 2] {
        // SAFETY: the caller guarantees AVX2 and for 128 readable bytes, 32 for each register.
        unsafe {
            let part = |at: usize| _mm256_loadu_si256(from.add(at).cast());
            [[part(0), part(32)], [part(64), part(96)]]
        }
    }
    #[inline(always)]
    unsafe fn add(self, weights: [__m256i; 2], x: i32) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let x = _mm256_set1_epi32(x);
            let add = |sums: __m256i, weights: __m256i| {
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
                _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            };
            Self(add(self.0, weights[0]), add(self.1, weights[1]))
        }
    }
    #[inline(always)]
    unsafe fn finish(self, _added: i32) -> Avx2Lanes {
        // SAFETY: the caller guarantees AVX2.
        unsafe { Avx2Lanes(_mm256_cvtepi32_ps(self.0), _mm256_cvtepi32_ps(self.1)) }
    }
}

/// Products of int4 in two 256-bit registers, eight columns each. Weights have 8 added, as they are stored.
///
/// Sums stay in sixteen bits for a whole group: eight times two products of at most 15 times 127 is below 2¹⁵.
#[derive(Clone, Copy)]
pub struct Avx2Int4(__m256i, __m256i);

impl Dots for Avx2Int4 {
    const STEP: usize = 64;
    const ADDED: i32 = 8;
    const STORED_ADDED: bool = true;
    type Sums = Avx2Lanes;
    type Quad = [__m256i; 2];

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe { Self(_mm256_setzero_si256(), _mm256_setzero_si256()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [[__m256i; 2]; 2] {
        // SAFETY: the caller guarantees AVX2 and for 64 readable bytes, 32 for each register.
        unsafe {
            let low = _mm256_set1_epi8(0xf);
            let parts = [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())];
            let first = [_mm256_and_si256(parts[0], low), _mm256_and_si256(parts[1], low)];
            let high = |part: __m256i| _mm256_and_si256(_mm256_srli_epi16::<4>(part), low);
            [first, [high(parts[0]), high(parts[1])]]
        }
    }
    #[inline(always)]
    unsafe fn add(self, weights: [__m256i; 2], x: i32) -> Self {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let x = _mm256_set1_epi32(x);
            let add = |sums: __m256i, weights| _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, x));
            Self(add(self.0, weights[0]), add(self.1, weights[1]))
        }
    }
    #[inline(always)]
    unsafe fn finish(self, added: i32) -> Avx2Lanes {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            let added = _mm256_set1_epi32(added);
            let finish = |sums: __m256i| {
                let sums = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
                _mm256_cvtepi32_ps(_mm256_sub_epi32(sums, added))
            };
            Avx2Lanes(finish(self.0), finish(self.1))
        }
    }
}
