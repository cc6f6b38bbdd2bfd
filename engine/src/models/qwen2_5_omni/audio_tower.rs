//! `thinker.audio_tower`: log-mel blocks to audio rows, after `Qwen2_5OmniAudioEncoder`.
//!
//! A block of `2 * n_window` mel frames passes two convolutions, the second of stride 2. Its rows attend to each other
//! only, and then each two rows become their mean. So a block depends on no other block, and a full block yields whole
//! pairs.

use repartee_kernels::row_spec::{SegmentSection, SpecSection};
use repartee_kernels::{NO_ROW, ReadBack, RowSpec, SpecLayout, StepKey, StepOps, WeightLayout};

use super::config::AudioTowerConfig;
use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, WindowInput};
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{AudioLayer, AudioShape, NORM_EPS, linear, norm, sinusoids};
use crate::models::parts::weights::Weights;
use crate::weight_policy::WeightPolicy;

/// Number of taps of a convolution.
const KERNEL: usize = 3;

/// Audio tower: two convolutions, transformer layers, pooling of pairs, output projection.
pub struct AudioTower<O: StepOps> {
    config: AudioTowerConfig,
    conv1: (O::Weight, O::Weight),
    conv2: (O::Weight, O::Weight),
    positions: O::Weight,
    layers: Vec<AudioLayer<O>>,
    ln_post: (O::Weight, O::Weight),
    proj: (O::Weight, O::Weight),
}

/// Sections of the row spec that a step uses.
struct TowerSections {
    mel: SpecSection,
    /// Input rows of the three taps, for each frame and for each row after the convolutions.
    conv1: SpecSection,
    conv2: SpecSection,
    /// Positions of the rows within their block, and the blocks' lengths in rows.
    positions: SpecSection,
    segments: SegmentSection,
    /// Rows of each pair.
    first: SpecSection,
    second: SpecSection,
}

/// Number of rows of a block after the convolutions.
fn rows(frames: usize) -> usize {
    frames.div_ceil(2)
}

/// Number of audio rows of a block of `frames` mel frames; a row without a pair is dropped.
pub fn tokens(frames: usize) -> usize {
    rows(frames) / 2
}

/// Input rows of the three taps at each `stride`-th of `frames` rows from `first` on; taps beyond both ends read zeros.
fn neighbours(first: usize, frames: usize, stride: usize) -> impl Iterator<Item = u32> {
    (0..frames).step_by(stride).flat_map(move |at| {
        (0..KERNEL).map(move |tap| match (at + tap).checked_sub(1) {
            Some(at) if at < frames => (first + at) as u32,
            _ => NO_ROW,
        })
    })
}

