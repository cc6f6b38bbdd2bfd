//! One evaluation of the transformer over windows: from codes, known latents, a voice and a time to the slope of latents. After
//! Covo-Audio's `token2latent`, whose blocks are those of DiT.

use std::ops::Range;

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Activation, Ops, SegmentShape, WeightLayout};

use super::config::{POSITION_GROUPS, POSITION_TAPS, WindowDitConfig};
use super::sections::WindowSections;
use crate::models::load_error::LoadError;
use crate::models::parts::flow_matching::modulation::{
    LAST_PARTS, TIME_FREQUENCIES, modulation, part, projected_times,
};
use crate::models::parts::step_layers::{StepLayers, unit_of};
use crate::models::parts::vocoder::segment_conv::SegmentUpsample;
use crate::models::parts::weights::Weights;

/// Epsilon added to variances in norms.
const EPS: f32 = 1e-6;
/// Base of the rotary wavelengths, which the reference fixes.
const THETA: f32 = 50_000.0;
/// Longest wavelength of a time, which it fixes too.
const MOST_PERIOD: f64 = 10_000.0;

/// A matrix and its bias.
type Affine<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

struct WindowLayer<O: Ops> {
    /// Scales, shifts and gates, `[voice and time][part]`.
    modulation: O::Weight,
    /// Queries, keys and values.
    qkv: O::Weight,
    out: Affine<O>,
    up: Affine<O>,
    down: Affine<O>,
}

/// The transformer with the layers before it, and tables for its voices and times.
pub struct WindowDit<O: Ops> {
    config: WindowDitConfig,
    codes: O::Weight,
    projection: Affine<O>,
    upsample: SegmentUpsample<O>,
    input: Affine<O>,
    positions: Affine<O>,
    /// Ones and zeros: norms have no weights of their own.
    plain: Affine<O>,
    frequencies: O::Weight,
    layers: Vec<WindowLayer<O>>,
    last: O::Weight,
    slopes: Affine<O>,
    /// Most multiplications of a unit.
    unit: usize,
}

/// Loads a matrix with its bias.
fn affine<O: Ops>(w: &Weights<'_, O>, out: usize, input: usize) -> Result<Affine<O>, LoadError> {
    Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
}

/// Conditions of speakers at times as rows, speaker by speaker, after the activation that every layer first applies to them.
fn conditions<O: Ops>(
    w: &Weights<'_, O>,
    config: &WindowDitConfig,
    speakers: &[&[f32]],
    times: &[f32],
) -> Result<O::T, LoadError> {
    let half = TIME_FREQUENCIES / 2;
    let frequency = |at: usize| (-MOST_PERIOD.ln() * at as f64 / half as f64).exp() as f32;
    let numbers = times.iter().flat_map(|time| {
        let angle = move |at: usize| time * frequency(at);
        (0..half).map(move |at| angle(at).cos()).chain((0..half).map(move |at| angle(at).sin()))
    });
    let ops = w.ops();
    let of_times = projected_times(ops, &w.at("time_embedder.mlp"), numbers.collect(), config.dim)?;
    let of_times = ops.read(&of_times);
    let joined = speakers.iter().flat_map(|speaker| {
        of_times.chunks_exact(config.dim).flat_map(move |time| time.iter().chain(*speaker).copied())
    });
    let width = config.dim + config.speaker;
    let (weight, bias) = affine(&w.at("cond_proj"), config.dim, width)?;
    let rows = ops.linear(&ops.tensor(joined.collect(), width), &weight, Some(&bias));
    Ok(ops.activation(rows, Activation::Silu))
}

