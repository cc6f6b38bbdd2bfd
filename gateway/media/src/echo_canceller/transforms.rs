//! Fourier transforms, planned once for all calls: their tables are as large as the rest of a canceller.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Plans so far.
static PLANNER: LazyLock<Mutex<RealFftPlanner<f32>>> = LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

/// Returns the transforms of `size` real samples, forward and back.
pub(super) fn plan(size: usize) -> (Arc<dyn RealToComplex<f32>>, Arc<dyn ComplexToReal<f32>>) {
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    (planner.plan_fft_forward(size), planner.plan_fft_inverse(size))
}
