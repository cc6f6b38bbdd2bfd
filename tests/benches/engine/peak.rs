//! The arithmetic peak of one core, measured without our kernels: multiply-adds on registers alone, nothing loaded or stored.

use std::hint::black_box;
use std::time::Instant;

/// Sums that do not depend on each other: enough to hide an instruction's latency, few enough for sixteen registers.
const SUMS: usize = 12;
/// Multiply-adds on each sum in one timed run.
const ROUNDS: usize = 1 << 20;
/// Timed runs; the fastest counts.
const REPEATS: usize = 15;

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub struct Peak {
    /// Multiply-adds a second.
    pub multiplies: f64,
    /// The instruction.
    pub instruction: &'static str,
}

impl Peak {
    /// With the widest multiply-add of this processor.
    pub fn measure() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor was asked.
                return Self::of("fused, 16 numbers a register (AVX-512)", 16, |x| unsafe { avx512(x) });
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the processor was asked.
                return Self::of("fused, 8 numbers a register (AVX2)", 8, |x| unsafe { avx2(x) });
            }
        }
        Self::of("a product and a sum, as the compiler vectorises them", 4, plain)
    }

    /// `run` does [`ROUNDS`] multiply-adds on [`SUMS`] registers of `lanes` numbers.
    fn of(instruction: &'static str, lanes: usize, run: impl Fn(f32)) -> Self {
        let done = (SUMS * ROUNDS * lanes) as f64;
        let once = || {
            let begun = Instant::now();
            run(black_box(1.0));
            done / begun.elapsed().as_secs_f64()
        };
        Self { multiplies: (0..REPEATS).map(|_| once()).fold(0.0, f64::max), instruction }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(x: f32) {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_set1_ps(x); SUMS];
    let (factor, term) = (_mm512_set1_ps(x * 0.999), _mm512_set1_ps(x * 0.001));
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(x: f32) {
    use std::arch::x86_64::*;
    let mut sums = [_mm256_set1_ps(x); SUMS];
    let (factor, term) = (_mm256_set1_ps(x * 0.999), _mm256_set1_ps(x * 0.001));
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, term);
        }
    }
    black_box(sums);
}

fn plain(x: f32) {
    let mut sums = [[x; 4]; SUMS];
    let (factor, term) = (x * 0.999, x * 0.001);
    for _ in 0..ROUNDS {
        for value in sums.as_flattened_mut() {
            *value = *value * factor + term;
        }
    }
    black_box(sums);
}
