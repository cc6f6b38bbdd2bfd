//! `thinker.audio_tower`: log-mel windows to audio embeddings, after `Qwen3OmniMoeAudioEncoder`.
//!
//! Mel frames pass three convolutions of stride 2 in chunks of 100; the reference's arithmetic hard-codes 13 tokens for
//! a full chunk. Attention is bidirectional within a window of `n_window_infer` frames and reaches no further, so a
//! closed window is final.

use repartee_kernels::row_spec::{SegmentSection, SpecSection};
use repartee_kernels::{ReadBack, RowSpec, SpecLayout, StepKey, StepOps, WeightLayout};

use super::config::AudioConfig;
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{AudioLayer, AudioShape, NORM_EPS, linear, norm, sinusoids};
use crate::models::parts::weights::Weights;

/// Mel frames in a chunk: twice the `n_window` of 50 that the reference's length formula assumes.
pub const CHUNK_FRAMES: usize = 100;
/// Tokens of a full chunk, hard-coded in the reference.
pub const CHUNK_TOKENS: usize = 13;

/// One attention window of one caller.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// Log-mel frames, `[frames, mel bins]`.
    pub mel: &'a [f32],
    /// True if a full chunk precedes it in the same turn. Then the reference pads an unfinished last chunk with zeros
    /// to a full one; otherwise it leaves the chunk as it is.
    pub follows_full_chunk: bool,
}

/// Audio tower: three convolutions, transformer layers, output projection.
pub struct AudioTower<O: StepOps> {
    config: AudioConfig,
    convs: Vec<(O::Weight, O::Weight)>,
    conv_out: O::Weight,
    positions: O::Weight,
    layers: Vec<AudioLayer<O>>,
    ln_post: (O::Weight, O::Weight),
    proj1: (O::Weight, O::Weight),
    proj2: (O::Weight, O::Weight),
}

/// Sections of the row spec for a step, whose windows have chunks of one length.
struct TowerSections {
    /// Mel frames of a chunk.
    frames: usize,
    chunks: usize,
    mel: SpecSection,
    /// Indices of the tokens to keep, their positions within their chunk, and the windows' lengths in tokens.
    keep: SpecSection,
    positions: SpecSection,
    segments: SegmentSection,
}

/// Number of tokens of one chunk of `frames` mel frames.
fn chunk_tokens(frames: usize) -> usize {
    (0..3).fold(frames, |n, _| n.div_ceil(2))
}

/// Number of tokens of a window of `frames` mel frames.
pub fn tokens(frames: usize) -> usize {
    frames / CHUNK_FRAMES * CHUNK_TOKENS + chunk_tokens(frames % CHUNK_FRAMES)
}

