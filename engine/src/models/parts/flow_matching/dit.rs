//! `code2wav_dit_model`: from codes, a voice and a time to the slope of a mel spectrogram, after
//! `Qwen2_5OmniToken2WavDiTModel` of transformers 5.23.
//!
//! A window is evaluated twice in one batch: guided by its codes and voice, and unguided (classifier-free guidance). A
//! frame attends to the frames of its own block of `block_size`, in some layers also to the block before or after it.

use std::ops::Range;

use repartee_kernels::{Activation, Ops, RowSpec, SegmentShape, SequenceRows, SpecLayout, WeightLayout};

use super::config::DitConfig;
use super::modulation::{LAST_PARTS, part};
use super::prepared::{Prepared, columns};
use super::sections::{CrossBlockLists, DitSections, NeighbourBlocks};
use crate::models::load_error::LoadError;
use crate::models::parts::step_layers::{StepLayers, unit_of};
use crate::models::parts::weights::Weights;

/// Epsilon added to variances in norms.
const EPS: f32 = 1e-6;

/// Input of one window for an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct DitWindow<'a> {
    /// Codes of the window, beginning with a block's first.
    pub codes: &'a [u32],
    /// Index of the voice.
    pub voice: usize,
    /// The spectrogram so far, `[frames, mel]`: `repeats` frames a code.
    pub mel: &'a [f32],
    /// Index of the time.
    pub time: usize,
}

struct Layer<O: Ops> {
    /// Scales, shifts and gates, `[time][part]`.
    modulation: O::Weight,
    /// Queries, keys and values of the first head, then those of the others. The first head's numbers are reordered for
    /// the rotation of halves.
    qkv: (O::Weight, O::Weight),
    /// Weights of the first head's result and of the others', and the bias.
    out: (O::Weight, O::Weight, O::Weight),
    up: (O::Weight, O::Weight),
    down: (O::Weight, O::Weight),
    neighbours: NeighbourBlocks,
    /// Inverse frequencies of the first head's rotary positions.
    frequencies: O::Weight,
}

/// The diffusion transformer, with tables for its voices and times.
pub struct Dit<O: Ops> {
    config: DitConfig,
    /// Input projection of the spectrogram.
    mel: O::Weight,
    /// Input projection of each code's embedding; code 0 stands for none.
    codes: O::Weight,
    /// Input projection of each voice with the bias: a guided and an unguided row.
    voices: O::Weight,
    /// Ones and zeros: norms have no weights of their own.
    plain: (O::Weight, O::Weight),
    layers: Vec<Layer<O>>,
    last: O::Weight,
    out: (O::Weight, O::Weight),
    /// Most multiplications of a unit.
    unit: usize,
}

/// Creates a lookup table with rows of `width`.
fn table<O: Ops>(w: &Weights<'_, O>, name: &str, rows: &[f32], width: usize) -> Result<O::Weight, LoadError> {
    w.made(name, WeightLayout::Table, rows, &[rows.len() / width, width])
}

