//! Layers in which all rows of a sequence see each other: norms by the root mean square, all heads rotated, a GELU between
//! two matrices; and a norm and a matrix after the last one.

use repartee_kernels::row_spec::{BatchSection, SegmentSection};
use repartee_kernels::{Activation, Ops, RowSpec, SegmentShape, SequenceRows, SpecLayout, WeightLayout};

use super::config::PatchLayersConfig;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Epsilon added to the mean square in norms.
const EPS: f32 = 1e-6;
/// Base of the rotary wavelengths, which the published code fixes.
const THETA: f32 = 10_000.0;

/// A matrix and its bias.
pub type Affine<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

/// Loads a matrix and its bias below `w`.
pub fn affine<O: Ops>(w: &Weights<'_, O>, name: &str, out: usize, input: usize) -> Result<Affine<O>, LoadError> {
    let w = w.at(name);
    Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
}

struct PatchLayer<O: Ops> {
    norms: [O::Weight; 2],
    /// Queries, keys and values. The numbers of each head of queries and keys are ordered for the rotation of halves.
    qkv: [Affine<O>; 3],
    qk_norms: Option<[O::Weight; 2]>,
    out: Affine<O>,
    up: Affine<O>,
    down: Affine<O>,
}

/// A stack of layers with what follows it.
pub struct PatchLayers<O: Ops> {
    heads: usize,
    layers: Vec<PatchLayer<O>>,
    frequencies: O::Weight,
    last_norm: O::Weight,
    last: Affine<O>,
}

/// Sections of the row spec for sequences of one length.
pub struct PatchSequences {
    length: usize,
    batch: BatchSection,
    segments: SegmentSection,
}

impl PatchSequences {
    /// Reserves sections for `count` sequences of `length` rows.
    pub fn layout(layout: &mut SpecLayout, count: usize, length: usize) -> Self {
        let rows = count * length;
        Self { length, batch: layout.batch(rows, count, 1), segments: layout.segments(rows, count) }
    }

    /// Fills a row spec with `count` sequences.
    pub fn fill(&self, spec: &mut RowSpec, count: usize) {
        let sequence = SequenceRows { table: &[0], position: 0, rows: self.length };
        spec.set_batch(self.batch, &vec![sequence; count], 0);
        spec.set_segments(self.segments, &vec![self.length; count]);
    }
}

impl<O: Ops> PatchLayer<O> {
    fn load(w: &Weights<'_, O>, config: &PatchLayersConfig) -> Result<Self, LoadError> {
        let (width, head) = (config.hidden_size, config.head());
        let attention = w.at("attn");
        // The checkpoint rotates neighbours.
        let turned = |name: &str| -> Result<Affine<O>, LoadError> {
            let (w, order) = (attention.at(name), (config.num_heads, head / 2, 2));
            let (matrix, bias) = ([width, width], [width]);
            let matrix = w.swapped("weight", WeightLayout::Linear, &matrix, order, &matrix)?;
            Ok((matrix, w.swapped("bias", WeightLayout::Vector, &bias, order, &bias)?))
        };
        let norm = |name: &str| {
            let order = (1, head / 2, 2);
            attention.swapped(&format!("{name}.weight"), WeightLayout::Vector, &[head], order, &[head])
        };
        Ok(Self {
            norms: [w.vector("norm1.weight", width)?, w.vector("norm2.weight", width)?],
            qkv: [turned("to_q")?, turned("to_k")?, affine(&attention, "to_v", width, width)?],
            qk_norms: if config.qk_norm { Some([norm("q_norm")?, norm("k_norm")?]) } else { None },
            out: affine(&attention, "to_out.0", width, width)?,
            up: affine(w, "mlp.ff.0.0", config.inner, width)?,
            down: affine(w, "mlp.ff.2", width, config.inner)?,
        })
    }

    fn forward(&self, ops: &O, x: O::T, heads: usize, (batch, segments, frequencies): Rows<'_, O>) -> O::T {
        let h = ops.rms_norm(&x, &self.norms[0], EPS);
        let [mut queries, mut keys, values] =
            [0, 1, 2].map(|at| ops.linear(&h, &self.qkv[at].0, Some(&self.qkv[at].1)));
        if let Some([of_queries, of_keys]) = &self.qk_norms {
            queries = ops.rms_norm(&queries, of_queries, EPS);
            keys = ops.rms_norm(&keys, of_keys, EPS);
        }
        queries = ops.rotary(queries, batch, frequencies);
        keys = ops.rotary(keys, batch, frequencies);
        let h = ops.segment_attention_at(&queries, &keys, &values, segments, SegmentShape::whole(heads));
        let x = ops.add(ops.linear(&h, &self.out.0, Some(&self.out.1)), &x);
        let h = ops.rms_norm(&x, &self.norms[1], EPS);
        let h = ops.activation(ops.linear(&h, &self.up.0, Some(&self.up.1)), Activation::GeluTanh);
        ops.add(ops.linear(&h, &self.down.0, Some(&self.down.1)), &x)
    }
}

/// Positions, segments and rotary frequencies of rows.
type Rows<'a, O> = (&'a <O as Ops>::Batch, &'a <O as Ops>::Index, &'a <O as Ops>::Weight);

impl<O: Ops> PatchLayers<O> {
    /// Loads `blocks` and `final_layer`, whose matrix gives rows of `out` numbers.
    pub fn load(w: &Weights<'_, O>, config: &PatchLayersConfig, out: usize) -> Result<Self, LoadError> {
        let last = w.at("final_layer");
        let layer = |at: usize| PatchLayer::load(&w.at(format_args!("blocks.{at}")), config);
        Ok(Self {
            heads: config.num_heads,
            layers: (0..config.depth).map(layer).collect::<Result<_, LoadError>>()?,
            frequencies: w.rotary(config.head(), THETA)?,
            last_norm: last.vector("norm_final.weight", config.hidden_size)?,
            last: affine(&last, "linear", out, config.hidden_size)?,
        })
    }

    /// Runs rows through the layers.
    pub fn forward(&self, ops: &O, mut x: O::T, (spec, sequences): (&O::Spec, &PatchSequences)) -> O::T {
        let (batch, segments) = (ops.batch_at(spec, sequences.batch), ops.index(spec, sequences.segments.words()));
        for layer in &self.layers {
            x = layer.forward(ops, x, self.heads, (&batch, &segments, &self.frequencies));
        }
        x
    }

    /// Computes what follows the layers, for rows out of them.
    pub fn finish(&self, ops: &O, x: &O::T) -> O::T {
        ops.linear(&ops.rms_norm(x, &self.last_norm, EPS), &self.last.0, Some(&self.last.1))
    }
}
