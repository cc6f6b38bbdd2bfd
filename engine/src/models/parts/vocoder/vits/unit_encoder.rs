//! `TextEncoder` over units: layers of attention with learnt keys and values of near distances, and of convolutions. Scores and
//! sums of attention are computed on the host: a block has some hundred rows at most.

use repartee_kernels::{Activation, Ops, WeightLayout};

use super::config::{SYMBOLS, VitsConfig};
use super::layers::{Affine, EPSILON, linear, norm, pointwise};
use crate::models::load_error::LoadError;
use crate::models::parts::lists::{list, one_segment};
use crate::models::parts::vocoder::segment_conv::SegmentConv;
use crate::models::parts::weights::Weights;

/// Distance up to which rows have keys and values of their own.
const REACH: usize = 4;

/// Table of units, layers, and the matrix behind them, with loaded weights.
pub struct UnitEncoder<O: Ops> {
    embedding: O::Weight,
    width: usize,
    heads: usize,
    layers: Vec<Layer<O>>,
    projection: Affine<O>,
}

struct Layer<O: Ops> {
    /// Queries, keys and values.
    qkv: Affine<O>,
    /// Keys and values of the distances, `[2 * REACH + 1, head]`.
    near: [Vec<f32>; 2],
    out: Affine<O>,
    norms: [Affine<O>; 2],
    convs: [SegmentConv<O>; 2],
}

impl<O: Ops> UnitEncoder<O> {
    /// Loads the encoder; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &VitsConfig) -> Result<Self, LoadError> {
        let (width, heads) = (config.hidden, config.heads);
        let layer = |at: usize| {
            let list = |name: &str| w.at("encoder").at(name).at(at);
            let (attention, convs) = (list("attn_layers"), list("ffn_layers"));
            let (inner, taps) = config.inner;
            let near = |name: &str| attention.values(name, &[1, 2 * REACH + 1, width / heads]);
            Ok(Layer {
                qkv: joined(&attention, width)?,
                near: [near("emb_rel_k")?, near("emb_rel_v")?],
                out: pointwise(&attention.at("conv_o"), width, width)?,
                norms: [norm(&list("norm_layers_1"), width)?, norm(&list("norm_layers_2"), width)?],
                convs: [
                    SegmentConv::load_normed(&convs.at("conv_1"), inner, width, taps, 1)?,
                    SegmentConv::load_normed(&convs.at("conv_2"), width, inner, taps, 1)?,
                ],
            })
        };
        Ok(Self {
            embedding: w.table("emb.weight", SYMBOLS + config.units, width)?,
            width,
            heads,
            layers: (0..config.layers).map(layer).collect::<Result<_, LoadError>>()?,
            projection: pointwise(&w.at("proj"), 2 * config.latent, width)?,
        })
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Rows of units before the first layer.
    pub fn embedded(&self, ops: &O, units: &[u32]) -> O::T {
        // Symbols are fewer than ids can count.
        let ids: Vec<u32> = units.iter().map(|unit| unit + SYMBOLS as u32).collect();
        ops.scale_all(ops.embed_at(&self.embedding, &list(ops, &ids)), (self.width as f32).sqrt())
    }

    /// Applies a layer.
    pub fn layer(&self, ops: &O, at: usize, x: &O::T) -> O::T {
        let (layer, rows) = (&self.layers[at], ops.rows(x));
        let qkv = ops.read(&linear(ops, x, &layer.qkv));
        let seen = ops.tensor(attended(&qkv, (self.width, self.heads), &layer.near), self.width);
        let x = normed(ops, ops.add(linear(ops, &seen, &layer.out), x), &layer.norms[0]);
        let segment = one_segment(ops, rows);
        let inner = ops.activation(layer.convs[0].forward(ops, &x, &segment), Activation::Relu);
        normed(ops, ops.add(layer.convs[1].forward(ops, &inner, &segment), &x), &layer.norms[1])
    }

    /// Means of the latents of each row's frames, and logarithms of their deviations.
    pub fn stats(&self, ops: &O, x: &O::T) -> O::T {
        linear(ops, x, &self.projection)
    }
}

fn normed<O: Ops>(ops: &O, x: O::T, (weight, bias): &Affine<O>) -> O::T {
    ops.layer_norm(&x, weight, bias, EPSILON)
}

/// Loads the matrices to queries, keys and values as one.
fn joined<O: Ops>(w: &Weights<'_, O>, width: usize) -> Result<Affine<O>, LoadError> {
    let (mut matrix, mut bias) = (Vec::new(), Vec::new());
    for name in ["conv_q", "conv_k", "conv_v"] {
        let w = w.at(name);
        matrix.extend(w.normed("weight", &[width, width, 1])?);
        bias.extend(w.values("bias", &[width])?);
    }
    let matrix = w.made("conv_qkv.weight", WeightLayout::Linear, &matrix, &[3 * width, width])?;
    Ok((matrix, w.made("conv_qkv.bias", WeightLayout::Vector, &bias, &[3 * width])?))
}

/// Attention of rows of queries, keys and values, `[rows, 3 * width]`, with keys and values of near distances.
fn attended(qkv: &[f32], (width, heads): (usize, usize), near: &[Vec<f32>; 2]) -> Vec<f32> {
    let (rows, head) = (qkv.len() / (3 * width), width / heads);
    let part = |row: usize, kind: usize, at: usize| &qkv[row * 3 * width + kind * width + at * head..][..head];
    // Entry of a distance, which is that of the later row's place less the other one's.
    let entry = |row: usize, other: usize| (other + REACH).checked_sub(row).filter(|&at| at <= 2 * REACH);
    let of = |table: usize, at: usize| &near[table][at * head..][..head];
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let scale = (head as f32).sqrt().recip();
    let mut found = vec![0.0; rows * width];
    let mut scores = vec![0.0; rows];
    for at in 0..heads {
        for row in 0..rows {
            let query = part(row, 0, at);
            for (other, score) in scores.iter_mut().enumerate() {
                let own = entry(row, other).map_or(0.0, |entry| dot(query, of(0, entry)));
                *score = (dot(query, part(other, 1, at)) + own) * scale;
            }
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().for_each(|score| *score = (*score - most).exp());
            let sum: f32 = scores.iter().sum();
            let to = &mut found[row * width + at * head..][..head];
            for (other, score) in scores.iter().enumerate() {
                let weight = score / sum;
                let mut add = |values: &[f32]| to.iter_mut().zip(values).for_each(|(to, value)| *to += weight * value);
                add(part(other, 2, at));
                if let Some(entry) = entry(row, other) {
                    add(of(1, entry));
                }
            }
        }
    }
    found
}
