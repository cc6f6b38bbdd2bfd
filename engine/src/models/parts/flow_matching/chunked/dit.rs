//! One evaluation of the transformer over chunks: from codes, a voice and a time to the slope of a mel spectrogram. After
//! `CausalMaskedDiffWithDiT` and `DiT` of CosyVoice, whose blocks are those of F5-TTS.

use std::ops::Range;

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Activation, AttentionShape, Ops, StateSpec, WeightLayout};

use super::config::{CODE_TAPS, ChunkDitConfig, POSITION_GROUPS, POSITION_TAPS};
use super::sections::ChunkSections;
use crate::models::load_error::LoadError;
use crate::models::parts::flow_matching::modulation::{LAST_PARTS, modulation, part, times};
use crate::models::parts::step_layers::{StepLayers, unit_of};
use crate::models::parts::weights::Weights;

/// Epsilon added to variances in norms.
const EPS: f32 = 1e-6;
/// Base of the first head's rotary wavelengths, which the reference fixes.
const THETA: f32 = 10_000.0;
/// Factor of negative numbers of the convolution that looks ahead: torch's default.
const SLOPE: f32 = 0.01;

/// A matrix and its bias.
type Affine<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

struct ChunkLayer<O: Ops> {
    /// Scales, shifts and gates, `[time][part]`.
    modulation: O::Weight,
    /// Queries, keys and values; the numbers of the first head of queries and keys are ordered for the rotation of halves.
    qkv: Affine<O>,
    out: Affine<O>,
    up: Affine<O>,
    down: Affine<O>,
}

/// The transformer with the layers before it, and tables for its times.
pub struct ChunkDit<O: Ops> {
    config: ChunkDitConfig,
    codes: O::Weight,
    /// Convolutions over codes, as products over the rows that a row reads.
    ahead: Affine<O>,
    before: Affine<O>,
    input: Affine<O>,
    positions: [Affine<O>; 2],
    /// Ones and zeros: norms have no weights of their own.
    plain: Affine<O>,
    frequencies: O::Weight,
    layers: Vec<ChunkLayer<O>>,
    last: O::Weight,
    projection: Affine<O>,
    /// Bytes of a number of the cache.
    kv_number: usize,
    /// Most multiplications of a unit.
    unit: usize,
}

impl<O: Ops> ChunkLayer<O> {
    fn load(w: &Weights<'_, O>, config: &ChunkDitConfig, table: &[f32]) -> Result<Self, LoadError> {
        let (dim, head, inner) = (config.dim, config.dim_head, config.heads * config.dim_head);
        let (mut matrix, mut bias) = (Vec::new(), Vec::new());
        for (name, rotates) in [("to_q", true), ("to_k", true), ("to_v", false)] {
            let w = w.at("attn").at(name);
            let (rows, biases) = (w.values("weight", &[inner, dim])?, w.values("bias", &[inner])?);
            // The checkpoint rotates neighbours of the first head.
            let order = |row: usize| match rotates && row < head {
                true if row < head / 2 => 2 * row,
                true => 2 * (row - head / 2) + 1,
                false => row,
            };
            for from in (0..inner).map(order) {
                matrix.extend_from_slice(&rows[from * dim..(from + 1) * dim]);
                bias.push(biases[from]);
            }
        }
        let affine = |name: &str, out, input| -> Result<_, LoadError> {
            let w = w.at(name);
            Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
        };
        Ok(Self {
            modulation: w.made("modulation", WeightLayout::Table, table, &[table.len() / dim, dim])?,
            qkv: (
                w.made_matrix("attn.qkv.weight", &matrix, &[3 * inner, dim])?,
                w.made("attn.qkv.bias", WeightLayout::Vector, &bias, &[3 * inner])?,
            ),
            out: affine("attn.to_out.0", dim, inner)?,
            up: affine("ff.ff.0.0", config.ff_mult * dim, dim)?,
            down: affine("ff.ff.2", dim, config.ff_mult * dim)?,
        })
    }
}