impl<O: StepOps> AudioTower<O> {
    /// Loads `thinker.audio_tower`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &AudioTowerConfig) -> Result<Self, LoadError> {
        let d = config.d_model;
        let convolution = |name: &str, input| -> Result<_, LoadError> {
            // Computed as a product over three concatenated rows. It remains a convolution, which no policy quantises.
            let w = w.at(name).with_policy(WeightPolicy::default());
            let (shape, sizes) = ([d, input, KERNEL], (d, input, KERNEL));
            let weight = w.swapped("weight", WeightLayout::Linear, &shape, sizes, &[d, KERNEL * input])?;
            Ok((weight, w.vector("bias", d)?))
        };
        let shape = AudioShape {
            width: d,
            heads: config.encoder_attention_heads,
            inner: config.encoder_ffn_dim,
            key_bias: false,
        };
        let layers = (0..config.encoder_layers).map(|i| AudioLayer::load(&w.at(format_args!("layers.{i}")), shape));
        Ok(Self {
            conv1: convolution("conv1", config.num_mel_bins)?,
            conv2: convolution("conv2", d)?,
            positions: w.made(
                "positions",
                WeightLayout::Table,
                &sinusoids(config.n_window, d),
                &[config.n_window, d],
            )?,
            layers: layers.collect::<Result<_, _>>()?,
            ln_post: norm(w, "ln_post", d)?,
            proj: linear(w, "proj", config.output_dim, d)?,
            config: config.clone(),
        })
    }

    /// Encodes blocks `[frames, mel bins]` of any callers, at most [`AudioTowerConfig::block_frames`] each. Returns the rows
    /// of each block.
    pub fn encode(&self, ops: &O, blocks: &[&[f32]], spec: &mut RowSpec, back: &mut ReadBack) -> Vec<Vec<f32>> {
        let frames: Vec<usize> = blocks.iter().map(|mel| mel.len() / self.config.num_mel_bins).collect();
        let sum = |of: fn(usize) -> usize| frames.iter().map(|&frames| of(frames)).sum::<usize>();
        if sum(tokens) == 0 {
            return vec![Vec::new(); blocks.len()];
        }
        let [all, halved, pairs] = [sum(|frames| frames), sum(rows), sum(tokens)].map(|rows| ops.bucket(rows));
        let mut layout = SpecLayout::default();
        let sections = TowerSections {
            mel: layout.list(all * self.config.num_mel_bins),
            conv1: layout.list(all * KERNEL),
            conv2: layout.list(halved * KERNEL),
            positions: layout.list(halved),
            segments: layout.segments(halved, halved),
            first: layout.list(pairs),
            second: layout.list(pairs),
        };
        layout.clear_spec(spec);
        fill(spec, &sections, blocks, &frames);
        let key = StepKey { stage: "encoder", rows: all, variant: halved * (all + 1) + pairs };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(self.forward(ops, spec, &sections));
        });
        ops.collect(ticket, back);
        let mut rest = &back.numbers[..];
        let take = |&frames: &usize| {
            let (mine, after) = rest.split_at(tokens(frames) * self.config.output_dim);
            rest = after;
            mine.to_vec()
        };
        frames.iter().map(take).collect()
    }

    fn forward(&self, ops: &O, spec: &O::Spec, sections: &TowerSections) -> O::T {
        let index = |section| ops.index(spec, section);
        let convolved = |x: &O::T, columns: usize, seen: SpecSection, (weight, bias): &(O::Weight, O::Weight)| {
            let x = ops.reshape(ops.gather_at(x, &index(seen)), KERNEL * columns);
            ops.gelu(ops.linear(&x, weight, Some(bias)))
        };
        let bins = self.config.num_mel_bins;
        let x = convolved(&ops.floats(spec, sections.mel, bins), bins, sections.conv1, &self.conv1);
        let x = convolved(&x, self.config.d_model, sections.conv2, &self.conv2);
        let mut x = ops.add(x, &ops.embed_at(&self.positions, &index(sections.positions)));
        let segments = index(sections.segments.words());
        for layer in &self.layers {
            x = layer.forward(ops, x, &segments);
        }
        let x = ops.add(ops.gather_at(&x, &index(sections.first)), &ops.gather_at(&x, &index(sections.second)));
        let x = ops.layer_norm(&ops.scale_all(x, 0.5), &self.ln_post.0, &self.ln_post.1, NORM_EPS);
        ops.linear(&x, &self.proj.0, Some(&self.proj.1))
    }
}

fn fill(spec: &mut RowSpec, sections: &TowerSections, blocks: &[&[f32]], frames: &[usize]) {
    /// For each block its length, and the number of rows before it.
    fn starts(lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = (usize, usize)> {
        lengths.scan(0, |before, length| {
            *before += length;
            Some((*before - length, length))
        })
    }
    let frames = || frames.iter().copied();
    spec.set_floats_each(sections.mel, blocks.iter().flat_map(|mel| mel.iter().copied()));
    spec.set_each(sections.conv1, starts(frames()).flat_map(|(first, frames)| neighbours(first, frames, 1)));
    spec.set_each(sections.conv2, starts(frames()).flat_map(|(first, frames)| neighbours(first, frames, 2)));
    spec.set_each(sections.positions, frames().flat_map(|frames| 0..rows(frames) as u32));
    spec.set_segments(sections.segments, &frames().map(rows).collect::<Vec<_>>());
    let pairs = |second: usize| {
        starts(frames().map(rows))
            .flat_map(move |(first, rows)| (0..rows / 2).map(move |pair| (first + 2 * pair + second) as u32))
    };
    spec.set_each(sections.first, pairs(0));
    spec.set_each(sections.second, pairs(1));
}

/// The audio tower as the engine's encoder.
pub struct AudioEncoder<O: StepOps> {
    ops: O,
    tower: AudioTower<O>,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: StepOps> AudioEncoder<O> {
    /// Creates the encoder with its own buffers.
    pub fn new(ops: O, tower: AudioTower<O>) -> Self {
        Self { ops, tower, spec: RowSpec::default(), back: ReadBack::default() }
    }
}

impl<O: Device> Encoder for AudioEncoder<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let blocks: Vec<&[f32]> = windows.iter().map(|window| window.data).collect();
        let rows = self.tower.encode(&self.ops, &blocks, &mut self.spec, &mut self.back);
        let width = self.tower.config.output_dim;
        rows.into_iter().map(|rows| AudioRows { count: rows.len() / width, rows }).collect()
    }
}
