//! Fourier transforms, planned once for all calls: their tables are as large as the rest of an echo canceller.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Plans so far.
static PLANNER: LazyLock<Mutex<RealFftPlanner<f32>>> = LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

/// Returns the transforms of `size` real samples, forward and back.
pub(crate) fn plan(size: usize) -> (Arc<dyn RealToComplex<f32>>, Arc<dyn ComplexToReal<f32>>) {
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    (planner.plan_fft_forward(size), planner.plan_fft_inverse(size))
}

/// Transforms `time` into `spectrum`; both have the planned lengths.
pub(crate) fn transform(
    fft: &dyn RealToComplex<f32>,
    time: &mut [f32],
    spectrum: &mut [Complex32],
    scratch: &mut [Complex32],
) {
    let used = fft.get_scratch_len();
    if fft.process_with_scratch(time, spectrum, &mut scratch[..used]).is_err() {
        spectrum.fill(Complex32::default());
    }
}

/// Transforms `spectrum` back into `time`.
pub(crate) fn back(
    fft: &dyn ComplexToReal<f32>,
    spectrum: &mut [Complex32],
    time: &mut [f32],
    scratch: &mut [Complex32],
) {
    let used = fft.get_scratch_len();
    // The ends of a real signal's spectrum are real.
    let last = spectrum.len() - 1;
    (spectrum[0].im, spectrum[last].im) = (0.0, 0.0);
    if fft.process_with_scratch(spectrum, time, &mut scratch[..used]).is_err() {
        time.fill(0.0);
    }
    let scale = 1.0 / time.len() as f32;
    time.iter_mut().for_each(|sample| *sample *= scale);
}
