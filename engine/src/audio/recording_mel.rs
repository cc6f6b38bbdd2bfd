//! Log-mel spectrogram of a recording, each bin normalised to mean 0 and deviation 1 over the whole recording:
//! `AudioToMelSpectrogramPreprocessor` of NeMo with `per_feature`.
//!
//! Normalised frames are known when the recording ends. So a recording is one window, up to a limit, after which the next
//! window begins as another recording would. The levels of frames are computed as the samples arrive.

use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use super::mel_filters::{Filter, filters};
use crate::model::{FrontEnd, FrontEndStream, InputWindow};

/// Share of a sample that is subtracted from the next one.
const PREEMPHASIS: f32 = 0.97;
/// Added to the power before the logarithm: 2 to the power of -24.
const FLOOR: f32 = 1.0 / 16_777_216.0;
/// Added to the deviation.
const DEVIATION_FLOOR: f64 = 1e-5;

/// Sizes of the spectrogram.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordingMelConfig {
    /// Sampling rate, in Hz.
    pub rate: u32,
    /// Number of mel bins of a frame.
    pub bins: usize,
    /// Samples of one transform; even, and at least `window`.
    pub n_fft: usize,
    /// Samples that the taper covers, in the middle of a transform; at least 2.
    pub window: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    /// Number of which the frames of a window are a multiple, and the value of the frames that make them so.
    pub padding: (usize, f32),
    /// Most samples of a window.
    pub most_samples: usize,
}

impl RecordingMelConfig {
    /// Frames of a window of `samples` samples: the last one is of the sound's very end, and has the padding's value.
    pub fn frames(&self, samples: usize) -> usize {
        (samples / self.hop + 1).next_multiple_of(self.padding.0.max(1))
    }
}

/// Tables that all streams share.
pub struct RecordingMel {
    config: RecordingMelConfig,
    /// Symmetric Hann window.
    taper: Vec<f32>,
    filters: Vec<Filter>,
    transform: Arc<dyn RealToComplex<f32>>,
}

impl fmt::Debug for RecordingMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingMel").field("config", &self.config).finish()
    }
}

impl RecordingMel {
    /// Builds the tables.
    pub fn new(config: RecordingMelConfig) -> Arc<Self> {
        let last = (config.window - 1) as f64;
        let taper = |n: usize| (0.5 - 0.5 * (std::f64::consts::TAU * n as f64 / last).cos()) as f32;
        Arc::new(Self {
            taper: (0..config.window).map(taper).collect(),
            filters: filters(config.bins, f64::from(config.rate) / 2.0, config.n_fft / 2 + 1, config.rate),
            transform: RealFftPlanner::new().plan_fft_forward(config.n_fft),
            config,
        })
    }
}

impl FrontEnd for Arc<RecordingMel> {
    fn rate(&self) -> u32 {
        self.config.rate
    }

    fn stream(&self) -> Box<dyn FrontEndStream> {
        Box::new(RecordingMelStream {
            tables: Arc::clone(self),
            kept: Vec::new(),
            kept_from: 0,
            last: 0.0,
            levels: Vec::new(),
            before: 0,
        })
    }
}

/// Spectrogram of one recording.
#[derive(Debug, Clone)]
pub struct RecordingMelStream {
    tables: Arc<RecordingMel>,
    /// Samples with preemphasis, from index `kept_from` of the window on.
    kept: Vec<f32>,
    kept_from: usize,
    /// The last sample of the window.
    last: f32,
    /// Logarithms of the window's finished frames.
    levels: Vec<f32>,
    /// Samples of earlier windows.
    before: usize,
}

impl RecordingMelStream {
    /// Samples of the open window.
    fn open(&self) -> usize {
        self.kept_from + self.kept.len()
    }

    fn finished(&self) -> usize {
        self.levels.len() / self.tables.config.bins
    }

    /// Takes samples of the open window, and computes the frames whose samples are all there.
    fn take(&mut self, samples: &[f32]) {
        for &sample in samples {
            let first = self.open() == 0;
            self.kept.push(if first { sample } else { sample - PREEMPHASIS * self.last });
            self.last = sample;
        }
        let RecordingMelConfig { hop, n_fft, .. } = self.tables.config;
        let known = self.open().checked_sub(n_fft / 2).map_or(0, |known| known / hop + 1);
        self.compute(known);
        let needed = (self.finished() * hop).saturating_sub(n_fft / 2);
        let unneeded = needed.saturating_sub(self.kept_from).min(self.kept.len());
        self.kept.drain(..unneeded);
        self.kept_from += unneeded;
    }