impl<O: Ops> ChunkDit<O> {
    /// Loads the flow for evaluations at `at_times`. `once` has the same weights on a device for the
    /// computations of load time.
    pub fn load<E: Ops>(
        w: &Weights<'_, O>,
        once: &Weights<'_, E>,
        config: &ChunkDitConfig,
        at_times: &[f32],
    ) -> Result<Self, LoadError> {
        let (dim, mel) = (config.dim, config.mel);
        let dit = w.at("decoder.estimator");
        let of_times = once.at("decoder.estimator");
        let embedded = times(once.ops(), &of_times, at_times, dim)?;
        let layer = |at: usize| {
            let name = format!("transformer_blocks.{at}");
            let norm = of_times.at(&name).at("attn_norm.linear");
            let scales = [part::SCALE_ATTENTION, part::SCALE_MLP];
            let table = modulation((once.ops(), &norm), &embedded, dim, part::COUNT, &scales)?;
            ChunkLayer::load(&dit.at(&name), config, &table)
        };
        let last = modulation((once.ops(), &of_times.at("norm_out.linear")), &embedded, dim, LAST_PARTS, &[0])?;
        let over_taps = |name: &str, out: usize, input: usize, taps: usize| -> Result<_, LoadError> {
            let w = w.at("pre_lookahead_layer").at(name);
            let (shape, joined) = ([out, input, taps], [out, taps * input]);
            let weight = w.swapped("weight", WeightLayout::Linear, &shape, (out, input, taps), &joined)?;
            Ok((weight, w.vector("bias", out)?))
        };
        let position = |name: &str| -> Result<_, LoadError> {
            let w = dit.at("input_embed.conv_pos_embed").at(name).at(0);
            let layout = WeightLayout::GroupedConv1d { dilation: 1, groups: POSITION_GROUPS };
            Ok((w.convolution("weight", layout, [dim, dim / POSITION_GROUPS, POSITION_TAPS])?, w.vector("bias", dim)?))
        };
        let affine = |w: Weights<'_, O>, out, input| -> Result<_, LoadError> {
            Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
        };
        let channels = config.lookahead_channels;
        Ok(Self {
            codes: w.table("input_embedding.weight", config.vocab_size, mel)?,
            ahead: over_taps("conv1", channels, mel, config.pre_lookahead_len + 1)?,
            before: over_taps("conv2", mel, channels, CODE_TAPS)?,
            input: affine(dit.at("input_embed.proj"), dim, 4 * mel)?,
            positions: [position("conv1")?, position("conv2")?],
            plain: (
                w.made("ones", WeightLayout::Vector, &vec![1.0; dim], &[dim])?,
                w.made("zeros", WeightLayout::Vector, &vec![0.0; dim], &[dim])?,
            ),
            frequencies: w.rotary(config.dim_head, THETA)?,
            layers: (0..config.depth).map(layer).collect::<Result<_, _>>()?,
            last: w.made("norm_out", WeightLayout::Table, &last, &[last.len() / dim, dim])?,
            projection: affine(dit.at("proj_out"), mel, dim)?,
            kv_number: w.ops().kv_number_bytes(),
            unit: unit_of(w.ops()),
            config: config.clone(),
        })
    }

    /// Sizes of the transformer.
    pub fn config(&self) -> &ChunkDitConfig {
        &self.config
    }

    /// Cuts evaluations into units of at most `most` multiplications, or of one layer.
    #[must_use]
    pub fn with_units(self, most: usize) -> Self {
        Self { unit: most, ..self }
    }

    /// Layers of an evaluation, between which others may run.
    pub fn step_layers(&self) -> StepLayers {
        self.config.step_layers(self.unit)
    }

    /// Creates the keys and values of every layer: `blocks` blocks of a chunk each.
    pub fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        let width = self.config.heads * self.config.dim_head;
        let spec = StateSpec::KeyValue { blocks, block_len: self.config.chunk(), width };
        self.layers.iter().map(|_| ops.state(spec)).collect()
    }

    /// Bytes of a cache block in all layers.
    pub fn block_bytes(&self) -> usize {
        2 * self.config.chunk() * self.config.heads * self.config.dim_head * self.config.depth * self.kv_number
    }

    /// Computes the rows of all codes: their embeddings after two convolutions.
    fn code_rows(&self, ops: &O, spec: &O::Spec, sections: &ChunkSections) -> O::T {
        let index = |section| ops.index(spec, section);
        let embedded = ops.embed_at(&self.codes, &index(sections.codes));
        let taps = ops.gather_at(&embedded, &index(sections.ahead));
        let taps = ops.reshape(taps, (self.config.pre_lookahead_len + 1) * self.config.mel);
        let slope = Activation::LeakyRelu { slope: SLOPE };
        let ahead = ops.activation(ops.linear(&taps, &self.ahead.0, Some(&self.ahead.1)), slope);
        let taps = ops.gather_at(&ahead, &index(sections.before));
        let taps = ops.reshape(taps, CODE_TAPS * self.config.lookahead_channels);
        let rows = ops.linear(&taps, &self.before.0, Some(&self.before.1));
        ops.add(rows, &ops.gather_at(&embedded, &index(sections.own_codes)))
    }

    /// Computes the layers' input: the projected inputs, and their positions by two convolutions.
    fn input_rows(&self, ops: &O, spec: &O::Spec, sections: &ChunkSections) -> O::T {
        let (index, mel) = (|section| ops.index(spec, section), self.config.mel);
        let codes = ops.gather_at(&self.code_rows(ops, spec, sections), &index(sections.code_of));
        let [mel, recording, speaker] =
            [sections.mel, sections.recording, sections.voices].map(|section| ops.floats(spec, section, mel));
        let x = ops.concat_columns(&[&mel, &recording, &codes, &speaker]);
        let x = ops.linear(&x, &self.input.0, Some(&self.input.1));
        let (x, segments) = (ops.gather_at(&x, &index(sections.filled)), index(sections.segments.words()));
        let [first, second] = &self.positions;
        let h = ops.activation(ops.segment_conv1d_at(&x, &first.0, &first.1, &segments), Activation::Mish);
        let h = ops.gather_at(&h, &index(sections.shifted));
        let h = ops.activation(ops.segment_conv1d_at(&h, &second.0, &second.1, &segments), Activation::Mish);
        ops.add(ops.gather_at(&h, &index(sections.convolved)), &ops.gather_at(&x, &index(sections.own)))
    }

    /// Computes the slopes of the chunks' rows, `[rows, mel]`: for each chunk the guided ones, then the unguided ones.
    pub fn forward(&self, ops: &O, at: (&O::Spec, &ChunkSections), cache: &mut [O::State]) -> O::T {
        self.forward_layers(ops, at, cache, (0..self.layers.len(), None))
    }

    /// Computes some layers on the rows of those before; the last ones give the slopes.
    pub fn forward_layers(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &ChunkSections),
        cache: &mut [O::State],
        (layers, x): (Range<usize>, Option<O::T>),
    ) -> O::T {
        let place = |list: SpecSection, part| ops.index(spec, list.part(part, sections.rows));
        let (positions, batch) = (ops.batch_at(spec, sections.positions), ops.batch_at(spec, sections.cache));
        let (head, inner) = (self.config.dim_head, self.config.heads * self.config.dim_head);
        let shape = AttentionShape {
            heads: self.config.heads,
            kv_heads: self.config.heads,
            head_dim: head,
            window: None,
            chunk: Some(self.config.chunk()),
        };
        let mut x = x.unwrap_or_else(|| self.input_rows(ops, spec, sections));
        for (layer, cache) in self.layers[layers.clone()].iter().zip(&mut cache[layers.clone()]) {
            let table = |at: usize| ops.embed_at(&layer.modulation, &place(sections.modulations, at));
            let normed = |x: &O::T, (scale, shift)| {
                let x = ops.layer_norm(x, &self.plain.0, &self.plain.1, EPS);
                ops.add(ops.mul(x, &table(scale)), &table(shift))
            };
            let h = normed(&x, (part::SCALE_ATTENTION, part::SHIFT_ATTENTION));
            let qkv = ops.linear(&h, &layer.qkv.0, Some(&layer.qkv.1));
            let rotated = |from: usize| {
                let first = ops.rotary(ops.narrow(&qkv, from, head), &positions, &self.frequencies);
                if inner == head {
                    return first;
                }
                ops.concat_columns(&[&first, &ops.narrow(&qkv, from + head, inner - head)])
            };
            let (q, k, v) = (rotated(0), rotated(inner), ops.narrow(&qkv, 2 * inner, inner));
            let h = ops.attention(&q, &k, &v, cache, &batch, shape);
            let h = ops.linear(&h, &layer.out.0, Some(&layer.out.1));
            x = ops.add(ops.mul(h, &table(part::GATE_ATTENTION)), &x);
            let h = normed(&x, (part::SCALE_MLP, part::SHIFT_MLP));
            let h = ops.activation(ops.linear(&h, &layer.up.0, Some(&layer.up.1)), Activation::GeluTanh);
            let h = ops.linear(&h, &layer.down.0, Some(&layer.down.1));
            x = ops.add(ops.mul(h, &table(part::GATE_MLP)), &x);
        }
        if layers.end < self.layers.len() {
            return x;
        }
        let table = |at: usize| ops.embed_at(&self.last, &place(sections.last, at));
        let x = ops.mul(ops.layer_norm(&x, &self.plain.0, &self.plain.1, EPS), &table(0));
        ops.linear(&ops.add(x, &table(1)), &self.projection.0, Some(&self.projection.1))
    }
}