impl<O: StepOps> AudioTower<O> {
    /// Loads `thinker.audio_tower`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &AudioConfig) -> Result<Self, LoadError> {
        let (d, c) = (config.tower.d_model, config.downsample_hidden_size);
        // The reference's images are [mel, time]. Ours are [time, mel], so that a time step is one row.
        let convs = (1..=3)
            .map(|i| {
                let input = if i == 1 { 1 } else { c };
                let (name, shape) = (format!("conv2d{i}"), [c, input, 3, 3]);
                let weight = format!("{name}.weight");
                let weight =
                    w.swapped(&weight, WeightLayout::Conv2d { stride: 2 }, &shape, (c * input, 3, 3), &shape)?;
                Ok((weight, w.vector(&format!("{name}.bias"), c)?))
            })
            .collect::<Result<Vec<_>, LoadError>>()?;
        let bins = chunk_tokens(config.tower.num_mel_bins);
        let shape = [d, c * bins];
        let conv_out = w.swapped("conv_out.weight", WeightLayout::Linear, &shape, (d, c, bins), &shape)?;
        let shape = AudioShape {
            width: d,
            heads: config.tower.encoder_attention_heads,
            inner: config.tower.encoder_ffn_dim,
            key_bias: true,
        };
        let layers =
            (0..config.tower.encoder_layers).map(|i| AudioLayer::load(&w.at(format_args!("layers.{i}")), shape));
        Ok(Self {
            convs,
            conv_out,
            positions: w.made("positions", WeightLayout::Table, &sinusoids(CHUNK_TOKENS, d), &[CHUNK_TOKENS, d])?,
            layers: layers.collect::<Result<_, _>>()?,
            ln_post: norm(w, "ln_post", d)?,
            proj1: linear(w, "proj1", d, d)?,
            proj2: linear(w, "proj2", config.tower.output_dim, d)?,
            config: config.clone(),
        })
    }

    /// Encodes windows of any callers; returns the rows of each window.
    ///
    /// Windows with chunks of one length form one step. All windows have full chunks, except a turn's first window that
    /// is shorter than a chunk.
    pub fn encode(&self, ops: &O, windows: &[Window<'_>], spec: &mut RowSpec, back: &mut ReadBack) -> Vec<Vec<f32>> {
        let mut rows = vec![Vec::new(); windows.len()];
        let mut lengths: Vec<usize> = windows.iter().map(|window| self.chunk_frames(window)).collect();
        let of_window = lengths.clone();
        lengths.sort_unstable();
        lengths.dedup();
        for frames in lengths {
            let mine: Vec<usize> = (0..windows.len()).filter(|&i| of_window[i] == frames).collect();
            let inputs: Vec<Window<'_>> = mine.iter().map(|&i| windows[i]).collect();
            self.step(ops, frames, &inputs, spec, back);
            let mut rest = &back.numbers[..];
            for (&i, window) in mine.iter().zip(&inputs) {
                let (encoded, after) = rest.split_at(tokens(self.frames(window)) * self.config.tower.output_dim);
                rows[i] = encoded.to_vec();
                rest = after;
            }
        }
        rows
    }

    /// Number of mel frames of a window.
    fn frames(&self, window: &Window<'_>) -> usize {
        window.mel.len() / self.config.tower.num_mel_bins
    }

    /// Mel frames in each chunk of a window: the last chunk is padded, or shorter.
    fn chunk_frames(&self, window: &Window<'_>) -> usize {
        if window.follows_full_chunk { CHUNK_FRAMES } else { self.frames(window).min(CHUNK_FRAMES) }
    }

    /// Encodes windows whose chunks have `frames` frames, and reads their rows back.
    fn step(&self, ops: &O, frames: usize, windows: &[Window<'_>], spec: &mut RowSpec, back: &mut ReadBack) {
        let of = |window: &Window<'_>| (self.frames(window).div_ceil(frames), tokens(self.frames(window)));
        let (chunks, count) = windows.iter().map(of).fold((0, 0), |sum, (chunks, rows)| (sum.0 + chunks, sum.1 + rows));
        let (chunks, rows) = (ops.bucket(chunks), ops.bucket(count));
        let mut layout = SpecLayout::default();
        let sections = TowerSections {
            frames,
            chunks,
            mel: layout.list(chunks * frames * self.config.tower.num_mel_bins),
            keep: layout.list(rows),
            positions: layout.list(rows),
            segments: layout.segments(rows, rows),
        };
        layout.clear_spec(spec);
        self.fill(spec, &sections, windows);
        // No chunk has more frames than a full one, so the key is unique.
        let key = StepKey { stage: "encoder", rows, variant: chunks * (CHUNK_FRAMES + 1) + frames };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(self.forward(ops, spec, &sections));
        });
        ops.collect(ticket, back);
    }

    fn fill(&self, spec: &mut RowSpec, sections: &TowerSections, windows: &[Window<'_>]) {
        let size = sections.frames * self.config.tower.num_mel_bins;
        let padded = |mel: &[f32]| mel.len().next_multiple_of(size);
        let mel = windows.iter().flat_map(|window| {
            let padding = padded(window.mel) - window.mel.len();
            window.mel.iter().copied().chain(std::iter::repeat_n(0.0, padding))
        });
        spec.set_floats_each(sections.mel, mel);
        let tokens = |window: &Window<'_>| 0..tokens(self.frames(window)) as u32;
        let mut first = 0;
        let kept = windows.iter().flat_map(|window| {
            // Only the padding at the very end is cut off: every chunk before it is full.
            let from = first;
            first += (padded(window.mel) / size * chunk_tokens(sections.frames)) as u32;
            tokens(window).map(move |token| from + token)
        });
        spec.set_each(sections.keep, kept);
        let positions = windows.iter().flat_map(|window| tokens(window).map(|token| token % CHUNK_TOKENS as u32));
        spec.set_each(sections.positions, positions);
        let segments: Vec<usize> = windows.iter().map(|window| tokens(window).len()).collect();
        spec.set_segments(sections.segments, &segments);
    }

    fn forward(&self, ops: &O, spec: &O::Spec, sections: &TowerSections) -> O::T {
        let mel = ops.floats(spec, sections.mel, 1);
        let x = self.downsample(ops, mel, sections.chunks, sections.frames);
        let x = ops.gather_at(&x, &ops.index(spec, sections.keep));
        let mut x = ops.add(x, &ops.embed_at(&self.positions, &ops.index(spec, sections.positions)));
        let segments = ops.index(spec, sections.segments.words());
        for layer in &self.layers {
            x = layer.forward(ops, x, &segments);
        }
        let x = ops.layer_norm(&x, &self.ln_post.0, &self.ln_post.1, NORM_EPS);
        let x = ops.gelu(ops.linear(&x, &self.proj1.0, Some(&self.proj1.1)));
        ops.linear(&x, &self.proj2.0, Some(&self.proj2.1))
    }

    /// Runs chunks of `frames` frames, `[chunks * frames * bins, 1]`, through the convolutions.
    fn downsample(&self, ops: &O, mut x: O::T, chunks: usize, frames: usize) -> O::T {
        let (mut height, mut width) = (frames, self.config.tower.num_mel_bins);
        for (weight, bias) in &self.convs {
            x = ops.gelu(ops.conv2d(&x, chunks, height, width, weight, bias));
            (height, width) = (height.div_ceil(2), width.div_ceil(2));
        }
        ops.linear(&ops.reshape(x, self.config.downsample_hidden_size * width), &self.conv_out, None)
    }
}
