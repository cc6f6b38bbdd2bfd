//! Attention of a layer over its own sequence.

use repartee_kernels::{Ops, SegmentShape, WeightLayout};

use super::shape::DecoderShape;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Weights of a layer's attention.
pub struct Attention<O: Ops> {
    /// True if the layer is one of [`DecoderShape::local`].
    pub is_local: bool,
    qkv: O::Weight,
    qkv_bias: Option<O::Weight>,
    qk_norm: Option<(O::Weight, O::Weight)>,
    out: O::Weight,
}

/// Loads the weights of a norm.
pub fn norm_weight<O: Ops>(
    w: &Weights<'_, O>,
    shape: &DecoderShape,
    name: &str,
    width: usize,
) -> Result<O::Weight, LoadError> {
    if !shape.style.offset_norms {
        return w.vector(name, width);
    }
    let weights: Vec<f32> = w.values(name, &[width])?.into_iter().map(|weight| 1.0 + weight).collect();
    w.made(name, WeightLayout::Vector, &weights, &[width])
}

impl<O: Ops> Attention<O> {
    /// Loads the attention of a layer, whose prefix is that of `w`.
    pub fn load(w: &Weights<'_, O>, shape: &DecoderShape, is_local: bool) -> Result<Self, LoadError> {
        let (hidden, a, names) = (shape.hidden, &shape.attention, &shape.names);
        if shape.rotates_neighbours {
            return Self::load_neighbours(w, shape, is_local);
        }
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let each: &[usize] = if names.qkv.len() == 1 { &[q + 2 * kv] } else { &[q, kv, kv] };
        let named = |leaf: &str| -> Vec<(String, usize)> {
            names.qkv.iter().zip(each).map(|(name, width)| (format!("{name}.{leaf}"), *width)).collect()
        };
        let (weights, biases) = (named("weight"), named("bias"));
        let [weights, biases] =
            [&weights, &biases].map(|names| names.iter().map(|(name, width)| (&name[..], *width)).collect::<Vec<_>>());
        let norm = |name: &str| norm_weight(w, shape, &format!("{name}.weight"), a.head_dim);
        Ok(Self {
            is_local,
            qkv: w.linears(&weights, hidden)?,
            qkv_bias: shape.qkv_bias.then(|| w.vectors(&biases)).transpose()?,
            qk_norm: if shape.qk_norm { Some((norm(names.qk_norms[0])?, norm(names.qk_norms[1])?)) } else { None },
            out: w.linear(&format!("{}.weight", names.out), hidden, q)?,
        })
    }

    /// Loads one matrix of queries, keys and values, which rotates neighbours, without a bias. The numbers of each head take
    /// the order in which the rotated ones are its halves; those of the values, too, and the columns of the result.
    fn load_neighbours(w: &Weights<'_, O>, shape: &DecoderShape, is_local: bool) -> Result<Self, LoadError> {
        let (hidden, a, names) = (shape.hidden, &shape.attention, &shape.names);
        let (heads, pairs) = (a.heads + 2 * a.kv_heads, a.head_dim / 2);
        let matrix = |name: &str, shape: [usize; 2], heads: usize| {
            w.swapped(&format!("{name}.weight"), WeightLayout::Linear, &shape, (heads, pairs, 2), &shape)
        };
        let norm = |name: &str| {
            let shape = [a.head_dim];
            w.swapped(&format!("{name}.weight"), WeightLayout::Vector, &shape, (1, pairs, 2), &shape)
        };
        Ok(Self {
            is_local,
            qkv: matrix(names.qkv[0], [heads * a.head_dim, hidden], heads)?,
            qkv_bias: None,
            qk_norm: if shape.qk_norm { Some((norm(names.qk_norms[0])?, norm(names.qk_norms[1])?)) } else { None },
            out: matrix(names.out, [hidden, a.heads * a.head_dim], hidden * a.heads)?,
        })
    }

    /// Attention of normed rows.
    pub fn forward(
        &self,
        ops: &O,
        x: &O::T,
        cache: &mut O::State,
        batch: &O::Batch,
        (shape, frequencies): (&DecoderShape, Option<&O::Weight>),
    ) -> O::T {
        let mut a = shape.attention;
        if let Some(local) = shape.local.filter(|_| self.is_local) {
            a.window = Some(local.window);
        }
        let [queries, keys, values] = self.project(ops, x, batch, (shape, frequencies));
        ops.linear(&ops.attention(&queries, &keys, &values, cache, batch, a), &self.out, None)
    }

    /// Attention of normed rows within consecutive segments, in both directions or causal. As many heads have keys as queries.
    pub fn forward_segments(
        &self,
        ops: &O,
        x: &O::T,
        (batch, segments, causal): (&O::Batch, &O::Index, bool),
        (shape, frequencies): (&DecoderShape, Option<&O::Weight>),
    ) -> O::T {
        let [queries, keys, values] = self.project(ops, x, batch, (shape, frequencies));
        let right = causal.then_some(0);
        let seen = SegmentShape { heads: shape.attention.heads, left: None, right };
        ops.linear(&ops.segment_attention_at(&queries, &keys, &values, segments, seen), &self.out, None)
    }

    /// Queries, keys and values of normed rows, rotated and scaled.
    fn project(
        &self,
        ops: &O,
        x: &O::T,
        batch: &O::Batch,
        (shape, frequencies): (&DecoderShape, Option<&O::Weight>),
    ) -> [O::T; 3] {
        let h = ops.linear(x, &self.qkv, self.qkv_bias.as_ref());
        let norms = self.qk_norm.as_ref().map(|(q_norm, k_norm)| (q_norm, k_norm));
        let [mut queries, keys, values] = ops.split_heads(&h, norms, shape.eps, batch, frequencies, shape.attention);
        let scaling = if self.is_local { 1.0 } else { shape.scaling.score_factor() };
        let factor = scaling * shape.style.score_factor.unwrap_or(1.0);
        if factor != 1.0 {
            queries = ops.scale_all(queries, factor);
        }
        [queries, keys, values]
    }
}
