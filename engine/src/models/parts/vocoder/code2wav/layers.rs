//! Blocks of code2wav, over streams with carried tails.

use repartee_kernels::{Activation, Ops, StreamLevel};

use crate::models::load_error::LoadError;
use crate::models::parts::vocoder::stream_conv::StreamConv;
use crate::models::parts::weights::Weights;

/// Taps of the causal convolutions.
pub const KERNEL: usize = 7;
/// Dilations of a block's residual units.
const DILATIONS: [usize; 3] = [1, 3, 9];
/// Epsilon of the norm in `Qwen3OmniMoeConvNeXtBlock`.
const CONVNEXT_EPS: f32 = 1e-6;

/// Snake activation with parameters for each channel.
pub struct Snake<O: Ops> {
    frequency: O::Weight,
    magnitude: O::Weight,
}

impl<O: Ops> Snake<O> {
    /// Loads `alpha` and `beta`.
    pub fn load(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        let (frequency, magnitude) = w.snake(channels)?;
        Ok(Self { frequency, magnitude })
    }

    /// Applies each channel's activation to its numbers.
    pub fn forward(&self, ops: &O, x: O::T) -> O::T {
        ops.snake(x, &self.frequency, &self.magnitude)
    }
}

/// ConvNeXt block, after `Qwen3OmniMoeConvNeXtBlock`.
pub struct ConvNeXt<O: Ops> {
    dwconv: StreamConv<O>,
    norm: (O::Weight, O::Weight),
    pwconv1: (O::Weight, O::Weight),
    pwconv2: (O::Weight, O::Weight),
    gamma: O::Weight,
}

/// Two convolutions, each after an activation, added to the input.
struct ResidualUnit<O: Ops> {
    act1: Snake<O>,
    conv1: StreamConv<O>,
    act2: Snake<O>,
    conv2: StreamConv<O>,
}

/// Block of the decoder: an activation, an upsampling convolution and residual units.
pub struct UpsampleBlock<O: Ops> {
    snake: Snake<O>,
    upsample: StreamConv<O>,
    units: Vec<ResidualUnit<O>>,
}

impl<O: Ops> ConvNeXt<O> {
    /// Loads a block over `channels` channels.
    pub fn load(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        let linear = |name: &str, out, input| -> Result<_, LoadError> {
            Ok((w.linear(&format!("{name}.weight"), out, input)?, w.vector(&format!("{name}.bias"), out)?))
        };
        Ok(Self {
            dwconv: StreamConv::depthwise(&w.at("dwconv"), channels, KERNEL)?,
            norm: (w.vector("norm.weight", channels)?, w.vector("norm.bias", channels)?),
            pwconv1: linear("pwconv1", 4 * channels, channels)?,
            pwconv2: linear("pwconv2", channels, 4 * channels)?,
            gamma: w.vector("gamma", channels)?,
        })
    }

    /// Depthwise convolution of the block.
    pub fn convolution(&self) -> &StreamConv<O> {
        &self.dwconv
    }

    /// Applies the block to the rows `x`.
    pub fn forward(&self, ops: &O, x: O::T, tail: &mut O::State, streams: &StreamLevel<O::Index>) -> O::T {
        let h = self.dwconv.forward(ops, &x, tail, streams);
        let h = ops.layer_norm(&h, &self.norm.0, &self.norm.1, CONVNEXT_EPS);
        let h = ops.activation(ops.linear(&h, &self.pwconv1.0, Some(&self.pwconv1.1)), Activation::Gelu);
        let h = ops.linear(&h, &self.pwconv2.0, Some(&self.pwconv2.1));
        ops.add(ops.scale(h, &self.gamma), &x)
    }
}

impl<O: Ops> UpsampleBlock<O> {
    /// Loads a block from `input` to `out` channels with `rate` output rows for each input row.
    pub fn load(
        w: &Weights<'_, O>,
        (input, out): (usize, usize),
        (rate, cut): (usize, bool),
    ) -> Result<Self, LoadError> {
        let units = DILATIONS.iter().enumerate().map(|(i, &dilation)| {
            let w = w.at(2 + i);
            Ok(ResidualUnit {
                act1: Snake::load(&w.at("act1"), out)?,
                conv1: StreamConv::causal(&w.at("conv1"), out, out, KERNEL, dilation)?,
                act2: Snake::load(&w.at("act2"), out)?,
                conv2: StreamConv::causal(&w.at("conv2"), out, out, 1, 1)?,
            })
        });
        Ok(Self {
            snake: Snake::load(&w.at("0"), input)?,
            upsample: StreamConv::transposed(&w.at("1.conv"), input, out, 2 * rate, (rate, cut))?,
            units: units.collect::<Result<_, LoadError>>()?,
        })
    }

    /// Convolutions of the block, in the order of computation.
    pub fn convolutions(&self) -> impl Iterator<Item = &StreamConv<O>> {
        std::iter::once(&self.upsample).chain(self.units.iter().flat_map(|unit| [&unit.conv1, &unit.conv2]))
    }

    /// Applies the block; returns its rows and the streams at their new rate. `tail` yields the convolutions' tails in
    /// order.
    pub fn forward<'a>(
        &self,
        ops: &O,
        x: O::T,
        mut tail: impl FnMut() -> &'a mut O::State,
        streams: &StreamLevel<O::Index>,
    ) -> (O::T, StreamLevel<O::Index>)
    where
        O::State: 'a,
    {
        let x = self.snake.forward(ops, x);
        let (x, streams) = self.upsample.upsample(ops, &x, tail(), streams);
        let x = self.units.iter().fold(x, |x, unit| unit.forward(ops, x, tail(), tail(), &streams));
        (x, streams)
    }
}

impl<O: Ops> ResidualUnit<O> {
    fn forward(
        &self,
        ops: &O,
        x: O::T,
        tail1: &mut O::State,
        tail2: &mut O::State,
        streams: &StreamLevel<O::Index>,
    ) -> O::T {
        let h = self.act1.forward(ops, ops.copy(&x));
        let h = self.conv1.forward(ops, &h, tail1, streams);
        let h = self.act2.forward(ops, h);
        let h = self.conv2.forward(ops, &h, tail2, streams);
        ops.add(h, &x)
    }
}