    /// Computes the levels of frames up to number `frames`. Beyond both ends of the window there is silence.
    fn compute(&mut self, frames: usize) {
        if frames <= self.finished() {
            return;
        }
        let tables = Arc::clone(&self.tables);
        let RecordingMelConfig { hop, n_fft, window, .. } = tables.config;
        let (mut frame, mut spectrum) = (tables.transform.make_input_vec(), tables.transform.make_output_vec());
        let mut scratch = tables.transform.make_scratch_vec();
        let offset = (n_fft - window) / 2;
        for at in self.finished()..frames {
            frame.fill(0.0);
            for (n, taper) in tables.taper.iter().enumerate() {
                let sample = (at * hop + offset + n).checked_sub(n_fft / 2 + self.kept_from);
                let sample = sample.and_then(|sample| self.kept.get(sample)).copied().unwrap_or(0.0);
                frame[offset + n] = sample * taper;
            }
            let done = tables.transform.process_with_scratch(&mut frame, &mut spectrum, &mut scratch);
            done.expect("every buffer was made by the transform, which fails on wrong lengths only");
            let power: Vec<f32> = spectrum.iter().map(Complex::norm_sqr).collect();
            self.levels.extend(tables.filters.iter().map(|filter| (filter.apply(&power) + FLOOR).ln()));
        }
    }

    /// Ends the open window; `None` if it has no frame. The next window is empty.
    fn close(&mut self) -> Option<InputWindow> {
        let tables = Arc::clone(&self.tables);
        let RecordingMelConfig { bins, hop, padding, .. } = tables.config;
        let samples = self.open();
        let frames = samples / hop;
        self.compute(frames);
        let mut data = std::mem::take(&mut self.levels);
        data.truncate(frames * bins);
        (self.kept_from, self.last) = (0, 0.0);
        self.kept.clear();
        self.before += samples;
        if frames == 0 {
            return None;
        }
        for bin in 0..bins {
            normalise(&mut data[bin..], bins);
        }
        let padded = tables.config.frames(samples);
        data.resize(padded * bins, padding.1);
        Some(InputWindow { frames: padded, data })
    }
}

/// Normalises every `stride`-th number to mean 0 and deviation 1. A single number becomes 0.
fn normalise(levels: &mut [f32], stride: usize) {
    let numbers = |levels: &[f32]| levels.iter().step_by(stride).map(|level| f64::from(*level)).collect::<Vec<_>>();
    let all = numbers(levels);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let squares: f64 = all.iter().map(|level| (level - mean).powi(2)).sum();
    let deviation = if all.len() > 1 { (squares / (all.len() - 1) as f64).sqrt() } else { 0.0 };
    for level in levels.iter_mut().step_by(stride) {
        *level = ((f64::from(*level) - mean) / (deviation + DEVIATION_FLOOR)) as f32;
    }
}

impl FrontEndStream for RecordingMelStream {
    fn push(&mut self, mut samples: &[f32], closed: &mut Vec<InputWindow>) {
        while !samples.is_empty() {
            let (now, later) = samples.split_at(samples.len().min(self.tables.config.most_samples - self.open()));
            self.take(now);
            samples = later;
            if self.open() == self.tables.config.most_samples {
                closed.extend(self.close());
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Option<InputWindow> {
        self.close()
    }

    fn samples(&self) -> usize {
        self.before + self.open()
    }

    fn fork(&self) -> Box<dyn FrontEndStream> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RecordingMelConfig {
        RecordingMelConfig {
            rate: 16_000,
            bins: 20,
            n_fft: 512,
            window: 400,
            hop: 160,
            padding: (1, 0.0),
            most_samples: 8000,
        }
    }

    fn windows(samples: &[f32], piece: usize) -> Vec<InputWindow> {
        let mut stream = RecordingMel::new(config()).stream();
        let mut closed = Vec::new();
        for piece in samples.chunks(piece) {
            stream.push(piece, &mut closed);
        }
        assert_eq!(stream.samples(), samples.len());
        closed.extend(stream.finish());
        closed
    }

    fn sound(samples: usize) -> Vec<f32> {
        (0..samples).map(|n| (n as f32 * 0.13).sin() * (n as f32 * 0.001).cos()).collect()
    }

    #[test]
    fn any_split_gives_equal_windows() {
        let sound = sound(19_000);
        let whole = windows(&sound, sound.len());
        assert_eq!(whole.iter().map(|window| window.frames).collect::<Vec<_>>(), [51, 51, 19]);
        for piece in [1, 159, 160, 1000, 8000, 8001] {
            assert_eq!(windows(&sound, piece), whole, "{piece} samples at a time");
        }
        // A window is as if the recording began with it.
        assert_eq!(windows(&sound[8000..16_000], 700), whole[1..2]);
    }

    #[test]
    fn short_and_silent_recordings_are_finite() {
        for samples in [0, 1, 159, 160, 161, 320, 4000] {
            let windows = windows(&vec![0.0; samples], 100);
            assert_eq!(windows.len(), usize::from(samples >= 160), "{samples} samples");
            assert!(windows.iter().all(|window| window.data.iter().all(|number| *number == 0.0)));
        }
    }
}
