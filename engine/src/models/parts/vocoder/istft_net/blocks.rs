//! Norms with a style, and residual blocks of them, after `istftnet.py` of kokoro 0.9.4.

use std::f32::consts::FRAC_1_SQRT_2;
use std::ops::ControlFlow::{self, Break, Continue};

use repartee_kernels::{Activation, Ops, WeightLayout};

use super::super::segment_conv::{PartialConv, SegmentConv};
use crate::models::load_error::LoadError;
use crate::models::parts::lists::one_segment;
use crate::models::parts::weights::Weights;

/// Number added to a variance: torch's default.
const EPSILON: f32 = 1e-5;
/// Factor of negative numbers in blocks of convolutions.
const SLOPE: f32 = 0.2;
/// Taps of a block's convolutions.
const TAPS: usize = 3;

/// Positive part, with negative numbers times `slope`.
pub fn slope(slope: f32) -> Activation {
    Activation::LeakyRelu { slope }
}

/// `AdaIN1d`: norm of each channel over a clause, scaled and shifted by the style. The norm's own factors are 1 and 0 in
/// every published file.
pub struct StyleNorm<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
}

impl<O: Ops> StyleNorm<O> {
    /// Loads the layer from a style to scales and shifts.
    pub fn load(w: &Weights<'_, O>, channels: usize, style_dim: usize) -> Result<Self, LoadError> {
        let w = w.at("fc");
        Ok(Self { weight: w.linear("weight", 2 * channels, style_dim)?, bias: w.vector("bias", 2 * channels)? })
    }

    /// Norms the rows of segments; `style` has a row for each.
    pub fn forward(&self, ops: &O, x: &O::T, style: &O::T, segments: &O::Index) -> O::T {
        let style = ops.linear(style, &self.weight, Some(&self.bias));
        ops.segment_instance_norm_at(x, &style, EPSILON, segments)
    }
}

/// `AdaINResBlock1`: three dilations, each with two convolutions behind norms and snakes.
pub struct SnakeBlock<O: Ops> {
    units: Vec<[SnakeConv<O>; 2]>,
}

/// Norm, snake and convolution.
struct SnakeConv<O: Ops> {
    norm: StyleNorm<O>,
    /// Frequencies and magnitudes.
    snake: (O::Weight, O::Weight),
    conv: SegmentConv<O>,
}

impl<O: Ops> SnakeBlock<O> {
    /// Loads a block of `channels` channels.
    pub fn load(
        w: &Weights<'_, O>,
        channels: usize,
        kernel: usize,
        dilations: &[usize],
        style_dim: usize,
    ) -> Result<Self, LoadError> {
        let half = |part: usize, at: usize, dilation: usize| -> Result<SnakeConv<O>, LoadError> {
            let alpha = format!("alpha{part}.{at}");
            let frequency = w.values(&alpha, &[1, channels, 1])?;
            let magnitude: Vec<f32> = frequency.iter().map(|alpha| 1.0 / alpha).collect();
            let vector = |values: &[f32]| w.made(&alpha, WeightLayout::Vector, values, &[channels]);
            let conv = w.at(format!("convs{part}")).at(at);
            Ok(SnakeConv {
                norm: StyleNorm::load(&w.at(format!("adain{part}")).at(at), channels, style_dim)?,
                snake: (vector(&frequency)?, vector(&magnitude)?),
                conv: SegmentConv::load_normed(&conv, channels, channels, kernel, dilation)?,
            })
        };
        let unit = |(at, &dilation): (usize, &usize)| Ok([half(1, at, dilation)?, half(2, at, 1)?]);
        Ok(Self { units: dilations.iter().enumerate().map(unit).collect::<Result<_, LoadError>>()? })
    }
}

/// Snake block over one segment that is computed in units: a norm with its snake, or some rows of a convolution.
pub struct SnakeBlockWork<O: Ops> {
    /// Rows to which the pair of convolutions adds.
    x: O::T,
    /// Result of a pair's first convolution.
    first: Option<O::T>,
    /// Convolutions that are done.
    done: usize,
    /// Convolution on its way.
    conv: Option<PartialConv<O>>,
}

impl<O: Ops> SnakeBlockWork<O> {
    /// Begins a block over `x`.
    pub fn new(x: O::T) -> Self {
        Self { x, first: None, done: 0, conv: None }
    }

    /// Computes a unit of at most about `most` multiplications; returns the result once it is whole.
    pub fn step(mut self, ops: &O, block: &SnakeBlock<O>, style: &O::T, most: usize) -> ControlFlow<O::T, Self> {
        let Some(layer) = block.units.get(self.done / 2).map(|pair| &pair[self.done % 2]) else { return Break(self.x) };
        let Some(conv) = self.conv.take() else {
            let first = self.first.take();
            self.conv = Some(PartialConv::new(layer.activated(ops, first.as_ref().unwrap_or(&self.x), style)));
            return Continue(self);
        };
        match conv.step(ops, &layer.conv, most) {
            Continue(conv) => self.conv = Some(conv),
            Break(out) => {
                self.done += 1;
                if self.done.is_multiple_of(2) {
                    self.x = ops.add(out, &self.x);
                } else {
                    self.first = Some(out);
                }
            }
        }
        if self.done == 2 * block.units.len() { Break(self.x) } else { Continue(self) }
    }
}