impl<O: Ops> Layer<O> {
    fn load(
        w: &Weights<'_, O>,
        config: &DitConfig,
        modulation: &[f32],
        neighbours: NeighbourBlocks,
    ) -> Result<Self, LoadError> {
        let (hidden, head) = (config.hidden_size, config.head_dim);
        let inner = config.num_attention_heads * head;
        // The checkpoint rotates neighbours. A head's numbers may have any order that its queries and keys share.
        let rotated: Vec<usize> = (0..head).step_by(2).chain((1..head).step_by(2)).collect();
        // Weights and biases of the first head, and of the others.
        let (mut weights, mut biases) = ([vec![], vec![]], [vec![], vec![]]);
        for name in ["to_q", "to_k", "to_v"] {
            let w = w.at("attn").at(name);
            let (weight, bias) = (w.values("weight", &[inner, hidden])?, w.values("bias", &[inner])?);
            let order = |row: usize| if name == "to_v" { row } else { rotated[row] };
            for row in 0..inner {
                let (to, from) = if row < head { (0, order(row)) } else { (1, row) };
                weights[to].extend_from_slice(&weight[from * hidden..(from + 1) * hidden]);
                biases[to].push(bias[from]);
            }
        }
        let to_out = w.at("attn.to_out.0");
        let out = to_out.values("weight", &[hidden, inner])?;
        let linear = |name: &str, out, input| -> Result<_, LoadError> {
            let w = w.at("ff.ff").at(name);
            Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
        };
        let made = |name: &str, values: &[f32], input| {
            w.made(name, WeightLayout::Linear, values, &[values.len() / input, input])
        };
        Ok(Self {
            modulation: table(w, "modulation", modulation, hidden)?,
            qkv: (
                made("qkv.weight", &weights.concat(), hidden)?,
                w.made("qkv.bias", WeightLayout::Vector, &biases.concat(), &[3 * inner])?,
            ),
            out: (
                made("to_out.first", &columns(&out, inner, 0, head), head)?,
                made("to_out.others", &columns(&out, inner, head, inner), inner - head)?,
                to_out.vector("bias", hidden)?,
            ),
            up: linear("0", config.ff_mult * hidden, hidden)?,
            down: linear("3", hidden, config.ff_mult * hidden)?,
            neighbours,
            frequencies: w.rotary(head, config.rope_theta as f32)?,
        })
    }

    /// Runs the rows of all windows through the layer.
    fn forward(&self, ops: &O, config: &DitConfig, x: O::T, plain: &(O::Weight, O::Weight), step: &Step<O>) -> O::T {
        let modulation = |part: usize| ops.embed_at(&self.modulation, &step.modulations[part]);
        let norm = |x: &O::T, scale, shift| {
            let x = ops.mul(ops.layer_norm(x, &plain.0, &plain.1, EPS), &modulation(scale));
            ops.add(x, &modulation(shift))
        };
        let h = norm(&x, part::SCALE_ATTENTION, part::SHIFT_ATTENTION);
        let h = self.attention(ops, config, &h, step);
        let x = ops.add(ops.mul(h, &modulation(part::GATE_ATTENTION)), &x);
        let h = norm(&x, part::SCALE_MLP, part::SHIFT_MLP);
        let h = ops.activation(ops.linear(&h, &self.up.0, Some(&self.up.1)), Activation::GeluTanh);
        let h = ops.linear(&h, &self.down.0, Some(&self.down.1));
        ops.add(ops.mul(h, &modulation(part::GATE_MLP)), &x)
    }

    fn attention(&self, ops: &O, config: &DitConfig, h: &O::T, step: &Step<O>) -> O::T {
        let (head, heads) = (config.head_dim, config.num_attention_heads);
        let qkv = ops.linear(h, &self.qkv.0, Some(&self.qkv.1));
        let rest = (heads - 1) * head;
        let first = |part: usize| ops.narrow(&qkv, part * head, head);
        let others = |part: usize| ops.narrow(&qkv, 3 * head + part * rest, rest);
        let rotated = |part: usize| ops.rotary(first(part), &step.positions, &self.frequencies);
        let a = self.within_sight(ops, [rotated(0), rotated(1), first(2)], 1, step);
        let b = self.within_sight(ops, [others(0), others(1), others(2)], heads - 1, step);
        let a = ops.linear(&a, &self.out.0, None);
        ops.add(ops.linear(&b, &self.out.1, Some(&self.out.2)), &a)
    }

