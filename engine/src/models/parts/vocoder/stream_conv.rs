//! A convolution over streams with carried tails, causal or transposed.

use repartee_kernels::{Ops, StateSpec, StreamLevel, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Convolution over streams.
pub struct StreamConv<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    channels: usize,
    history: usize,
    /// Output rows for each input row.
    stride: usize,
    /// True if a stream's first row yields nothing.
    cut: bool,
}

impl<O: Ops> StreamConv<O> {
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

    /// Loads a causal convolution of each channel alone.
    pub fn depthwise(w: &Weights<'_, O>, channels: usize, kernel: usize) -> Result<Self, LoadError> {
        Ok(Self {
            weight: w.convolution("conv.weight", WeightLayout::Depthwise, [channels, 1, kernel])?,
            bias: w.vector("conv.bias", channels)?,
            channels,
            history: kernel - 1,
            stride: 1,
            cut: false,
        })
    }

    /// Loads a transposed convolution with `stride` output rows for each input row; with `cut` a stream's first rows
    /// are missing. Its tensors stand right below `w`.
    pub fn transposed(
        w: &Weights<'_, O>,
        channels: usize,
        out: usize,
        kernel: usize,
        (stride, cut): (usize, bool),
    ) -> Result<Self, LoadError> {
        let layout = WeightLayout::ConvTranspose1d { stride, cut };
        Ok(Self {
            weight: w.convolution("weight", layout, [channels, out, kernel])?,
            bias: w.vector("bias", out)?,
            channels,
            history: kernel / stride - 1,
            stride,
            cut: cut && kernel > stride,
        })
    }

    /// Loads a transposed convolution of each channel alone, without a bias, whose kernel is twice its stride. It is kept as
    /// one of all channels, with zeros between them.
    pub fn transposed_each(w: &Weights<'_, O>, channels: usize, stride: usize) -> Result<Self, LoadError> {
        let kernel = 2 * stride;
        let taps = w.values("weight", &[channels, 1, kernel])?;
        let mut all = vec![0.0; channels * channels * kernel];
        for (channel, taps) in taps.chunks_exact(kernel).enumerate() {
            all[channel * (channels + 1) * kernel..][..kernel].copy_from_slice(taps);
        }
        let layout = WeightLayout::ConvTranspose1d { stride, cut: false };
        Ok(Self {
            weight: w.made("weight", layout, &all, &[channels, channels, kernel])?,
            bias: w.made("bias", WeightLayout::Vector, &vec![0.0; channels], &[channels])?,
            channels,
            history: 1,
            stride,
            cut: false,
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