impl<O: Ops> WindowDit<O> {
    /// Loads the transformer for these speakers and times; `w` is its prefix. `once` has the same weights on a device for the
    /// computations of load time.
    pub fn load<E: Ops>(
        w: &Weights<'_, O>,
        once: &Weights<'_, E>,
        config: &WindowDitConfig,
        (speakers, times): (&[&[f32]], &[f32]),
    ) -> Result<Self, LoadError> {
        let WindowDitConfig { dim, inner, latents, ratio, codes: (codes, width), .. } = *config;
        let conditions = conditions(once, config, speakers, times)?;
        let table = |w: &Weights<'_, O>, rows: &[f32]| {
            w.made("modulation", WeightLayout::Table, rows, &[rows.len() / dim, dim])
        };
        let layer = |at: usize| -> Result<_, LoadError> {
            let (w, once) = (w.at("blocks").at(at), once.at("blocks").at(at).at("modulation_layer.1"));
            let scales = [part::SCALE_ATTENTION, part::SCALE_MLP];
            let rows = modulation((once.ops(), &once), &conditions, dim, part::COUNT, &scales)?;
            let names = ["q_proj.weight", "k_proj.weight", "v_proj.weight"].map(|name| (name, dim));
            Ok(WindowLayer {
                modulation: table(&w, &rows)?,
                qkv: w.at("attn").linears(&names, dim)?,
                out: affine(&w.at("attn.o_proj"), dim, dim)?,
                up: affine(&w.at("ffn.fc1"), inner, dim)?,
                down: affine(&w.at("ffn.fc2"), dim, inner)?,
            })
        };
        let (output, of_last) = (w.at("output_layer"), once.at("output_layer.adaLN_modulation.1"));
        // The shift comes first.
        let last = modulation((once.ops(), &of_last), &conditions, dim, LAST_PARTS, &[1])?;
        let position = w.at("conv_embed.conv");
        let grouped = WeightLayout::GroupedConv1d { dilation: 1, groups: POSITION_GROUPS };
        Ok(Self {
            codes: w.table("token_embedding.weight", codes, width)?,
            projection: affine(&w.at("token_proj.0"), dim, width)?,
            upsample: SegmentUpsample::load(&w.at("token_proj.1"), dim, dim, 2 * ratio, ratio)?,
            input: affine(&w.at("transformer_input_proj"), dim, dim + 2 * latents)?,
            positions: (
                position.convolution("weight", grouped, [dim, dim / POSITION_GROUPS, POSITION_TAPS])?,
                position.vector("bias", dim)?,
            ),
            plain: (
                w.made("ones", WeightLayout::Vector, &vec![1.0; dim], &[dim])?,
                w.made("zeros", WeightLayout::Vector, &vec![0.0; dim], &[dim])?,
            ),
            frequencies: w.rotary(dim / config.heads, THETA)?,
            layers: (0..config.layers).map(layer).collect::<Result<_, _>>()?,
            last: table(&output, &last)?,
            slopes: affine(&output.at("linear"), latents, dim)?,
            unit: unit_of(w.ops()),
            config: config.clone(),
        })
    }

    /// Sizes of the transformer.
    pub fn config(&self) -> &WindowDitConfig {
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

    /// Computes the slopes of the windows' rows, `[rows, latents]`: for each window the guided ones, then the unguided ones.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &WindowSections) -> O::T {
        self.forward_layers(ops, (spec, sections), 0..self.layers.len(), None)
    }

    /// Computes the layers' input: the projected codes, known latents and values, and their positions by a convolution.
    fn input_rows(&self, ops: &O, spec: &O::Spec, sections: &WindowSections) -> O::T {
        let index = |section| ops.index(spec, section);
        let codes = ops.embed_at(&self.codes, &index(sections.codes));
        let codes = ops.linear(&codes, &self.projection.0, Some(&self.projection.1));
        let codes = self.upsample.forward(ops, &codes, &index(sections.code_segments.words()));
        let codes = ops.gather_at(&codes, &index(sections.code_of));
        let [known, value] =
            [sections.known, sections.value].map(|section| ops.floats(spec, section, self.config.latents));
        let inputs = ops.concat_columns(&[&codes, &known, &value]);
        let x = ops.linear(&inputs, &self.input.0, Some(&self.input.1));
        let h = ops.segment_conv1d_at(&x, &self.positions.0, &self.positions.1, &index(sections.segments.words()));
        ops.add(ops.activation(h, Activation::Gelu), &x)
    }

    /// Computes some layers on the rows of those before; the last ones give the slopes.
    pub fn forward_layers(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &WindowSections),
        layers: Range<usize>,
        x: Option<O::T>,
    ) -> O::T {
        let index = |section| ops.index(spec, section);
        let place = |list: SpecSection, part| index(list.part(part, sections.rows));
        let segments = index(sections.segments.words());
        let mut x = x.unwrap_or_else(|| self.input_rows(ops, spec, sections));
        let (positions, dim) = (ops.batch_at(spec, sections.positions), self.config.dim);
        for layer in &self.layers[layers.clone()] {
            let table = |at: usize| ops.embed_at(&layer.modulation, &place(sections.modulations, at));
            let normed = |x: &O::T, (scale, shift)| {
                let x = ops.layer_norm(x, &self.plain.0, &self.plain.1, EPS);
                ops.add(ops.mul(x, &table(scale)), &table(shift))
            };
            let h = normed(&x, (part::SCALE_ATTENTION, part::SHIFT_ATTENTION));
            let qkv = ops.linear(&h, &layer.qkv, None);
            let rotated = |from: usize| ops.rotary(ops.narrow(&qkv, from, dim), &positions, &self.frequencies);
            let (q, k, v) = (rotated(0), rotated(dim), ops.narrow(&qkv, 2 * dim, dim));
            let h = ops.segment_attention_at(&q, &k, &v, &segments, SegmentShape::whole(self.config.heads));
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
        let x = ops.mul(ops.layer_norm(&x, &self.plain.0, &self.plain.1, EPS), &table(1));
        ops.linear(&ops.add(x, &table(0)), &self.slopes.0, Some(&self.slopes.1))
    }
}
