//! A layer, `ConformerLayer` of NeMo: half a feed-forward block, attention, a convolution over time, and another half.

use std::ops::Range;

use repartee_kernels::{Activation, Ops, WeightLayout};

use super::attention::{Positions, RelativeAttention};
use super::shape::ConformerShape;
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{NORM_EPS, linear, norm};
use crate::models::parts::weights::Weights;

/// Added to the variance in the norm over a batch.
const BATCH_NORM_EPS: f32 = 1e-5;

type Linear<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

/// A feed-forward block: its norm, and two matrices.
struct Block<O: Ops> {
    norm: Linear<O>,
    up: Linear<O>,
    down: Linear<O>,
}

impl<O: Ops> Block<O> {
    fn load(w: &Weights<'_, O>, number: usize, shape: &ConformerShape) -> Result<Self, LoadError> {
        let inner = w.at(format_args!("feed_forward{number}"));
        Ok(Self {
            norm: norm(w, &format!("norm_feed_forward{number}"), shape.width)?,
            up: linear(&inner, "linear1", shape.inner, shape.width)?,
            down: linear(&inner, "linear2", shape.width, shape.inner)?,
        })
    }

    /// Adds half of the block's result to the rows.
    fn forward(&self, ops: &O, x: O::T) -> O::T {
        let h = ops.layer_norm(&x, &self.norm.0, &self.norm.1, NORM_EPS);
        let h = ops.activation(ops.linear(&h, &self.up.0, Some(&self.up.1)), Activation::Silu);
        ops.add(ops.scale_all(ops.linear(&h, &self.down.0, Some(&self.down.1)), 0.5), &x)
    }
}

/// The convolution over time, between gated and plain matrices.
struct TimeConvolution<O: Ops> {
    gated: Linear<O>,
    /// Each channel by itself, with the norm over a batch in it.
    taps: Linear<O>,
    out: Linear<O>,
}

impl<O: Ops> TimeConvolution<O> {
    fn load(w: &Weights<'_, O>, shape: &ConformerShape) -> Result<Self, LoadError> {
        let (width, taps) = (shape.width, shape.taps);
        let pointwise = |name: &str, out: usize| -> Result<Linear<O>, LoadError> {
            let w = w.at(name);
            let (sizes, layout) = ([out, width, 1], WeightLayout::Linear);
            Ok((w.swapped("weight", layout, &sizes, (out, 1, width), &[out, width])?, w.vector("bias", out)?))
        };
        let norm = w.at("batch_norm");
        let vector = |name: &str| norm.values(name, &[width]);
        let (scale, shift) = (vector("weight")?, vector("bias")?);
        let (mean, variance) = (vector("running_mean")?, vector("running_var")?);
        let depthwise = w.at("depthwise_conv");
        let (mut weight, mut bias) =
            (depthwise.values("weight", &[width, 1, taps])?, depthwise.values("bias", &[width])?);
        for (channel, (taps, bias)) in weight.chunks_exact_mut(taps).zip(&mut bias).enumerate() {
            let by = scale[channel] / (variance[channel] + BATCH_NORM_EPS).sqrt();
            taps.iter_mut().for_each(|tap| *tap *= by);
            *bias = (*bias - mean[channel]) * by + shift[channel];
        }
        let layout = WeightLayout::GroupedConv1d { dilation: 1, groups: width };
        Ok(Self {
            gated: pointwise("pointwise_conv1", 2 * width)?,
            taps: (
                w.made("depthwise_conv.weight", layout, &weight, &[width, 1, taps])?,
                w.made("depthwise_conv.bias", WeightLayout::Vector, &bias, &[width])?,
            ),
            out: pointwise("pointwise_conv2", width)?,
        })
    }

    fn forward(&self, ops: &O, x: &O::T, segments: &O::Index) -> O::T {
        let h = ops.sigmoid_mul(&ops.linear(x, &self.gated.0, Some(&self.gated.1)));
        let h = ops.segment_conv1d_at(&h, &self.taps.0, &self.taps.1, segments);
        ops.linear(&ops.activation(h, Activation::Silu), &self.out.0, Some(&self.out.1))
    }
}

/// A layer of the encoder.
pub struct ConformerLayer<O: Ops> {
    blocks: [Block<O>; 2],
    attention: (Linear<O>, RelativeAttention<O>),
    convolution: (Linear<O>, TimeConvolution<O>),
    norm: Linear<O>,
}

impl<O: Ops> ConformerLayer<O> {
    /// Loads a layer; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, shape: &ConformerShape) -> Result<Self, LoadError> {
        let normed = |name: &str| norm(w, name, shape.width);
        Ok(Self {
            blocks: [Block::load(w, 1, shape)?, Block::load(w, 2, shape)?],
            attention: (normed("norm_self_att")?, RelativeAttention::load(&w.at("self_attn"), shape)?),
            convolution: (normed("norm_conv")?, TimeConvolution::load(&w.at("conv"), shape)?),
            norm: normed("norm_out")?,
        })
    }

    /// The first block, and queries, keys and values of its rows. Each row is independent of the others.
    pub fn project(&self, ops: &O, x: O::T) -> (O::T, [O::T; 3]) {
        let x = self.blocks[0].forward(ops, x);
        let (norm, attention) = &self.attention;
        let projected = attention.project(ops, &normed(ops, &x, norm));
        (x, projected)
    }

    /// Attention of some heads; see [`RelativeAttention::attend`].
    pub fn attend(&self, ops: &O, projected: &[O::T; 3], heads: Range<usize>, at: &Positions<'_, O>) -> O::T {
        self.attention.1.attend(ops, projected, heads, at)
    }

    /// The rest of the layer: `x` has the rows of the first block, `attended` those of all heads. A row depends on those that
    /// the convolution sees.
    pub fn finish(&self, ops: &O, attended: &O::T, x: &O::T, segments: &O::Index) -> O::T {
        let x = ops.add(self.attention.1.out(ops, attended), x);
        let (norm, convolution) = &self.convolution;
        let x = ops.add(convolution.forward(ops, &normed(ops, &x, norm), segments), &x);
        normed(ops, &self.blocks[1].forward(ops, x), &self.norm)
    }

    /// Runs rows through the layer, which has `heads` attention heads.
    pub fn forward(&self, ops: &O, x: O::T, heads: usize, at: &Positions<'_, O>) -> O::T {
        let (x, projected) = self.project(ops, x);
        self.finish(ops, &self.attend(ops, &projected, 0..heads, at), &x, at.segments)
    }
}

/// Applies a norm.
fn normed<O: Ops>(ops: &O, x: &O::T, norm: &Linear<O>) -> O::T {
    ops.layer_norm(x, &norm.0, &norm.1, NORM_EPS)
}