impl<O: Ops> SnakeConv<O> {
    /// Computes the norm and the snake, which the convolution takes.
    fn activated(&self, ops: &O, x: &O::T, style: &O::T) -> O::T {
        let x = self.norm.forward(ops, x, style, &one_segment(ops, ops.rows(x)));
        let (frequency, magnitude) = &self.snake;
        ops.snake(x, frequency, magnitude)
    }
}

/// `AdainResBlk1d`: two convolutions behind norms, and a shortcut. It may double the rows.
pub struct StyleBlock<O: Ops> {
    /// Channels of rows and of results.
    input: usize,
    out: usize,
    norms: [StyleNorm<O>; 2],
    convs: [SegmentConv<O>; 2],
    shortcut: Option<O::Weight>,
    /// Even and odd rows of the transposed convolution that doubles them.
    doubling: Option<[SegmentConv<O>; 2]>,
}

impl<O: Ops> StyleBlock<O> {
    /// Loads a block of `input` channels to `out`; it doubles the rows if `doubles`.
    pub fn load(
        w: &Weights<'_, O>,
        (input, out): (usize, usize),
        style_dim: usize,
        doubles: bool,
    ) -> Result<Self, LoadError> {
        let shortcut = || {
            let shape = [out, input, 1];
            w.made("conv1x1", WeightLayout::Linear, &w.at("conv1x1").normed("weight", &shape)?, &[out, input])
        };
        Ok(Self {
            input,
            out,
            norms: [
                StyleNorm::load(&w.at("norm1"), input, style_dim)?,
                StyleNorm::load(&w.at("norm2"), out, style_dim)?,
            ],
            convs: [
                SegmentConv::load_normed(&w.at("conv1"), out, input, TAPS, 1)?,
                SegmentConv::load_normed(&w.at("conv2"), out, out, TAPS, 1)?,
            ],
            shortcut: (input != out).then(shortcut).transpose()?,
            doubling: doubles.then(|| doubling(&w.at("pool"), input)).transpose()?,
        })
    }

    /// Begins the block over one segment `x`.
    pub fn begin(&self, ops: &O, x: &O::T, style: &O::T) -> StyleBlockWork<O> {
        let segment = one_segment(ops, ops.rows(x));
        let mut h = ops.activation(self.norms[0].forward(ops, x, style, &segment), slope(SLOPE));
        let mut shortcut = self.shortcut.as_ref().map_or_else(|| ops.copy(x), |weight| ops.linear(x, weight, None));
        if let Some([even, odd]) = &self.doubling {
            h = interleaved(ops, &even.forward(ops, &h, &segment), &odd.forward(ops, &h, &segment), self.input);
            shortcut = interleaved(ops, &shortcut, &shortcut, self.out);
        }
        StyleBlockWork { shortcut, second: false, conv: PartialConv::new(h) }
    }
}

/// Style block that is computed in units: some rows of a convolution, and the norm behind the first one.
pub struct StyleBlockWork<O: Ops> {
    shortcut: O::T,
    /// True for the second convolution.
    second: bool,
    conv: PartialConv<O>,
}

impl<O: Ops> StyleBlockWork<O> {
    /// Computes a unit of at most about `most` multiplications; returns the result once it is whole.
    pub fn step(mut self, ops: &O, block: &StyleBlock<O>, style: &O::T, most: usize) -> ControlFlow<O::T, Self> {
        match self.conv.step(ops, &block.convs[usize::from(self.second)], most) {
            Break(h) if self.second => Break(ops.scale_all(ops.add(h, &self.shortcut), FRAC_1_SQRT_2)),
            Break(h) => {
                let h = block.norms[1].forward(ops, &h, style, &one_segment(ops, ops.rows(&h)));
                (self.second, self.conv) = (true, PartialConv::new(ops.activation(h, slope(SLOPE))));
                Continue(self)
            }
            Continue(conv) => {
                self.conv = conv;
                Continue(self)
            }
        }
    }
}

/// Interleaves the rows of two tensors of `columns` columns.
fn interleaved<O: Ops>(ops: &O, even: &O::T, odd: &O::T, columns: usize) -> O::T {
    ops.reshape(ops.concat_columns(&[even, odd]), columns)
}

/// Loads the depthwise transposed convolution of three taps and a stride of two: an even row takes the middle tap of its
/// row, an odd one the last tap of the row before and the first of the row after.
fn doubling<O: Ops>(w: &Weights<'_, O>, channels: usize) -> Result<[SegmentConv<O>; 2], LoadError> {
    let taps = w.normed("weight", &[channels, 1, TAPS])?;
    let arranged = |order: [Option<usize>; TAPS]| {
        let each = taps.chunks_exact(TAPS).flat_map(|taps| order.map(|at| at.map_or(0.0, |at| taps[at])));
        SegmentConv::depthwise(w, &each.collect::<Vec<_>>(), channels, (TAPS, 1))
    };
    Ok([arranged([None, Some(1), None])?, arranged([None, Some(2), Some(0)])?])
}
