//! A transformer layer of an audio encoder: attention within segments of rows, in both directions or with a reach, layer
//! norms, a feed-forward block.

use repartee_kernels::{Activation, Ops, SegmentShape, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Epsilon of the layer norms, torch's default.
pub const NORM_EPS: f32 = 1e-5;

/// One transformer layer of an audio encoder.
pub struct AudioLayer<O: Ops> {
    attention_norm: (O::Weight, O::Weight),
    qkv: (O::Weight, O::Weight),
    out: (O::Weight, O::Weight),
    final_norm: (O::Weight, O::Weight),
    fc1: (O::Weight, O::Weight),
    fc2: (O::Weight, O::Weight),
    width: usize,
    heads: usize,
}

/// Sizes of a layer.
#[derive(Debug, Clone, Copy)]
pub struct AudioLayerShape {
    /// Width of a row.
    pub width: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Inner width of the feed-forward block.
    pub inner: usize,
    /// True if keys have a bias in the checkpoint.
    pub key_bias: bool,
}

/// Rows before and after a row that it attends to; `None` for all of its segment.
pub type Reach = (Option<usize>, Option<usize>);

/// Segments of rows, and the positions that a layer gives them.
pub struct LayerSegments<'a, O: Ops> {
    /// Lengths of the segments.
    pub lengths: &'a O::Index,
    /// Positions that rotate queries and keys, and their frequencies; `None` if the rows have their positions.
    pub rotary: Option<(&'a O::Batch, &'a O::Weight)>,
    /// Rows that a row attends to.
    pub reach: Reach,
}

/// Loads `NAME.weight` and `NAME.bias` of a linear layer.
pub fn linear<O: Ops>(
    w: &Weights<'_, O>,
    name: &str,
    out: usize,
    input: usize,
) -> Result<(O::Weight, O::Weight), LoadError> {
    Ok((w.linear(&format!("{name}.weight"), out, input)?, w.vector(&format!("{name}.bias"), out)?))
}

/// Loads `NAME.weight` and `NAME.bias` of a layer norm.
pub fn norm<O: Ops>(w: &Weights<'_, O>, name: &str, width: usize) -> Result<(O::Weight, O::Weight), LoadError> {
    Ok((w.vector(&format!("{name}.weight"), width)?, w.vector(&format!("{name}.bias"), width)?))
}

/// Loads biases of `width` numbers as one, with zeros for those that a checkpoint lacks.
pub fn biases<O: Ops>(w: &Weights<'_, O>, names: &[Option<&str>], width: usize) -> Result<O::Weight, LoadError> {
    let mut joined = Vec::with_capacity(names.len() * width);
    for name in names {
        match name {
            Some(name) => joined.extend(w.values(name, &[width])?),
            None => joined.resize(joined.len() + width, 0.0),
        }
    }
    w.made("joined bias", WeightLayout::Vector, &joined, &[joined.len()])
}

impl<O: Ops> AudioLayer<O> {
    /// Loads one layer below `w`.
    pub fn load(w: &Weights<'_, O>, shape: AudioLayerShape) -> Result<Self, LoadError> {
        let AudioLayerShape { width: d, heads, inner, key_bias } = shape;
        let a = w.at("self_attn");
        let bias = if key_bias {
            a.vectors(&[("q_proj.bias", d), ("k_proj.bias", d), ("v_proj.bias", d)])?
        } else {
            biases(&a, &[Some("q_proj.bias"), None, Some("v_proj.bias")], d)?
        };
        Ok(Self {
            attention_norm: norm(w, "self_attn_layer_norm", d)?,
            qkv: (a.linears(&[("q_proj.weight", d), ("k_proj.weight", d), ("v_proj.weight", d)], d)?, bias),
            out: linear(&a, "out_proj", d, d)?,
            final_norm: norm(w, "final_layer_norm", d)?,
            fc1: linear(w, "fc1", inner, d)?,
            fc2: linear(w, "fc2", d, inner)?,
            width: d,
            heads,
        })
    }

    /// Applies the layer; rows attend within their segment.
    pub fn forward(&self, ops: &O, x: O::T, segments: &LayerSegments<'_, O>) -> O::T {
        let projected = self.project(ops, &x, segments.rotary);
        let h = self.attend(ops, &projected, segments, self.heads);
        self.finish(ops, &h, &x)
    }

    /// Queries, keys and values of rows.
    pub fn project(&self, ops: &O, x: &O::T, rotary: Option<(&O::Batch, &O::Weight)>) -> [O::T; 3] {
        let d = self.width;
        let h = ops.layer_norm(x, &self.attention_norm.0, &self.attention_norm.1, NORM_EPS);
        let qkv = ops.linear(&h, &self.qkv.0, Some(&self.qkv.1));
        let (mut q, mut k, v) = (ops.narrow(&qkv, 0, d), ops.narrow(&qkv, d, d), ops.narrow(&qkv, 2 * d, d));
        if let Some((batch, frequencies)) = rotary {
            (q, k) = (ops.rotary(q, batch, frequencies), ops.rotary(k, batch, frequencies));
        }
        [q, k, v]
    }

    /// Attention of some heads, by their queries, keys and values.
    pub fn attend(&self, ops: &O, [q, k, v]: &[O::T; 3], segments: &LayerSegments<'_, O>, heads: usize) -> O::T {
        let (left, right) = segments.reach;
        ops.segment_attention_at(q, k, v, segments.lengths, SegmentShape { heads, left, right })
    }

    /// Completes the layer for the rows `x`, from their attention.
    pub fn finish(&self, ops: &O, attended: &O::T, x: &O::T) -> O::T {
        let x = ops.add(ops.linear(attended, &self.out.0, Some(&self.out.1)), x);
        let h = ops.layer_norm(&x, &self.final_norm.0, &self.final_norm.1, NORM_EPS);
        let h = ops.activation(ops.linear(&h, &self.fc1.0, Some(&self.fc1.1)), Activation::Gelu);
        ops.add(ops.linear(&h, &self.fc2.0, Some(&self.fc2.1)), &x)
    }
}
