//! Convolutions of code2wav and the blocks made of them, over streams with carried tails.

use repartee_kernels::{Activation, Ops, StateSpec, StreamLevel, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Taps of the causal convolutions.
pub const KERNEL: usize = 7;
/// Dilations of a block's residual units.
const DILATIONS: [usize; 3] = [1, 3, 9];
/// Epsilon of the norm in `Qwen3OmniMoeConvNeXtBlock`.
const CONVNEXT_EPS: f32 = 1e-6;

/// Convolution over streams.
pub struct Conv<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    channels: usize,
    history: usize,
    /// Output rows for each input row.
    stride: usize,
    /// True if a stream's first row yields nothing.
    cut: bool,
}

impl<O: Ops> Conv<O> {
    /// Loads a causal convolution of `kernel` taps, `dilation` rows apart.
    pub fn causal(
        w: &Weights<'_, O>,
        out: usize,
        channels: usize,
        kernel: usize,
        dilation: usize,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            weight: w.convolution("conv.weight", WeightLayout::Conv1d { dilation }, [out, channels, kernel])?,
            bias: w.vector("conv.bias", out)?,
            channels,
            history: (kernel - 1) * dilation,
            stride: 1,
            cut: false,
        })
    }

    fn depthwise(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        Ok(Self {
            weight: w.convolution("conv.weight", WeightLayout::Depthwise, [channels, 1, KERNEL])?,
            bias: w.vector("conv.bias", channels)?,
            channels,
            history: KERNEL - 1,
            stride: 1,
            cut: false,
        })
    }

    /// Loads a transposed convolution with `stride` output rows for each input row; with `cut` a stream's first rows
    /// are missing.
    pub fn transposed(
        w: &Weights<'_, O>,
        channels: usize,
        out: usize,
        kernel: usize,
        (stride, cut): (usize, bool),
    ) -> Result<Self, LoadError> {
        let layout = WeightLayout::ConvTranspose1d { stride, cut };
        Ok(Self {
            weight: w.convolution("conv.weight", layout, [channels, out, kernel])?,
            bias: w.vector("conv.bias", out)?,
            channels,
            history: kernel / stride - 1,
            stride,
            cut: cut && kernel > stride,
        })
    }

    /// Applies a causal convolution.
    pub fn forward(&self, ops: &O, x: &O::T, tail: &mut O::State, streams: &StreamLevel<O::Index>) -> O::T {
        ops.conv1d_at(x, &self.weight, &self.bias, tail, streams)
    }

    /// Applies a transposed convolution; returns its rows and the streams at their new rate.
    pub fn upsample(
        &self,
        ops: &O,
        x: &O::T,
        tail: &mut O::State,
        streams: &StreamLevel<O::Index>,
    ) -> (O::T, StreamLevel<O::Index>) {
        let x = ops.conv_transpose1d_at(x, &self.weight, &self.bias, tail, streams);
        (x, streams.upsampled(self.stride, self.cut))
    }

    /// Creates the tails of `slots` streams.
    pub fn tail(&self, ops: &O, slots: usize) -> O::State {
        ops.state(StateSpec::Tail { slots, rows: self.history, columns: self.channels })
    }

    /// Bytes of one stream's tail.
    pub fn tail_bytes(&self) -> usize {
        self.history * self.channels * size_of::<f32>()
    }
}

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
    dwconv: Conv<O>,
    norm: (O::Weight, O::Weight),
    pwconv1: (O::Weight, O::Weight),
    pwconv2: (O::Weight, O::Weight),
    gamma: O::Weight,
}

/// Two convolutions, each after an activation, added to the input.
struct ResidualUnit<O: Ops> {
    act1: Snake<O>,
    conv1: Conv<O>,
    act2: Snake<O>,
    conv2: Conv<O>,
}

/// Block of the decoder: an activation, an upsampling convolution and residual units.
pub struct UpsampleBlock<O: Ops> {
    snake: Snake<O>,
    upsample: Conv<O>,
    units: Vec<ResidualUnit<O>>,
}

impl<O: Ops> ConvNeXt<O> {
    /// Loads a block over `channels` channels.
    pub fn load(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        let linear = |name: &str, out, input| -> Result<_, LoadError> {
            Ok((w.linear(&format!("{name}.weight"), out, input)?, w.vector(&format!("{name}.bias"), out)?))
        };
        Ok(Self {
            dwconv: Conv::depthwise(&w.at("dwconv"), channels)?,
            norm: (w.vector("norm.weight", channels)?, w.vector("norm.bias", channels)?),
            pwconv1: linear("pwconv1", 4 * channels, channels)?,
            pwconv2: linear("pwconv2", channels, 4 * channels)?,
            gamma: w.vector("gamma", channels)?,
        })
    }

    /// Depthwise convolution of the block.
    pub fn convolution(&self) -> &Conv<O> {
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
                conv1: Conv::causal(&w.at("conv1"), out, out, KERNEL, dilation)?,
                act2: Snake::load(&w.at("act2"), out)?,
                conv2: Conv::causal(&w.at("conv2"), out, out, 1, 1)?,
            })
        });
        Ok(Self {
            snake: Snake::load(&w.at("0"), input)?,
            upsample: Conv::transposed(&w.at("1"), input, out, 2 * rate, (rate, cut))?,
            units: units.collect::<Result<_, LoadError>>()?,
        })
    }

    /// Convolutions of the block, in the order of computation.
    pub fn convolutions(&self) -> impl Iterator<Item = &Conv<O>> {
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
