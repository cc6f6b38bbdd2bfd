//! Centred convolutions within segments of rows, and transposed ones computed by them.

use std::ops::ControlFlow::{self, Break, Continue};

use repartee_kernels::{Ops, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::pieces::ranges;
use crate::models::parts::weights::Weights;

/// Convolution centred on its row.
pub struct SegmentConv<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    /// Multiplications of a row.
    row_work: usize,
}

/// Convolution over one segment that is computed some rows at a time.
pub struct PartialConv<O: Ops> {
    x: O::T,
    /// The result, with the rows that are done.
    out: Option<O::T>,
    /// Ranges of rows that are done.
    done: usize,
}

impl<O: Ops> PartialConv<O> {
    /// Begins a convolution over `x`.
    pub fn new(x: O::T) -> Self {
        Self { x, out: None, done: 0 }
    }

    /// Computes rows with at most about `most` multiplications; returns the result once it is whole.
    pub fn step(mut self, ops: &O, conv: &SegmentConv<O>, most: usize) -> ControlFlow<O::T, Self> {
        let rows = ops.rows(&self.x);
        let mut left = ranges(rows, rows * conv.row_work, most).skip(self.done);
        let range = left.next().unwrap_or(0..rows);
        let out = ops.segment_conv1d_rows(self.out, &self.x, &conv.weight, &conv.bias, range);
        match left.next() {
            None => Break(out),
            Some(_) => {
                (self.out, self.done) = (Some(out), self.done + 1);
                Continue(self)
            }
        }
    }
}

impl<O: Ops> SegmentConv<O> {
    /// Loads `weight` and `bias`, as the file has them.
    pub fn load(
        w: &Weights<'_, O>,
        out: usize,
        input: usize,
        kernel: usize,
        dilation: usize,
    ) -> Result<Self, LoadError> {
        let weight = w.convolution("weight", WeightLayout::Conv1d { dilation }, [out, input, kernel])?;
        Ok(Self { weight, bias: w.vector("bias", out)?, row_work: out * input * kernel })
    }

    /// Loads `weight` without a bias.
    pub fn load_without_bias(w: &Weights<'_, O>, out: usize, input: usize, kernel: usize) -> Result<Self, LoadError> {
        let weight = w.convolution("weight", WeightLayout::Conv1d { dilation: 1 }, [out, input, kernel])?;
        let bias = w.made("bias", WeightLayout::Vector, &vec![0.0; out], &[out])?;
        Ok(Self { weight, bias, row_work: out * input * kernel })
    }

    /// Loads a convolution whose weight may be normed: a direction and a length of it ([`Weights::normed`]).
    pub fn load_normed(
        w: &Weights<'_, O>,
        out: usize,
        input: usize,
        kernel: usize,
        dilation: usize,
    ) -> Result<Self, LoadError> {
        let shape = [out, input, kernel];
        let weight = w.made_convolution("weight", dilation, &w.normed("weight", &shape)?, shape)?;
        Ok(Self { weight, bias: w.vector("bias", out)?, row_work: out * input * kernel })
    }

    /// Loads a causal convolution, as [`SegmentConv::load_normed`]. It is kept as a centred one with zeros for the rows after its
    /// own, which takes twice the multiplications.
    pub fn load_causal(
        w: &Weights<'_, O>,
        out: usize,
        input: usize,
        kernel: usize,
        dilation: usize,
    ) -> Result<Self, LoadError> {
        let (taps, shape) = (w.normed("weight", &[out, input, kernel])?, [out, input, 2 * kernel - 1]);
        let mut centred = Vec::with_capacity(out * input * shape[2]);
        for taps in taps.chunks_exact(kernel) {
            centred.extend_from_slice(taps);
            centred.resize(centred.len() + kernel - 1, 0.0);
        }
        let weight = w.made_convolution("weight", dilation, &centred, shape)?;
        Ok(Self { weight, bias: w.vector("bias", out)?, row_work: out * input * shape[2] })
    }

    /// Makes a convolution of each channel alone from its taps, `[channels, kernel]`; the bias is loaded.
    pub fn depthwise(
        w: &Weights<'_, O>,
        taps: &[f32],
        channels: usize,
        (kernel, dilation): (usize, usize),
    ) -> Result<Self, LoadError> {
        let layout = WeightLayout::GroupedConv1d { dilation, groups: channels };
        let weight = w.made("weight", layout, taps, &[channels, 1, kernel])?;
        Ok(Self { weight, bias: w.vector("bias", channels)?, row_work: channels * kernel })
    }

