//! Audio front end and encoder of the family: three features of each 20 ms frame, no spectrum.

use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{
    AudioRows, Encoder, EncodingProgress, FrontEnd, FrontEndStream, InputWindow, WindowInput,
};
use repartee_kernels::Ops;
use repartee_kernels::cpu::{Cpu, Weight};
use repartee_kernels_testkit::host::HostOps;

use super::sizes::HIDDEN;

/// Sampling rate, in Hz.
pub const RATE: u32 = 22_050;
/// Samples of a frame.
pub const FRAME: usize = 441;
/// Features of a frame: energy, zero crossings, largest sample.
pub const FEATURES: usize = 3;
/// Frames of a window.
pub const WINDOW: usize = 7;
/// Frames of a row.
pub const PAIR: usize = 2;
/// Number of windows after which the position embeddings repeat.
pub const PLACES: usize = 16;

/// Front end: samples to windows.
pub struct WaveFrontEnd;

impl FrontEnd for WaveFrontEnd {
    fn rate(&self) -> u32 {
        RATE
    }
    fn stream(&self) -> Box<dyn FrontEndStream> {
        Box::new(Hearing::default())
    }
}

#[derive(Clone, Default)]
struct Hearing {
    samples: usize,
    frame: Frame,
    window: Vec<f32>,
}

/// Sums over the samples of the open frame.
#[derive(Clone, Copy, Default)]
struct Frame {
    samples: usize,
    energy: f32,
    crossings: u32,
    peak: f32,
    /// Last sample; only this one is carried into the next frame.
    before: f32,
}

impl Hearing {
    fn close_frame(&mut self) {
        let Frame { samples, energy, crossings, peak, before } = self.frame;
        let mean = (energy / samples as f32).sqrt();
        self.window.extend([10.0 * mean, 20.0 * crossings as f32 / samples as f32, 3.0 * peak]);
        self.frame = Frame { before, ..Frame::default() };
    }

    fn close(&mut self) -> InputWindow {
        InputWindow { frames: self.window.len() / FEATURES, data: std::mem::take(&mut self.window) }
    }
}

impl FrontEndStream for Hearing {
    fn push(&mut self, samples: &[f32], closed: &mut Vec<InputWindow>) {
        for &sample in samples {
            let frame = &mut self.frame;
            frame.samples += 1;
            frame.energy += sample * sample;
            frame.crossings += u32::from((sample < 0.0) != (frame.before < 0.0));
            frame.peak = frame.peak.max(sample.abs());
            frame.before = sample;
            if frame.samples == FRAME {
                self.close_frame();
                if self.window.len() == WINDOW * FEATURES {
                    closed.push(self.close());
                }
            }
        }
        self.samples += samples.len();
    }

    fn finish(mut self: Box<Self>) -> Option<InputWindow> {
        if self.frame.samples > 0 {
            self.close_frame();
        }
        (!self.window.is_empty()).then(|| self.close())
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn fork(&self) -> Box<dyn FrontEndStream> {
        Box::new(self.clone())
    }
}

/// Encoder: windows to rows, one for two frames.
pub struct Encoding {
    ops: Cpu,
    rows: Weight,
    positions: Weight,
}

impl Encoding {
    /// Reads its weights.
    pub fn load(ops: &Cpu, weights: &Weights<'_, Cpu>) -> Self {
        let w = weights.at("ear");
        let rows = w.linear("rows", HIDDEN, PAIR * FEATURES).unwrap();
        Self { ops: ops.clone(), rows, positions: w.table("places", PLACES, HIDDEN).unwrap() }
    }
}

/// Units of work of a window: one, two or three.
fn units(window: &WindowInput<'_>) -> usize {
    1 + window.index % 3
}

impl Encoder for Encoding {
    fn units(&self, window: &WindowInput<'_>) -> usize {
        units(window)
    }

    /// Keeps the frames of a window between two units, which have to be its own.
    fn advance(&mut self, window: &WindowInput<'_>, progress: &mut EncodingProgress, most: usize) -> Option<AudioRows> {
        assert!(progress.units == 0 || progress.rows == window.data, "the progress of another window");
        progress.rows = window.data.to_vec();
        progress.units += most;
        assert!(most > 0 && progress.units <= units(window), "{} units", progress.units);
        (progress.units == units(window)).then(|| self.encode(std::slice::from_ref(window)).remove(0))
    }

    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let (mut pairs, mut places, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for window in windows {
            let count = window.data.len().div_ceil(PAIR * FEATURES);
            pairs.extend_from_slice(window.data);
            places.extend(std::iter::repeat_n((window.index % PLACES) as u32, count));
            counts.push(count);
            pairs.resize(places.len() * PAIR * FEATURES, 0.0);
        }
        let ops = &self.ops;
        let rows = ops.linear(&ops.tensor(pairs, PAIR * FEATURES), &self.rows, None);
        let rows = ops.add(rows, &ops.embed_at(&self.positions, &ops.list(&places)));
        let mut first = 0;
        let mine = |count| {
            let at: Vec<usize> = (first..first + count).collect();
            first += count;
            AudioRows { rows: ops.read(&ops.gather(&rows, &at)), count }
        };
        counts.into_iter().map(mine).collect()
    }
}
