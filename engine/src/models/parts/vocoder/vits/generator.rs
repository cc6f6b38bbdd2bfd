//! `Generator` of HiFi-GAN: latents to samples by levels of upsampling, each with parallel residual blocks. Convolutions are
//! computed some rows at a time.

use std::ops::ControlFlow::{self, Break, Continue};

use repartee_kernels::{Activation, Ops};

use super::config::VitsConfig;
use super::layers::{Affine, add_to_all, linear, pointwise};
use crate::models::load_error::LoadError;
use crate::models::parts::vocoder::segment_conv::{PartialConv, SegmentConv, SegmentUpsample};
use crate::models::parts::weights::Weights;

/// Taps of the first and of the last convolution.
const TAPS: usize = 7;
/// Factors of negative numbers before the levels' convolutions, and before the last one.
const SLOPE: f32 = 0.1;
const LAST_SLOPE: f32 = 0.01;

/// Pairs of convolutions, the first of each dilated.
type Block<O> = Vec<[SegmentConv<O>; 2]>;

/// The generator's levels with loaded weights.
pub struct Generator<O: Ops> {
    first: SegmentConv<O>,
    style: Affine<O>,
    levels: Vec<(SegmentUpsample<O>, Vec<Block<O>>)>,
    last: SegmentConv<O>,
}

/// Latents on their way to samples.
pub enum GeneratorWork<O: Ops> {
    /// The first convolution.
    First(PartialConv<O>, O::T),
    /// Upsampling of a level.
    Raising(usize, PartialConv<O>),
    /// A residual block of a level.
    Block(BlockWork<O>),
    /// The last convolution.
    Last(PartialConv<O>),
}

/// A residual block on its way.
pub struct BlockWork<O: Ops> {
    /// Level and block.
    at: (usize, usize),
    /// Input of the level's blocks, and the sum of those that are done.
    input: O::T,
    sum: Option<O::T>,
    /// Rows to which the pair adds, convolutions that are done, and the one on its way.
    x: O::T,
    done: usize,
    conv: PartialConv<O>,
}

fn leaky<O: Ops>(ops: &O, x: O::T) -> O::T {
    ops.activation(x, Activation::LeakyRelu { slope: SLOPE })
}

impl<O: Ops> BlockWork<O> {
    fn new(ops: &O, at: (usize, usize), input: O::T, sum: Option<O::T>) -> Self {
        let (x, conv) = (ops.copy(&input), PartialConv::new(leaky(ops, ops.copy(&input))));
        Self { at, input, sum, x, done: 0, conv }
    }
}

impl<O: Ops> Generator<O> {
    /// Loads the generator; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &VitsConfig) -> Result<Self, LoadError> {
        let level = |(at, &(rate, taps)): (usize, &(usize, usize))| {
            let (input, out) = (config.channels >> at, config.channels >> (at + 1));
            let block = |(number, (taps, dilations)): (usize, &(usize, Vec<usize>))| {
                let w = w.at("resblocks").at(at * config.blocks.len() + number);
                let conv = |list: &str, number: usize, dilation: usize| {
                    SegmentConv::load_normed(&w.at(list).at(number), out, out, *taps, dilation)
                };
                let pair = |(number, &dilation): (usize, &usize)| {
                    Ok([conv("convs1", number, dilation)?, conv("convs2", number, 1)?])
                };
                dilations.iter().enumerate().map(pair).collect::<Result<Block<O>, LoadError>>()
            };
            let blocks = config.blocks.iter().enumerate().map(block).collect::<Result<_, LoadError>>()?;
            Ok((SegmentUpsample::load_normed(&w.at("ups").at(at), out, input, taps, rate)?, blocks))
        };
        let last = config.channels >> config.upsampling.len();
        Ok(Self {
            first: SegmentConv::load_normed(&w.at("conv_pre"), config.channels, config.latent, TAPS, 1)?,
            style: pointwise(&w.at("cond"), config.channels, config.style)?,
            levels: config.upsampling.iter().enumerate().map(level).collect::<Result<_, LoadError>>()?,
            last: SegmentConv::load_without_bias(&w.at("conv_post"), 1, last, TAPS)?,
        })
    }

    /// Begins the samples of latents.
    pub fn begin(&self, ops: &O, latents: O::T, style: &O::T) -> GeneratorWork<O> {
        GeneratorWork::First(PartialConv::new(latents), linear(ops, style, &self.style))
    }

    /// Computes a unit of at most about `most` multiplications; returns the samples, `[samples, 1]`, once they are whole.
    pub fn step(&self, ops: &O, work: GeneratorWork<O>, most: usize) -> ControlFlow<O::T, GeneratorWork<O>> {
        Continue(match work {
            GeneratorWork::First(conv, style) => match conv.step(ops, &self.first, most) {
                Continue(conv) => GeneratorWork::First(conv, style),
                Break(x) => self.level(ops, 0, add_to_all(ops, x, &style)),
            },
            GeneratorWork::Raising(at, conv) => match self.levels[at].0.step(ops, conv, most) {
                Continue(conv) => GeneratorWork::Raising(at, conv),
                Break(x) => GeneratorWork::Block(BlockWork::new(ops, (at, 0), x, None)),
            },
            GeneratorWork::Block(work) => self.block(ops, work, most),
            GeneratorWork::Last(conv) => match conv.step(ops, &self.last, most) {
                Continue(conv) => GeneratorWork::Last(conv),
                Break(x) => return Break(ops.activation(x, Activation::Tanh)),
            },
        })
    }

    /// Begins a level over `x`, or the last convolution behind all.
    fn level(&self, ops: &O, at: usize, x: O::T) -> GeneratorWork<O> {
        if at < self.levels.len() {
            return GeneratorWork::Raising(at, PartialConv::new(leaky(ops, x)));
        }
        GeneratorWork::Last(PartialConv::new(ops.activation(x, Activation::LeakyRelu { slope: LAST_SLOPE })))
    }

    /// Computes a unit of a residual block.
    fn block(&self, ops: &O, mut work: BlockWork<O>, most: usize) -> GeneratorWork<O> {
        let (level, number) = work.at;
        let blocks = &self.levels[level].1;
        let pairs = &blocks[number];
        match work.conv.step(ops, &pairs[work.done / 2][work.done % 2], most) {
            Continue(conv) => work.conv = conv,
            Break(out) => {
                work.done += 1;
                let next = if work.done.is_multiple_of(2) {
                    work.x = ops.add(out, &work.x);
                    ops.copy(&work.x)
                } else {
                    out
                };
                work.conv = PartialConv::new(leaky(ops, next));
            }
        }
        if work.done < 2 * pairs.len() {
            return GeneratorWork::Block(work);
        }
        let sum = match work.sum {
            Some(sum) => ops.add(sum, &work.x),
            None => work.x,
        };
        if number + 1 < blocks.len() {
            return GeneratorWork::Block(BlockWork::new(ops, (level, number + 1), work.input, Some(sum)));
        }
        self.level(ops, level + 1, ops.scale_all(sum, 1.0 / blocks.len() as f32))
    }
}
