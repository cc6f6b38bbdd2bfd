//! Attention with relative positions, `RelPositionMultiHeadAttention` of NeMo with biases of its own: a score is
//! `(q + u) k + (q + v) P e(i - j)`, where `e` has sines and cosines of the distance.
//!
//! Sines and cosines of a difference are products of those of both positions. So the second part is a product of two rows,
//! too: `Pᵀ (q + v)`, rotated by the query's position, and constants rotated by the key's. Each head gets these numbers
//! behind its own, and plain attention over the longer heads has the scores.

use std::ops::Range;

use repartee_kernels::{Ops, SegmentShape, WeightLayout};

use super::shape::ConformerShape;
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::linear;
use crate::models::parts::weights::Weights;

/// Base of the wavelengths of positions.
const THETA: f32 = 10_000.0;

/// Weights of a layer's attention.
pub struct RelativeAttention<O: Ops> {
    /// To the queries, with `u` in their bias.
    query: (O::Weight, O::Weight),
    key: (O::Weight, O::Weight),
    value: (O::Weight, O::Weight),
    /// For each head, to the numbers of a query that meet positions.
    positions: Vec<(O::Weight, O::Weight)>,
    out: (O::Weight, O::Weight),
    width: usize,
    heads: usize,
}

/// Wavelengths of positions, shared by all layers.
pub struct PositionTable<O: Ops> {
    frequencies: O::Weight,
    /// One row: a one for each cosine, a zero for each sine.
    start: O::Weight,
}

/// Positions of a step's rows.
pub struct Positions<'a, O: Ops> {
    /// Rows with their positions.
    pub batch: &'a O::Batch,
    /// Lengths of the segments that attend to themselves.
    pub segments: &'a O::Index,
    /// Cosines and sines of each row's position.
    pub keys: &'a O::T,
    /// Frequencies of [`PositionTable`].
    pub frequencies: &'a O::Weight,
}

impl<O: Ops> PositionTable<O> {
    /// Creates the table for rows of `width` numbers.
    pub fn new(w: &Weights<'_, O>, width: usize) -> Result<Self, LoadError> {
        let start: Vec<f32> = (0..width).map(|at| if at < width / 2 { 1.0 } else { 0.0 }).collect();
        Ok(Self {
            frequencies: w.rotary(width, THETA)?,
            start: w.made("start of positions", WeightLayout::Table, &start, &[1, width])?,
        })
    }

    /// Frequencies of the positions.
    pub fn frequencies(&self) -> &O::Weight {
        &self.frequencies
    }

    /// Cosines and sines of each row's position; `zeros` has an id for each row, all 0.
    pub fn keys(&self, ops: &O, zeros: &O::Index, batch: &O::Batch) -> O::T {
        ops.rotary(ops.embed_at(&self.start, zeros), batch, &self.frequencies)
    }
}

impl<O: Ops> RelativeAttention<O> {
    /// Loads `self_attn`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, shape: &ConformerShape) -> Result<Self, LoadError> {
        let (width, heads) = (shape.width, shape.heads);
        let head = width / heads;
        let bias = |name: &str| w.values(name, &[heads, head]);
        let (u, v) = (bias("pos_bias_u")?, bias("pos_bias_v")?);
        let of_query: Vec<f32> = w.values("linear_q.bias", &[width])?.iter().zip(&u).map(|(b, u)| b + u).collect();
        let matrix = w.values("linear_pos.weight", &[width, width])?;
        let positions = (0..heads).map(|at| {
            let rows = at * head..(at + 1) * head;
            let joined = turned(&matrix[rows.start * width..rows.end * width], width);
            // The queries have `u` already.
            let moved: Vec<f32> = rows.clone().map(|row| v[row] - u[row]).collect();
            let bias: Vec<f32> =
                joined.chunks_exact(head).map(|row| row.iter().zip(&moved).map(|(a, b)| a * b).sum()).collect();
            Ok((
                w.made("linear_pos.weight", WeightLayout::Linear, &joined, &[width, head])?,
                w.made("pos_bias_v", WeightLayout::Vector, &bias, &[width])?,
            ))
        });
        Ok(Self {
            query: (
                w.linear("linear_q.weight", width, width)?,
                w.made("pos_bias_u", WeightLayout::Vector, &of_query, &[width])?,
            ),
            key: linear(w, "linear_k", width, width)?,
            value: linear(w, "linear_v", width, width)?,
            positions: positions.collect::<Result<_, LoadError>>()?,
            out: linear(w, "linear_out", width, width)?,
            width,
            heads,
        })
    }

    /// Queries, keys and values of normed rows.
    pub fn project(&self, ops: &O, x: &O::T) -> [O::T; 3] {
        [&self.query, &self.key, &self.value].map(|(weight, bias)| ops.linear(x, weight, Some(bias)))
    }

    /// Attention of some heads within the rows' segments: of their queries, keys and values, to their columns.
    pub fn attend(&self, ops: &O, [q, k, v]: &[O::T; 3], heads: Range<usize>, at: &Positions<'_, O>) -> O::T {
        let head = self.width / self.heads;
        let of_head = |x: &O::T, number: usize| ops.narrow(x, number * head, head);
        // The kernel divides by the root of the longer head's width.
        let by = ((head + self.width) as f32 / head as f32).sqrt();
        let met: Vec<O::T> = self.positions[heads.clone()]
            .iter()
            .enumerate()
            .map(|(number, (weight, bias))| ops.linear(&of_head(q, number), weight, Some(bias)))
            .collect();
        let met = ops.rotary(ops.concat_columns(&met.iter().collect::<Vec<_>>()), at.batch, at.frequencies);
        let longer = |x: &O::T, positions: &dyn Fn(usize) -> O::T| {
            let parts: Vec<O::T> =
                (0..heads.len()).flat_map(|number| [of_head(x, number), positions(number)]).collect();
            ops.concat_columns(&parts.iter().collect::<Vec<_>>())
        };
        let q = longer(q, &|number| ops.narrow(&met, number * self.width, self.width));
        let q = ops.scale_all(q, by);
        let [k, v] = [k, v].map(|x| longer(x, &|_| ops.copy(at.keys)));
        let h = ops.segment_attention_at(&q, &k, &v, at.segments, SegmentShape::whole(heads.len()));
        // The values' further numbers have no use.
        ops.reshape(ops.narrow(&ops.reshape(h, head + self.width), 0, head), heads.len() * head)
    }

    /// Result of the attention of all heads.
    pub fn out(&self, ops: &O, attended: &O::T) -> O::T {
        ops.linear(attended, &self.out.0, Some(&self.out.1))
    }

    /// Attention of normed rows within their segments.
    pub fn forward(&self, ops: &O, x: &O::T, at: &Positions<'_, O>) -> O::T {
        self.out(ops, &self.attend(ops, &self.project(ops, x), 0..self.heads, at))
    }
}

/// Turns a head's matrix of positions, `[head, width]` over sines and cosines in turn, into one from a query to the numbers
/// that are rotated, `[width, head]`: those that meet the cosines, then, negated, those that meet the sines.
fn turned(matrix: &[f32], width: usize) -> Vec<f32> {
    let column = |at: usize, by: f32| matrix.iter().skip(at).step_by(width).map(move |number| by * number);
    let cosines = (0..width / 2).flat_map(|at| column(2 * at + 1, 1.0));
    cosines.chain((0..width / 2).flat_map(|at| column(2 * at, -1.0))).collect()
}