    /// Computes it within `segments`, with zeros beyond their ends.
    pub fn forward(&self, ops: &O, x: &O::T, segments: &O::Index) -> O::T {
        ops.segment_conv1d_at(x, &self.weight, &self.bias, segments)
    }
}

/// Transposed convolution, computed as a centred one with `rate` output rows for each input row.
pub struct SegmentUpsample<O: Ops> {
    conv: SegmentConv<O>,
    out: usize,
}

/// Rows cut off each end of a transposed convolution's result, so that each input row becomes `rate` rows.
pub fn cut(kernel: usize, rate: usize) -> usize {
    (kernel - rate) / 2
}

impl<O: Ops> SegmentUpsample<O> {
    /// Loads `weight` and `bias`, as the file has them.
    pub fn load(w: &Weights<'_, O>, out: usize, input: usize, kernel: usize, rate: usize) -> Result<Self, LoadError> {
        Self::of(w, &w.values("weight", &[input, out, kernel])?, out, (kernel, rate, cut(kernel, rate)))
    }

    /// Loads one whose weight may be normed, as [`SegmentConv::load_normed`].
    pub fn load_normed(
        w: &Weights<'_, O>,
        out: usize,
        input: usize,
        kernel: usize,
        rate: usize,
    ) -> Result<Self, LoadError> {
        Self::of(w, &w.normed("weight", &[input, out, kernel])?, out, (kernel, rate, cut(kernel, rate)))
    }

    /// Loads a causal one, as [`SegmentConv::load_normed`]: only rows at the end are cut off.
    pub fn load_causal(
        w: &Weights<'_, O>,
        out: usize,
        input: usize,
        kernel: usize,
        rate: usize,
    ) -> Result<Self, LoadError> {
        Self::of(w, &w.normed("weight", &[input, out, kernel])?, out, (kernel, rate, 0))
    }

    /// Arranges a weight `[input, out, kernel]`, of whose result `cut` rows are cut off at its beginning; the bias is loaded.
    fn of(
        w: &Weights<'_, O>,
        values: &[f32],
        out: usize,
        (kernel, rate, cut): (usize, usize, usize),
    ) -> Result<Self, LoadError> {
        let input = values.len() / (out * kernel);
        // The first result of a row uses its tap `cut`, and later taps of rows before it; the last result likewise uses
        // rows after it.
        let beside = cut.div_ceil(rate).max((kernel - 1 - cut) / rate);
        let taps = 2 * beside + 1;
        let mut centred = vec![0.0; rate * out * input * taps];
        for phase in 0..rate {
            for tap in 0..taps {
                // Tap `tap` reads the row `tap - beside` rows later; results of consecutive rows begin `rate` apart.
                let Some(from) = (phase + cut + rate * beside).checked_sub(rate * tap).filter(|&from| from < kernel)
                else {
                    continue;
                };
                for o in 0..out {
                    for channel in 0..input {
                        centred[((phase * out + o) * input + channel) * taps + tap] =
                            values[(channel * out + o) * kernel + from];
                    }
                }
            }
        }
        let (layout, shape) = (WeightLayout::Conv1d { dilation: 1 }, [rate * out, input, taps]);
        let bias = w.values("bias", &[out])?.repeat(rate);
        let conv = SegmentConv {
            weight: w.made("upsample.weight", layout, &centred, &shape)?,
            bias: w.made("upsample.bias", WeightLayout::Vector, &bias, &[rate * out])?,
            row_work: rate * out * input * taps,
        };
        Ok(Self { conv, out })
    }

    /// Computes it within `segments` of `x`.
    pub fn forward(&self, ops: &O, x: &O::T, segments: &O::Index) -> O::T {
        ops.reshape(self.conv.forward(ops, x, segments), self.out)
    }

    /// Computes a part of it over one segment, as [`PartialConv::step`].
    pub fn step(&self, ops: &O, work: PartialConv<O>, most: usize) -> ControlFlow<O::T, PartialConv<O>> {
        match work.step(ops, &self.conv, most) {
            Break(rows) => Break(ops.reshape(rows, self.out)),
            Continue(work) => Continue(work),
        }
    }
}
