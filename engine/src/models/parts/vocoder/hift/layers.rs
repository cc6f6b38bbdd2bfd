//! Causal convolutions of HiFT over streams, and its residual blocks.

use repartee_kernels::shapes::snake_vectors;
use repartee_kernels::{Ops, StateSpec, StreamLevel, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Causal convolution over streams with carried tails.
pub struct StreamConv<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    /// Rows before a row that it reads, and their channels.
    history: usize,
    channels: usize,
}

impl<O: Ops> StreamConv<O> {
    /// Loads `weight`, which may be normed, and `bias`.
    pub fn load(w: &Weights<'_, O>, [out, channels, kernel]: [usize; 3], dilation: usize) -> Result<Self, LoadError> {
        let shape = [out, channels, kernel];
        let weight = w.made("weight", WeightLayout::Conv1d { dilation }, &w.normed("weight", &shape)?, &shape)?;
        Ok(Self { weight, bias: w.vector("bias", out)?, history: (kernel - 1) * dilation, channels })
    }

    /// Creates the tails of `slots` streams.
    pub fn tail(&self, ops: &O, slots: usize) -> O::State {
        ops.state(StateSpec::Tail { slots, rows: self.history, columns: self.channels })
    }

    /// Bytes of one stream's tail.
    pub fn tail_bytes(&self) -> usize {
        self.history * self.channels * size_of::<f32>()
    }

    /// Computes the convolution of the streams' next rows.
    pub fn forward(&self, ops: &O, x: &O::T, tail: &mut O::State, streams: &StreamLevel<O::Index>) -> O::T {
        ops.conv1d_at(x, &self.weight, &self.bias, tail, streams)
    }
}

/// One dilation of a residual block: activation, convolution, activation, convolution.
struct SnakeUnit<O: Ops> {
    snakes: [(O::Weight, O::Weight); 2],
    convs: [StreamConv<O>; 2],
}

/// Residual block, after `ResBlock`.
pub struct CausalBlock<O: Ops>(Vec<SnakeUnit<O>>);

impl<O: Ops> CausalBlock<O> {
    /// Loads `convs1`, `convs2`, `activations1` and `activations2`.
    pub fn load(
        w: &Weights<'_, O>,
        channels: usize,
        (kernel, dilations): (usize, &[usize]),
    ) -> Result<Self, LoadError> {
        let snake = |list: &str, at: usize| -> Result<_, LoadError> {
            let w = w.at(list).at(at);
            let alpha = w.values("alpha", &[channels])?;
            let (frequency, magnitude) = snake_vectors(&alpha, &alpha, false);
            let vector = |name, values: &[f32]| w.made(name, WeightLayout::Vector, values, &[channels]);
            Ok((vector("frequency", &frequency)?, vector("magnitude", &magnitude)?))
        };
        let conv = |list: &str, at: usize, dilation| {
            StreamConv::load(&w.at(list).at(at), [channels, channels, kernel], dilation)
        };
        let unit = |(at, &dilation): (usize, &usize)| {
            Ok(SnakeUnit {
                snakes: [snake("activations1", at)?, snake("activations2", at)?],
                convs: [conv("convs1", at, dilation)?, conv("convs2", at, 1)?],
            })
        };
        Ok(Self(dilations.iter().enumerate().map(unit).collect::<Result<_, LoadError>>()?))
    }

    /// Convolutions in the order of computation.
    pub fn convolutions(&self) -> impl Iterator<Item = &StreamConv<O>> {
        self.0.iter().flat_map(|unit| &unit.convs)
    }

    /// Computes the block; `tails` gives those of its convolutions in order.
    pub fn forward<'a>(
        &self,
        ops: &O,
        x: O::T,
        tails: &mut impl Iterator<Item = &'a mut O::State>,
        streams: &StreamLevel<O::Index>,
    ) -> O::T
    where
        O::State: 'a,
    {
        let mut x = x;
        for SnakeUnit { snakes, convs } in &self.0 {
            let mut h = ops.copy(&x);
            for ((frequency, magnitude), conv) in snakes.iter().zip(convs) {
                let Some(tail) = tails.next() else { return x };
                h = conv.forward(ops, &ops.snake(h, frequency, magnitude), tail, streams);
            }
            x = ops.add(h, &x);
        }
        x
    }
}
