//! Adaptive filter of the echo path: a Kalman filter in the frequency domain, in partitions of one block.
//!
//! Each bin of each partition has a weight and the variance of its error. The observed noise, of which a speaking caller is a part,
//! lowers the step: the filter learns from an echo alone and holds still beside a voice (Enzner and Vary 2006; Kuech, Mabande and
//! Enzner 2014).

use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealToComplex};

use super::units::BLOCK;
use crate::transforms::{back, plan, transform};

/// Length of a transform.
const SIZE: usize = 2 * BLOCK;
/// Bins of a transform.
const BINS: usize = BLOCK + 1;
/// Length of the filter in blocks, 200 ms.
pub(super) const PARTITIONS: usize = 20;
/// Share of the weights that stays from block to block; the rest may have changed.
const STAYS: f32 = 0.9995;
/// Smoothing of the observed noise.
const NOISE_SHARE: f32 = 0.8;
/// Decay of the first variances per partition: a room rings.
const DECAY: f32 = 0.8;
/// Least power of a bin, about -100 dBFS.
const LEAST: f32 = 1e-6;

/// Filter of one echo path.
pub(super) struct EchoFilter {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// Spectra of the latest blocks of the reference, the newest at `newest`.
    played: Vec<[Complex32; BINS]>,
    newest: usize,
    weights: Vec<[Complex32; BINS]>,
    variances: Vec<[f32; BINS]>,
    noise: [f32; BINS],
    /// Last block of the reference.
    before: [f32; BLOCK],
    time: Vec<f32>,
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
    /// Partition whose weights are next brought to one block of time.
    constrained: usize,
}

impl std::fmt::Debug for EchoFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EchoFilter").finish_non_exhaustive()
    }
}

impl EchoFilter {
    /// Creates a filter that knows no echo.
    pub fn new() -> Self {
        let (forward, inverse) = plan(SIZE);
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        Self {
            time: forward.make_input_vec(),
            spectrum: forward.make_output_vec(),
            scratch: vec![Complex32::default(); scratch],
            forward,
            inverse,
            played: vec![[Complex32::default(); BINS]; PARTITIONS],
            newest: 0,
            weights: vec![[Complex32::default(); BINS]; PARTITIONS],
            variances: vec![[0.0; BINS]; PARTITIONS],
            noise: [0.0; BINS],
            before: [0.0; BLOCK],
            constrained: 0,
        }
    }

    /// Forgets the path. Its gain in power is expected to be about `gain`.
    pub fn reset(&mut self, gain: f32) {
        self.played.iter_mut().for_each(|bins| bins.fill(Complex32::default()));
        self.weights.iter_mut().for_each(|bins| bins.fill(Complex32::default()));
        let mut variance = gain * (1.0 - DECAY);
        for bins in &mut self.variances {
            bins.fill(variance);
            variance *= DECAY;
        }
        self.noise.fill(0.0);
        self.before.fill(0.0);
    }

    /// Raises the variances after a change of the path.
    pub fn loosen(&mut self, gain: f32) {
        let mut variance = gain * (1.0 - DECAY);
        for bins in &mut self.variances {
            bins.iter_mut().for_each(|kept| *kept = kept.max(variance));
            variance *= DECAY;
        }
    }

    /// Takes a block of the reference, and writes its echo to `echo`.
    pub fn predict(&mut self, reference: &[f32; BLOCK], echo: &mut [f32; BLOCK]) {
        self.newest = (self.newest + PARTITIONS - 1) % PARTITIONS;
        self.time[..BLOCK].copy_from_slice(&self.before);
        self.time[BLOCK..].copy_from_slice(reference);
        self.before = *reference;
        transform(&*self.forward, &mut self.time, &mut self.spectrum, &mut self.scratch);
        self.played[self.newest].copy_from_slice(&self.spectrum);
        self.spectrum.fill(Complex32::default());
        for (partition, weights) in self.weights.iter().enumerate() {
            let played = &self.played[(self.newest + partition) % PARTITIONS];
            for ((sum, weight), played) in self.spectrum.iter_mut().zip(weights).zip(played) {
                *sum += weight * played;
            }
        }
        back(&*self.inverse, &mut self.spectrum, &mut self.time, &mut self.scratch);
        echo.copy_from_slice(&self.time[BLOCK..]);
    }

    /// Adapts the filter to the error that its last prediction left.
    pub fn adapt(&mut self, error: &[f32; BLOCK]) {
        self.time[..BLOCK].fill(0.0);
        self.time[BLOCK..].copy_from_slice(error);
        transform(&*self.forward, &mut self.time, &mut self.spectrum, &mut self.scratch);
        let mut expected = [LEAST; BINS];
        for (partition, variances) in self.variances.iter().enumerate() {
            let played = &self.played[(self.newest + partition) % PARTITIONS];
            for ((sum, variance), played) in expected.iter_mut().zip(variances).zip(played) {
                *sum += variance * played.norm_sqr();
            }
        }
        for ((noise, error), expected) in self.noise.iter_mut().zip(&self.spectrum).zip(&mut expected) {
            *noise = NOISE_SHARE * *noise + (1.0 - NOISE_SHARE) * error.norm_sqr();
            // Half of a transform is the block's; the other half was emptied.
            *expected = 0.5 * *expected + *noise;
        }
        let lost = 1.0 - STAYS * STAYS;
        for (partition, (weights, variances)) in self.weights.iter_mut().zip(&mut self.variances).enumerate() {
            let played = &self.played[(self.newest + partition) % PARTITIONS];
            for bin in 0..BINS {
                let step = variances[bin] / expected[bin];
                weights[bin] += step * played[bin].conj() * self.spectrum[bin];
                let kept = (1.0 - 0.5 * step * played[bin].norm_sqr()).max(0.0);
                variances[bin] = STAYS * STAYS * kept * variances[bin] + lost * weights[bin].norm_sqr();
            }
        }
        self.constrain();
    }

    /// Brings some partitions to one block of time: what wraps around is no part of the path.
    fn constrain(&mut self) {
        for _ in 0..4 {
            let weights = &mut self.weights[self.constrained];
            self.spectrum.copy_from_slice(weights);
            back(&*self.inverse, &mut self.spectrum, &mut self.time, &mut self.scratch);
            self.time[BLOCK..].fill(0.0);
            transform(&*self.forward, &mut self.time, &mut self.spectrum, &mut self.scratch);
            weights.copy_from_slice(&self.spectrum);
            self.constrained = (self.constrained + 1) % PARTITIONS;
        }
    }

    /// Sum of the squared weights: the gain of the path in power.
    pub fn gain(&self) -> f32 {
        let sum: f32 = self.weights.iter().flatten().map(Complex32::norm_sqr).sum();
        sum / BINS as f32
    }
}
