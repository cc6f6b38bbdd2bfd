//! Harmonic source: sines of the pitch and its multiples, mixed to one signal, and the spectra of that signal. After
//! `SineGen2` and `SourceModuleHnNSF`.
//!
//! A sine's phase is that of its frame, held for all samples of it. The reference adds up phases in single precision,
//! which loses them within a minute; here they are turns below 1 in double precision. The phases that it draws have no
//! effect: its down-sampling does not read the one sample that has them.

use std::f64::consts::TAU;

use super::config::HiftConfig;
use crate::models::parts::vocoder::stft::{Stft, hann};

/// The source, shared by all streams.
pub struct HarmonicSource {
    /// Factors of the sines, and the number added to their sum.
    factors: Vec<f32>,
    bias: f32,
    config: HiftConfig,
    stft: Stft,
}

/// Stream of a [`HarmonicSource`].
#[derive(Debug, Clone, Default)]
pub struct SourceStream {
    /// Turns of each sine so far, below 1.
    turns: Vec<f64>,
    /// Samples that the next spectra see, the reflected ones before the first included.
    signal: Vec<f32>,
    /// Samples so far.
    samples: usize,
    /// Spectra from `first` on.
    spectra: Vec<f32>,
    first: usize,
}

impl HarmonicSource {
    /// Creates the source with the numbers of `m_source.l_linear`.
    pub fn new(config: &HiftConfig, factors: Vec<f32>, bias: f32) -> Self {
        let (n_fft, hop) = config.istft;
        Self { factors, bias, config: config.clone(), stft: Stft::new(hann(n_fft), hop) }
    }

    /// Appends the samples of a frame with this pitch in Hz. `noise` gives a number from 0 to 1 for a sample and a sine.
    pub fn push(&self, stream: &mut SourceStream, pitch: f32, noise: impl Fn(u64, u64) -> f32) {
        let (config, step) = (&self.config, self.config.samples_per_frame());
        stream.turns.resize(self.factors.len(), 0.0);
        let voiced = pitch > config.nsf_voiced_threshold;
        let mut held = self.bias;
        for (number, (turns, factor)) in stream.turns.iter_mut().zip(&self.factors).enumerate() {
            let each = f64::from(pitch) * (number + 1) as f64 / f64::from(config.sampling_rate);
            *turns = (*turns + each.fract()).fract();
            if voiced {
                let angle = TAU * (*turns * step as f64).fract();
                held += factor * (angle.sin() as f32 * config.nsf_alpha);
            }
        }
        let level = if voiced { config.nsf_sigma } else { config.nsf_alpha / 3.0 };
        let begins = stream.samples == 0;
        for sample in stream.samples..stream.samples + step {
            let drawn = |(sine, factor): (usize, &f32)| factor * (level * noise(sample as u64, sine as u64));
            let sum: f32 = self.factors.iter().enumerate().map(drawn).sum();
            stream.signal.push((held + sum).tanh());
        }
        stream.samples += step;
        if begins {
            let reach = self.config.istft.0 / 2;
            let mut padded: Vec<f32> = (1..=reach).rev().map(|at| stream.signal[at.min(step - 1)]).collect();
            padded.append(&mut stream.signal);
            stream.signal = padded;
        }
        self.transform(stream);
    }

    /// Ends a stream: its last spectra see the samples before the end reflected.
    pub fn finish(&self, stream: &mut SourceStream) {
        let (reach, last) = (self.config.istft.0 / 2, stream.signal.len().saturating_sub(1));
        let reflected: Vec<f32> = (1..=reach).map(|at| stream.signal[last.saturating_sub(at)]).collect();
        stream.signal.extend(reflected);
        self.transform(stream);
        stream.signal.clear();
    }

    fn transform(&self, stream: &mut SourceStream) {
        let SourceStream { signal, spectra, .. } = stream;
        let mut count = 0;
        self.stft.forward(signal, |spectrum| {
            spectra.extend(spectrum.iter().map(|bin| bin.re));
            spectra.extend(spectrum.iter().map(|bin| bin.im));
            count += 1;
        });
        signal.drain(..(count * self.config.istft.1).min(signal.len()));
    }

    /// Number of spectra so far.
    pub fn spectra(&self, stream: &SourceStream) -> usize {
        stream.first + stream.spectra.len() / self.config.bins()
    }

    /// Appends to `numbers` the spectra that a level's row reads, with zeros before the first one.
    pub fn window(&self, stream: &SourceStream, level: usize, row: usize, numbers: &mut Vec<f32>) {
        let (taps, stride, bins) =
            (self.config.source_taps(level), self.config.source_stride(level), self.config.bins());
        for tap in 0..taps {
            let at = (row * stride + tap + 1).checked_sub(stride).and_then(|at| at.checked_sub(stream.first));
            let spectrum = at.and_then(|at| stream.spectra.get(at * bins..(at + 1) * bins));
            match spectrum {
                Some(spectrum) => numbers.extend_from_slice(spectrum),
                None => numbers.resize(numbers.len() + bins, 0.0),
            }
        }
    }

    /// Drops spectra that no row of the frames from `frame` on reads.
    pub fn drop_before(&self, stream: &mut SourceStream, frame: usize) {
        let kept = (frame * self.config.spectra()).saturating_sub(self.config.source_stride(0));
        let dropped = kept.saturating_sub(stream.first).min(stream.spectra.len() / self.config.bins());
        stream.spectra.drain(..dropped * self.config.bins());
        stream.first += dropped;
    }
}