    /// Attention of each block over itself and the neighbouring blocks that the layer attends to.
    fn within_sight(&self, ops: &O, qkv: [O::T; 3], heads: usize, step: &Step<O>) -> O::T {
        let Some(context) = step.cross_block.iter().find(|context| context.neighbours == self.neighbours) else {
            let [q, k, v] = qkv;
            return ops.segment_attention_at(&q, &k, &v, &step.blocks, SegmentShape::whole(heads));
        };
        // Repeat each block for every block that attends to it. Then attention within segments applies again; most of
        // its queries are discarded.
        let [q, k, v] = qkv.map(|x| ops.gather_at(&x, &context.gather));
        ops.gather_at(
            &ops.segment_attention_at(&q, &k, &v, &context.segments, SegmentShape::whole(heads)),
            &context.back,
        )
    }
}

/// Index lists of an evaluation on the device.
struct Step<O: Ops> {
    modulations: Vec<O::Index>,
    positions: O::Batch,
    blocks: O::Index,
    cross_block: Vec<CrossBlockContext<O>>,
}

/// Lists for layers that attend beyond their own block, as in [`CrossBlockLists`].
struct CrossBlockContext<O: Ops> {
    neighbours: NeighbourBlocks,
    gather: O::Index,
    segments: O::Index,
    back: O::Index,
}

