//! Peak performance of the machine, and its memory.

use std::fs;

use repartee_kernels::cpu::ProductWork;
use repartee_kernels::cpu::hardware_peaks::{self, PeakRate};
use repartee_kernels::cpu::pool::Pool;

/// Size of the memory whose reading is timed, as a multiple of the last-level cache.
const CACHES: usize = 8;

/// Peak performance of the machine, on all threads.
#[derive(Debug, Clone)]
pub struct MachineLimits {
    /// Number of computing threads.
    pub threads: usize,
    /// Memory read bandwidth, in bytes per second.
    pub bandwidth: f64,
    /// MiB of memory read to measure the bandwidth.
    pub read_mib: usize,
    /// Huge-page setting that the operating system reports.
    pub huge_pages: String,
    /// Peak rate of single-precision multiply-adds.
    pub float_peak: PeakRate,
    /// Peak rate of byte multiply-adds; `None` if the processor has no instruction for them.
    pub integer_peak: Option<PeakRate>,
}

impl MachineLimits {
    /// Measures the machine with `threads` threads; takes seconds.
    pub fn measure(threads: usize) -> std::io::Result<Self> {
        let pool = Pool::new(threads)?;
        let read_mib = (CACHES * hardware_peaks::last_cache()).div_ceil(16 << 20) * 16;
        Ok(Self {
            threads,
            bandwidth: hardware_peaks::read_bandwidth(&pool, read_mib),
            read_mib,
            huge_pages: hardware_peaks::huge_pages(),
            float_peak: hardware_peaks::float_peak(&pool),
            integer_peak: hardware_peaks::integer_peak(&pool),
        })
    }

    /// Least seconds that products take: to read their weights from memory, and to multiply in registers alone.
    pub fn lower_bound(&self, products: ProductWork) -> (f64, f64) {
        let integers = self.integer_peak.unwrap_or(self.float_peak).multiplies;
        let multiplying = products.float_multiplies as f64 / self.float_peak.multiplies
            + products.integer_multiplies as f64 / integers;
        (products.bytes as f64 / self.bandwidth, multiplying)
    }
}

/// Resident memory of this process in bytes; 0 if the system does not report it.
pub(super) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}
