//! Input of the interruption network: the levels of mel bands, frame by frame. The recipe's `features.py` has the same.

use std::f32::consts::TAU;
use std::sync::{Arc, LazyLock};

use realfft::num_complex::Complex32;
use realfft::{RealFftPlanner, RealToComplex};

/// Samples of a frame at 16 kHz, 16 ms.
pub(crate) const HOP: usize = 256;
/// Samples of a transform: the latest two frames.
const WINDOW: usize = 512;
/// Mel bands.
pub(super) const BANDS: usize = 32;
/// Lowest and highest edge of the bands in Hz, and the rate.
const EDGES: (f64, f64) = (60.0, 7_600.0);
const RATE: f64 = 16_000.0;
/// Added to a band's power.
const EPS: f32 = 1e-6;

/// Logarithms of the bands' powers in one frame.
pub(super) type Levels = [f32; BANDS];

/// Tables of all calls: the transform, its window, and each band's first bin with the weights from there on.
struct Tables {
    transform: Arc<dyn RealToComplex<f32>>,
    hann: [f32; WINDOW],
    bands: Vec<(usize, Vec<f32>)>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables {
    transform: RealFftPlanner::new().plan_fft_forward(WINDOW),
    hann: std::array::from_fn(|at| 0.5 - 0.5 * (TAU * at as f32 / WINDOW as f32).cos()),
    bands: bands(),
});

/// Returns triangular filters of height 1, equally far apart in mel.
fn bands() -> Vec<(usize, Vec<f32>)> {
    let mel = |hertz: f64| 2_595.0 * (1.0 + hertz / 700.0).log10();
    let (low, high) = (mel(EDGES.0), mel(EDGES.1));
    let edge = |at: usize| {
        let mel = low + (high - low) * at as f64 / (BANDS + 1) as f64;
        700.0 * (10_f64.powf(mel / 2_595.0) - 1.0)
    };
    let band = |at: usize| {
        let (low, middle, high) = (edge(at), edge(at + 1), edge(at + 2));
        let weight = |bin: usize| {
            let hertz = bin as f64 * RATE / WINDOW as f64;
            ((hertz - low) / (middle - low)).min((high - hertz) / (high - middle)).max(0.0) as f32
        };
        let bins: Vec<usize> = (0..=WINDOW / 2).filter(|bin| weight(*bin) > 0.0).collect();
        let first = bins.first().copied().unwrap_or_default();
        (first, bins.into_iter().map(weight).collect())
    };
    (0..BANDS).map(band).collect()
}

/// Analyzer of one stream.
#[derive(Debug)]
pub(super) struct BandAnalyzer {
    /// The latest samples.
    recent: Box<[f32; WINDOW]>,
    /// Work of the transform.
    input: Vec<f32>,
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Default for BandAnalyzer {
    fn default() -> Self {
        let transform = &TABLES.transform;
        Self {
            recent: Box::new([0.0; WINDOW]),
            input: transform.make_input_vec(),
            spectrum: transform.make_output_vec(),
            scratch: transform.make_scratch_vec(),
        }
    }
}

impl BandAnalyzer {
    /// Adds a frame of [`HOP`] samples; returns the levels of its bands. A sample that is no number counts as silence.
    pub fn push(&mut self, frame: &[f32]) -> Levels {
        self.recent.copy_within(HOP.., 0);
        for (to, from) in self.recent[WINDOW - HOP..].iter_mut().zip(frame) {
            *to = if from.is_finite() { from.clamp(-1.0, 1.0) } else { 0.0 };
        }
        let tables = &*TABLES;
        for ((to, sample), hann) in self.input.iter_mut().zip(&*self.recent).zip(&tables.hann) {
            *to = sample * hann;
        }
        // The lengths are the transform's own.
        let done = tables.transform.process_with_scratch(&mut self.input, &mut self.spectrum, &mut self.scratch);
        debug_assert!(done.is_ok());
        std::array::from_fn(|band| {
            let (first, weights) = &tables.bands[band];
            let power: f32 =
                self.spectrum[*first..].iter().zip(weights).map(|(bin, weight)| bin.norm_sqr() * weight).sum();
            (power + EPS).log10()
        })
    }
}