impl<O: Ops> Dit<O> {
    /// Loads `code2wav_dit_model` for the times and voices of `prepared`.
    pub fn load(w: &Weights<'_, O>, config: &DitConfig, prepared: &Prepared) -> Result<Self, LoadError> {
        let (hidden, mel) = (config.hidden_size, config.mel_dim);
        let layer = |(at, modulation): (usize, &Vec<f32>)| {
            let neighbours = NeighbourBlocks {
                before: config.look_backward_layers.contains(&at),
                after: config.look_ahead_layers.contains(&at),
            };
            Layer::load(&w.at("transformer_blocks").at(at), config, modulation, neighbours)
        };
        let out = w.at("proj_out");
        Ok(Self {
            mel: w.made("input_embed.proj", WeightLayout::Linear, &prepared.mel, &[hidden, mel])?,
            codes: table(w, "codes", &prepared.codes, hidden)?,
            voices: table(w, "voices", &prepared.voices, hidden)?,
            plain: (
                w.made("ones", WeightLayout::Vector, &vec![1.0; hidden], &[hidden])?,
                w.made("zeros", WeightLayout::Vector, &vec![0.0; hidden], &[hidden])?,
            ),
            layers: prepared.layers.iter().enumerate().map(layer).collect::<Result<_, LoadError>>()?,
            last: table(w, "norm_out", &prepared.last, hidden)?,
            out: (out.linear("weight", mel, hidden)?, out.vector("bias", mel)?),
            unit: unit_of(w.ops()),
            config: config.clone(),
        })
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

    /// Rows of an evaluation: two for each frame of each window.
    pub fn rows(&self, windows: &[DitWindow<'_>]) -> usize {
        windows.iter().map(|window| 2 * window.codes.len() * self.config.repeats).sum()
    }

    /// Reserves the row spec's sections for an evaluation of `rows` rows.
    pub fn layout(&self, layout: &mut SpecLayout, rows: usize) -> DitSections {
        let mut ways: Vec<NeighbourBlocks> = self.layers.iter().map(|layer| layer.neighbours).collect();
        ways.sort_unstable();
        ways.dedup();
        let cross_block =
            ways.into_iter().filter(|neighbours| neighbours.blocks() > 1).map(|neighbours| CrossBlockLists {
                neighbours,
                gather: layout.list(neighbours.blocks() * rows),
                segments: layout.segments(neighbours.blocks() * rows, rows),
                back: layout.list(rows),
            });
        let cross_block = cross_block.collect();
        DitSections {
            rows,
            mel: layout.list(rows * self.config.mel_dim),
            codes: layout.list(rows),
            voices: layout.list(rows),
            modulations: layout.list(part::COUNT * rows),
            last: layout.list(LAST_PARTS * rows),
            positions: layout.batch(rows, rows, 1),
            blocks: layout.segments(rows, rows),
            cross_block,
        }
    }

    /// Fills a row spec with windows. For each window its guided rows come first, then as many unguided ones.
    pub fn fill(&self, spec: &mut RowSpec, sections: &DitSections, windows: &[DitWindow<'_>]) {
        let repeats = self.config.repeats;
        // Every window twice: guided and unguided.
        let twice = || windows.iter().flat_map(|window| [(window, true), (window, false)]);
        let frames = |window: &DitWindow<'_>| window.codes.len() * repeats;
        spec.set_floats_each(sections.mel, twice().flat_map(|(window, _)| window.mel.iter().copied()));
        let codes = twice().flat_map(|(window, guided)| {
            let codes = window.codes.iter().flat_map(move |&code| std::iter::repeat_n(code, repeats));
            codes.map(move |code| if guided { code } else { 0 })
        });
        spec.set_each(sections.codes, codes);
        let voice = |guided: bool, window: &DitWindow<'_>| (2 * window.voice + usize::from(!guided)) as u32;
        let each = |value: u32, window: &DitWindow<'_>| std::iter::repeat_n(value, frames(window));
        spec.set_each(sections.voices, twice().flat_map(|(window, guided)| each(voice(guided, window), window)));
        for (list, parts) in [(sections.modulations, part::COUNT), (sections.last, LAST_PARTS)] {
            for part in 0..parts {
                let row = |window: &DitWindow<'_>| each((window.time * parts + part) as u32, window);
                spec.set_each(list.part(part, sections.rows), twice().flat_map(|(window, _)| row(window)));
            }
        }
        let sequence = |window| SequenceRows { table: &[0], position: 0, rows: frames(window) };
        spec.set_batch(sections.positions, &twice().map(|(window, _)| sequence(window)).collect::<Vec<_>>(), 0);
        let lengths: Vec<usize> = twice().map(|(window, _)| frames(window)).collect();
        sections.fill_blocks(spec, self.config.block_size, &lengths);
    }

    /// Computes the slopes of all rows, `[rows, mel]`.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &DitSections) -> O::T {
        self.forward_layers(ops, (spec, sections), 0..self.layers.len(), None)
    }

    /// Computes some layers on the rows of those before; the last ones give the slopes.
    pub fn forward_layers(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &DitSections),
        layers: Range<usize>,
        x: Option<O::T>,
    ) -> O::T {
        let part =
            |list: repartee_kernels::row_spec::SpecSection, part| ops.index(spec, list.part(part, sections.rows));
        let cross_block = sections.cross_block.iter().map(|at| CrossBlockContext {
            neighbours: at.neighbours,
            gather: ops.index(spec, at.gather),
            segments: ops.index(spec, at.segments.words()),
            back: ops.index(spec, at.back),
        });
        let step: Step<O> = Step {
            modulations: (0..part::COUNT).map(|at| part(sections.modulations, at)).collect(),
            positions: ops.batch_at(spec, sections.positions),
            blocks: ops.index(spec, sections.blocks.words()),
            cross_block: cross_block.collect(),
        };
        let input = || {
            let x = ops.linear(&ops.floats(spec, sections.mel, self.config.mel_dim), &self.mel, None);
            let x = ops.add(x, &ops.embed_at(&self.codes, &ops.index(spec, sections.codes)));
            ops.add(x, &ops.embed_at(&self.voices, &ops.index(spec, sections.voices)))
        };
        let mut x = x.unwrap_or_else(input);
        for layer in &self.layers[layers.clone()] {
            x = layer.forward(ops, &self.config, x, &self.plain, &step);
        }
        if layers.end < self.layers.len() {
            return x;
        }
        let last = |at| ops.embed_at(&self.last, &part(sections.last, at));
        let x = ops.mul(ops.layer_norm(&x, &self.plain.0, &self.plain.1, EPS), &last(0));
        ops.linear(&ops.add(x, &last(1)), &self.out.0, Some(&self.out.1))
    }
}
