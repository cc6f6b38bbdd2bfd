//! Sound of a block of units, step by step, so that others run between its steps.

use std::ops::ControlFlow::{Break, Continue};

use repartee_kernels::Ops;
use repartee_kernels::random::normal;

use super::Vits;
use super::generator::GeneratorWork;

/// Most frames of a unit, half a second. Noise could make a sound endless.
const MOST_FRAMES: usize = 48;
/// Most frames of a block for each of its units.
pub const FRAMES_PER_UNIT: usize = 8;
/// Factor of the noise of frames.
const NOISE: f32 = 0.667;
/// Bits of a counter below the block's number, and the counter of the first frame among those of units.
const BLOCK_BITS: u32 = 20;
const FIRST_FRAME: u64 = 1 << 19;

/// Units to speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitBlock {
    /// Units to speak, one or more, each below the number of the table's.
    pub units: Vec<u32>,
    /// Index of the style.
    pub style: usize,
    /// Seed and response of the noise.
    pub noise: (u64, u64),
    /// Number of the block in its response.
    pub number: u64,
}

/// A block on its way to samples.
pub struct BlockSound<O: Ops> {
    block: UnitBlock,
    progress: Progress<O>,
}

enum Progress<O: Ops> {
    Begun,
    /// Rows of units after some layers.
    Encoding {
        layers: usize,
        x: O::T,
    },
    /// Latents after some couplings.
    Flowing {
        couplings: usize,
        x: O::T,
    },
    Sounding(GeneratorWork<O>),
    Done,
}

impl UnitBlock {
    /// Normal number of a counter of this block.
    fn normal(&self, counter: u64, number: usize) -> f32 {
        let (seed, response) = self.noise;
        normal(seed, response, (self.number << BLOCK_BITS) + counter, number as u64)
    }

    /// Noise of the durations.
    pub fn pairs(&self) -> impl Iterator<Item = [f32; 2]> {
        (0..self.units.len()).map(|at| [0, 1].map(|number| self.normal(at as u64, number)))
    }

    /// Draws the latents of all frames from means and logarithms of deviations, `[units, 2 * width]`.
    pub fn latents(&self, stats: &[f32], frames: &[usize]) -> Vec<f32> {
        let width = stats.len() / (2 * frames.len().max(1));
        let mut latents = Vec::with_capacity(frames.iter().sum::<usize>() * width);
        let mut at = FIRST_FRAME;
        for (&count, row) in frames.iter().zip(stats.chunks_exact((2 * width).max(1))) {
            let (means, logs) = row.split_at(width);
            for _ in 0..count {
                let number =
                    |(number, (mean, log)): (usize, (&f32, &f32))| mean + self.normal(at, number) * log.exp() * NOISE;
                latents.extend(means.iter().zip(logs).enumerate().map(number));
                at += 1;
            }
        }
        latents
    }
}

/// Frames of units from the logarithms of their durations, at least one. Units after a sound of [`FRAMES_PER_UNIT`] frames for
/// each have one frame each.
pub fn frames(logs: &[f32]) -> Vec<usize> {
    let mut left = FRAMES_PER_UNIT * logs.len();
    let frames = |log: &f32| {
        // A number that is not finite becomes 0 or the largest.
        let frames = (log.exp().ceil() as usize).clamp(1, MOST_FRAMES.min(left.max(1)));
        left = left.saturating_sub(frames);
        frames
    };
    logs.iter().map(frames).collect()
}

impl<O: Ops> BlockSound<O> {
    /// Begins a block of one unit or more.
    pub fn new(block: UnitBlock) -> Self {
        Self { block, progress: Progress::Begun }
    }

    /// Computes the next step, whose convolutions take at most about `most` multiplications; returns all samples once they
    /// are whole.
    pub fn step(&mut self, ops: &O, model: &Vits<O>, most: usize) -> Option<Vec<f32>> {
        let block = &self.block;
        let style = || model.style(ops, block.style);
        self.progress = match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Begun => Progress::Encoding { layers: 0, x: model.encoder.embedded(ops, &block.units) },
            Progress::Encoding { layers, x } if layers < model.encoder.layers() => {
                Progress::Encoding { layers: layers + 1, x: model.encoder.layer(ops, layers, &x) }
            }
            Progress::Encoding { x, .. } => {
                let rows = model.durations.rows(ops, &x, &style());
                let frames = frames(&model.durations.draw(ops, &rows, block.pairs()));
                let stats = ops.read(&model.encoder.stats(ops, &x));
                let x = ops.tensor(block.latents(&stats, &frames), model.config.latent);
                Progress::Flowing { couplings: 0, x }
            }
            Progress::Flowing { couplings, x } if couplings < model.flow.couplings() => {
                Progress::Flowing { couplings: couplings + 1, x: model.flow.undo(ops, couplings, &x, &style()) }
            }
            Progress::Flowing { x, .. } => Progress::Sounding(model.generator.begin(ops, x, &style())),
            Progress::Sounding(work) => match model.generator.step(ops, work, most) {
                Continue(work) => Progress::Sounding(work),
                Break(samples) => return Some(ops.read(&samples)),
            },
            Progress::Done => return Some(Vec::new()),
        };
        None
    }
}
