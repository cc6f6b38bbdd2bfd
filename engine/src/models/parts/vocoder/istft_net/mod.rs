//! iSTFTNet with a harmonic source, after `Generator` of kokoro 0.9.4 `istftnet.py`: features and a pitch to the spectra
//! of an inverse Fourier transform.
//!
//! Its norms take mean and variance of each channel over the whole clause, so no layer can begin before the layer
//! below it has ended. A convolution is computed some rows at a time ([`PartialConv`]), so that none takes long. The last
//! convolution and the inverse transform have no norm: they run in any split.
//!
//! - [`blocks`]: norms with a style, and the residual blocks of them
//! - [`source`]: sines of a pitch, and their spectra
//! - [`config`]: sizes of its levels

pub mod blocks;
pub mod config;
pub mod source;

use std::ops::ControlFlow;

use repartee_kernels::{Ops, WeightLayout};

use self::blocks::{SnakeBlock, SnakeBlockWork, slope};
use self::config::IstftNetConfig;
use super::segment_conv::{PartialConv, SegmentConv, SegmentUpsample};
use crate::models::load_error::LoadError;
use crate::models::parts::lists::{list, row};
use crate::models::parts::weights::Weights;
use crate::weight_policy::WeightPolicy;

/// Taps of the last convolution.
const LAST_TAPS: usize = 7;
/// Factor of negative numbers before each upsampling.
const SLOPE: f32 = 0.1;
/// Factor of negative numbers before the last convolution: torch's default.
const LAST_SLOPE: f32 = 0.01;

/// The generator, with all its levels.
pub struct IstftNet<O: Ops> {
    config: IstftNetConfig,
    levels: Vec<Level<O>>,
    last: SegmentConv<O>,
}

/// One factor of upsampling.
struct Level<O: Ops> {
    /// Convolution of the source's spectra, as a product over the numbers that a row reads.
    noise_conv: (O::Weight, O::Weight),
    noise_block: SnakeBlock<O>,
    upsample: SegmentUpsample<O>,
    /// Parallel residual blocks, whose results are averaged.
    blocks: Vec<SnakeBlock<O>>,
}

