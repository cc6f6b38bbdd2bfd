//! Peak loops on registers alone: multiply-adds on [`SUMS`] registers, [`ROUNDS`] times each.

use std::arch::x86_64::*;
use std::hint::black_box;

use crate::cpu::simd::peak::{ROUNDS, SUMS};

/// Runs multiply-adds of single precision in 512-bit registers.
#[target_feature(enable = "avx512f")]
pub fn avx512(x: f32) {
    let mut sums = [_mm512_set1_ps(x); SUMS];
    let (factor, term) = (_mm512_set1_ps(x * 0.999), _mm512_set1_ps(x * 0.001));
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    black_box(sums);
}

/// Runs multiply-adds of bytes, four at a time, in 512-bit registers.
#[target_feature(enable = "avx512f,avx512vnni")]
pub fn vnni(x: f32) {
    let mut sums = [_mm512_set1_epi32(x as i32); SUMS];
    let (left, right) = (_mm512_set1_epi8(x as i8), _mm512_set1_epi8(2 * x as i8));
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, left, right);
        }
    }
    black_box(sums);
}

/// Runs multiply-adds of single precision in 256-bit registers.
#[target_feature(enable = "avx2,fma")]
pub fn avx2(x: f32) {
    let mut sums = [_mm256_set1_ps(x); SUMS];
    let (factor, term) = (_mm256_set1_ps(x * 0.999), _mm256_set1_ps(x * 0.001));
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, term);
        }
    }
    black_box(sums);
}

/// Runs multiply-adds of bytes, two at a time, in 256-bit registers, and a sum.
#[target_feature(enable = "avx2")]
pub fn pairs(x: f32) {
    let mut sums = [_mm256_set1_epi16(x as i16); SUMS];
    let right = _mm256_set1_epi8(2 * x as i8);
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*sum, right));
        }
    }
    black_box(sums);
}
