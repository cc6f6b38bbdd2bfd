//! Hardware peaks, measured apart from our products: memory bandwidth and multiply-adds on registers.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::huge_pages::filled;
use super::pool::Pool;
#[cfg(all(target_arch = "aarch64", feature = "simd"))]
use super::simd::aarch64;
#[cfg(not(all(target_arch = "aarch64", feature = "simd")))]
use super::simd::peak;
use super::simd::peak::{ROUNDS, SUMS};
#[cfg(all(target_arch = "x86_64", feature = "simd"))]
use super::simd::x86;

/// Timed runs; the fastest counts, because other load only adds time.
const REPEATS: usize = 15;
/// Passes over the memory.
const PASSES: usize = 5;
/// Size of the last-level cache if the system does not report it.
const LAST_CACHE: usize = 32 << 20;

/// Peak rate of multiply-adds.
#[derive(Debug, Clone, Copy)]
pub struct PeakRate {
    /// Multiply-adds a second, of all threads together.
    pub multiplies: f64,
    /// Name of the instruction.
    pub instruction: &'static str,
}

/// Returns the bytes of this machine's last-level cache.
pub fn last_cache() -> usize {
    let sizes = (0..).map_while(|index| {
        let size = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        let (number, unit) = size.trim().split_at(size.trim().len().checked_sub(1)?);
        let unit = match unit {
            "K" => 1 << 10,
            "M" => 1 << 20,
            _ => return None,
        };
        Some(number.parse::<usize>().ok()? * unit)
    });
    sizes.max().unwrap_or(LAST_CACHE)
}

/// Returns the system's huge-page mode for memory that does not ask for them: `always`, `madvise` or `never`.
pub fn huge_pages() -> String {
    let all = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = all.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen.to_owned());
    chosen.unwrap_or_else(|| "unknown".to_owned())
}

/// Measures read bandwidth in bytes a second over a buffer of `mib` MiB, on all threads. The buffer should be far larger than the
/// last-level cache. The fastest stretch of 16 MiB counts.
pub fn read_bandwidth(pool: &Pool, mib: usize) -> f64 {
    /// Numbers that are read in one timed region.
    const REGION: usize = 1 << 21;
    const PART: usize = 1 << 17;
    // Like weights: small pages are read more slowly.
    let mut numbers = filled(0_u64, mib << 17);
    numbers.iter_mut().enumerate().for_each(|(i, number)| *number = i as u64);
    let total = AtomicU64::new(0);
    let read = |region: &[u64]| {
        let begun = Instant::now();
        pool.run(region.len() / PART, |part| {
            let mut sums = [0u64; 16];
            for numbers in region[part * PART..(part + 1) * PART].as_chunks::<16>().0 {
                sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
            }
            total.fetch_add(sums.iter().fold(0, |a, b| a ^ b), Ordering::Relaxed);
        });
        begun.elapsed().as_secs_f64()
    };
    let passes = (0..PASSES).flat_map(|_| numbers.chunks_exact(REGION));
    let seconds = passes.map(read).fold(f64::INFINITY, f64::min);
    black_box(total);
    (REGION * size_of::<u64>()) as f64 / seconds
}

/// Measures the widest fused multiply-add of single precision of this processor.
pub fn float_peak(pool: &Pool) -> PeakRate {
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor reports the feature.
            let run = |x| unsafe { x86::peak::avx512(x) };
            return measured(pool, "fused, 16 numbers a register (AVX-512)", 16, run);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor reports the feature.
            let run = |x| unsafe { x86::peak::avx2(x) };
            return measured(pool, "fused, 8 numbers a register (AVX2)", 8, run);
        }
    }
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    return measured(pool, "fused, 4 numbers a register (NEON)", 4, aarch64::peak::neon);
    #[cfg(not(all(target_arch = "aarch64", feature = "simd")))]
    measured(pool, "a product and a sum, as the compiler vectorises them", 4, peak::plain)
}

/// Measures the widest multiply-add of bytes; `None` for a processor without one.
pub fn integer_peak(pool: &Pool) -> Option<PeakRate> {
    #[cfg(all(target_arch = "x86_64", feature = "simd"))]
    {
        if is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the processor reports the feature.
            let run = |x| unsafe { x86::peak::vnni(x) };
            return Some(measured(pool, "bytes by fours, 64 a register (AVX-512 VNNI)", 64, run));
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor reports the feature.
            let run = |x| unsafe { x86::peak::pairs(x) };
            return Some(measured(pool, "bytes by twos and a sum, 32 a register (AVX2)", 32, run));
        }
    }
    #[cfg(all(target_arch = "aarch64", feature = "simd"))]
    {
        if aarch64::has_dotprod() {
            // SAFETY: the processor reports the feature.
            let run = |x| unsafe { aarch64::peak::dotprod(x) };
            return Some(measured(pool, "bytes by fours, 16 a register (NEON dot product)", 16, run));
        }
        Some(measured(pool, "bytes widened, 8 an instruction (NEON)", 8, aarch64::peak::widening))
    }
    #[cfg(not(all(target_arch = "aarch64", feature = "simd")))]
    None
}

/// Times `run`, which does [`ROUNDS`] multiply-adds on [`SUMS`] registers of `lanes` numbers.
fn measured(pool: &Pool, instruction: &'static str, lanes: usize, run: impl Fn(f32) + Sync) -> PeakRate {
    let tasks = 4 * pool.threads();
    let done = (tasks * SUMS * ROUNDS * lanes) as f64;
    let once = || {
        let begun = Instant::now();
        pool.run(tasks, |_| run(black_box(1.0)));
        done / begun.elapsed().as_secs_f64()
    };
    PeakRate { multiplies: (0..REPEATS).map(|_| once()).fold(0.0, f64::max), instruction }
}