impl<O: Ops> IstftNet<O> {
    /// Loads the generator; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &IstftNetConfig) -> Result<Self, LoadError> {
        let (count, kernels) = (config.upsample_rates.len(), config.resblock_kernel_sizes.len());
        let level = |at: usize| -> Result<Level<O>, LoadError> {
            let (rate, kernel) = (config.upsample_rates[at], config.upsample_kernel_sizes[at]);
            let (input, out) = (config.channels(at), config.channels(at + 1));
            let taps = config.source_taps(at);
            let noise = w.at("noise_convs").at(at);
            let weight = noise.values("weight", &[out, config.source_channels(), taps])?;
            let weight = taps_outermost(&weight, config.source_channels(), taps);
            let shape = [out, config.source_channels() * taps];
            let noise_conv = (noise.made("weight", WeightLayout::Linear, &weight, &shape)?, noise.vector("bias", out)?);
            let noise_kernel = if at + 1 < count { 7 } else { 11 };
            let sizes = config.resblock_kernel_sizes.iter().zip(&config.resblock_dilation_sizes);
            let block = |(number, (&kernel, dilations)): (usize, (&usize, &Vec<usize>))| {
                SnakeBlock::load(&w.at("resblocks").at(at * kernels + number), out, kernel, dilations, config.style_dim)
            };
            let noise_res = w.at("noise_res").at(at);
            Ok(Level {
                noise_conv,
                noise_block: SnakeBlock::load(&noise_res, out, noise_kernel, &[1, 3, 5], config.style_dim)?,
                upsample: SegmentUpsample::load_normed(&w.at("ups").at(at), out, input, kernel, rate)?,
                blocks: sizes.enumerate().map(block).collect::<Result<_, _>>()?,
            })
        };
        let levels = (0..count).map(level).collect::<Result<Vec<_>, _>>()?;
        let (last, bins) = (config.channels(count), config.source_channels());
        // Logarithms and phases: an error of these is not scaled down by anything behind them.
        let post = w.at("conv_post").with_policy(WeightPolicy::default());
        let last = SegmentConv::load_normed(&post, bins, last, LAST_TAPS, 1)?;
        Ok(Self { config: config.clone(), levels, last })
    }

    /// Sizes of the generator.
    pub fn config(&self) -> &IstftNetConfig {
        &self.config
    }

    /// Number of levels.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Number of parallel residual blocks of a level.
    pub fn blocks(&self) -> usize {
        self.config.resblock_kernel_sizes.len()
    }

    /// Begins the rows that a level's source adds: `windows` has for each row the numbers of the spectra that it reads
    /// ([`source::windows`]).
    pub fn noise(&self, ops: &O, level: usize, windows: &O::T) -> SnakeBlockWork<O> {
        let (weight, bias) = &self.levels[level].noise_conv;
        SnakeBlockWork::new(ops.linear(windows, weight, Some(bias)))
    }

    /// Computes a unit of [`IstftNet::noise`], of at most about `most` multiplications.
    pub fn noise_step(
        &self,
        ops: &O,
        level: usize,
        work: SnakeBlockWork<O>,
        style: &O::T,
        most: usize,
    ) -> ControlFlow<O::T, SnakeBlockWork<O>> {
        work.step(ops, &self.levels[level].noise_block, style, most)
    }

    /// Begins the upsampling of a level's rows.
    pub fn upsampling(&self, ops: &O, x: O::T) -> PartialConv<O> {
        PartialConv::new(ops.activation(x, slope(SLOPE)))
    }

    /// Computes a unit of [`IstftNet::upsampling`].
    pub fn upsample_step(
        &self,
        ops: &O,
        level: usize,
        work: PartialConv<O>,
        most: usize,
    ) -> ControlFlow<O::T, PartialConv<O>> {
        self.levels[level].upsample.step(ops, work, most)
    }

    /// Adds the source's rows to a level's upsampled ones. The last level has one row more than its input gives: the second
    /// row is repeated before the first.
    pub fn raised(&self, ops: &O, level: usize, x: &O::T, source: O::T) -> O::T {
        if level + 1 < self.levels.len() {
            return ops.add(source, x);
        }
        let reflected: Vec<u32> = [1, 0].into_iter().chain(1..row(ops.rows(&source) - 1)).collect();
        ops.add(source, &ops.gather_at(x, &list(ops, &reflected)))
    }

    /// Computes a unit of one of the parallel residual blocks of a level.
    pub fn block_step(
        &self,
        ops: &O,
        (level, block): (usize, usize),
        work: SnakeBlockWork<O>,
        style: &O::T,
        most: usize,
    ) -> ControlFlow<O::T, SnakeBlockWork<O>> {
        work.step(ops, &self.levels[level].blocks[block], style, most)
    }

    /// Rows on either side of a row that its spectrum depends on.
    pub fn context(&self) -> usize {
        LAST_TAPS / 2
    }

    /// Computes the logarithms of magnitudes and the phases' arguments of a range of rows.
    pub fn spectra(&self, ops: &O, x: O::T, rows: &O::Index) -> O::T {
        self.last.forward(ops, &ops.activation(x, slope(LAST_SLOPE)), rows)
    }
}

/// Arranges `[out, channels, taps]` as `[out, taps, channels]`.
fn taps_outermost(weight: &[f32], channels: usize, taps: usize) -> Vec<f32> {
    let mut arranged = Vec::with_capacity(weight.len());
    for out in weight.chunks_exact(channels * taps) {
        arranged.extend((0..taps).flat_map(|tap| (0..channels).map(move |channel| out[channel * taps + tap])));
    }
    arranged
}
