//! Harmonic source: sines of a pitch and its multiples, mixed to one signal, and the spectra of that signal. After
//! `SourceModuleHnNSF` and `TorchSTFT` of kokoro 0.9.4.
//!
//! The reference draws a phase for each harmonic, which its interpolation discards, so no phase is drawn here. Noise is a
//! function of seed and sample.

use std::f32::consts::TAU;

use repartee_kernels::random::normal;

use super::config::IstftNetConfig;
use crate::models::parts::vocoder::stft::{Stft, hann};

/// Sines: the pitch and its multiples.
pub const HARMONICS: usize = 9;
/// Amplitude of a sine.
const AMPLITUDE: f32 = 0.1;
/// Standard deviation of noise where there is a pitch, and where there is none.
const VOICED_NOISE: f32 = 0.003;
const UNVOICED_NOISE: f32 = AMPLITUDE / 3.0;
/// Pitch in Hz up to which a sound is unvoiced.
const UNVOICED: f32 = 10.0;

/// The source, shared by all clauses.
pub struct HarmonicSource {
    /// Factors of the harmonics, and the number added to their sum.
    pub factors: Vec<f32>,
    /// Number added to the sum.
    pub bias: f32,
    /// Sampling rate in Hz.
    rate: f32,
    /// Samples of a value of the pitch.
    step: usize,
    stft: Stft,
    fft: usize,
}

impl HarmonicSource {
    /// Creates the source for a generator; `rate` is its sampling rate.
    pub fn new(config: &IstftNetConfig, rate: u32, factors: Vec<f32>, bias: f32) -> Self {
        let fft = config.gen_istft_n_fft;
        let stft = Stft::new(hann(fft), config.gen_istft_hop_size);
        Self { factors, bias, rate: rate as f32, step: config.samples(), stft, fft }
    }

    /// Computes the signal of a pitch in Hz, one value for each row of the features. `noise` is its seed; `None` for
    /// silence in its place.
    pub fn signal(&self, pitch: &[f32], noise: Option<u64>) -> Vec<f32> {
        let step = self.step;
        let mut signal = vec![self.bias; pitch.len() * step];
        // Each sine has noise of its own in the reference; the factors' sum of these is one noise of this size.
        let spread = self.factors.iter().map(|factor| factor * factor).sum::<f32>().sqrt();
        if let Some(seed) = noise {
            for (at, sum) in signal.iter_mut().enumerate() {
                let level = if pitch[at / step] > UNVOICED { VOICED_NOISE } else { UNVOICED_NOISE };
                *sum += spread * level * normal(seed, at as u64, 0, 0);
            }
        }
        for (number, factor) in self.factors.iter().enumerate() {
            let phases = self.phases(pitch, (number + 1) as f32);
            for (at, sum) in signal.iter_mut().enumerate() {
                if pitch[at / step] > UNVOICED {
                    *sum += factor * (phase_at(&phases, at, step).sin() * AMPLITUDE);
                }
            }
        }
        signal.iter_mut().for_each(|sample| *sample = sample.tanh());
        signal
    }

    /// Phase of a harmonic at each value of the pitch, in radians of a whole step.
    fn phases(&self, pitch: &[f32], multiple: f32) -> Vec<f32> {
        let mut turns = 0.0f64;
        let phase = |hertz: &f32| {
            turns += f64::from((hertz * multiple / self.rate).rem_euclid(1.0));
            turns as f32 * TAU * self.step as f32
        };
        pitch.iter().map(phase).collect()
    }

    /// Computes the spectra of a signal: rows of magnitudes and phases, one more than there are hops.
    pub fn spectra(&self, signal: &[f32]) -> Vec<f32> {
        let half = self.fft / 2;
        let last = signal.len().saturating_sub(1);
        // Reflects both ends without repeating the outermost sample.
        let mut padded: Vec<f32> = (1..=half).rev().map(|at| signal[at.min(last)]).collect();
        padded.extend_from_slice(signal);
        padded.extend((1..=half).map(|at| signal[last.saturating_sub(at)]));
        let mut rows = Vec::with_capacity((signal.len() + 1) * (self.fft + 2));
        self.stft.forward(&padded, |spectrum| {
            rows.extend(spectrum.iter().map(|bin| bin.re.hypot(bin.im)));
            rows.extend(spectrum.iter().map(|bin| bin.im.atan2(bin.re)));
        });
        rows
    }
}

/// Phase at a sample, between the middles of two values of the pitch; before the first and after the last middle it rests.
fn phase_at(phases: &[f32], at: usize, step: usize) -> f32 {
    // Rounded as the reference rounds it: a high harmonic turns many times a step.
    let place = ((1.0 / step as f32) * (at as f32 + 0.5) - 0.5).max(0.0);
    let before = (place as usize).min(phases.len() - 1);
    let after = (before + 1).min(phases.len() - 1);
    let by = place - before as f32;
    (1.0 - by) * phases[before] + by * phases[after]
}

/// Returns for each row of a level's result the spectra that it reads, `[rows, taps * channels]`, with zeros beyond the
/// ends.
pub fn windows(config: &IstftNetConfig, level: usize, spectra: &[f32]) -> Vec<f32> {
    let (channels, taps) = (config.source_channels(), config.source_taps(level));
    if taps == 1 {
        return spectra.to_vec();
    }
    let (stride, count) = (config.source_stride(level), spectra.len() / channels);
    let before = stride.div_ceil(2);
    let rows = (count - 1) / stride;
    let mut windows = vec![0.0; rows * taps * channels];
    for (row, window) in windows.chunks_exact_mut(taps * channels).enumerate() {
        for (tap, to) in window.chunks_exact_mut(channels).enumerate() {
            let at = (row * stride + tap).checked_sub(before).filter(|&at| at < count);
            if let Some(at) = at {
                to.copy_from_slice(&spectra[at * channels..][..channels]);
            }
        }
    }
    windows
}
