//! A codec whose decoder cannot be streamed exactly: two of its norms take mean and deviation over all of the time, and its
//! last layers see ahead. So codes are decoded in windows, each as a sound of its own.
//!
//! Codes become rows, these two rows each, which pass causal layers; each becomes two of a coarse spectrogram, which pass
//! layers that see a few rows ahead; a matrix gives magnitudes and angles, and the inverse transform the samples.
//!
//! - [`config`]: sizes of the decoder and of windows
//! - [`stage`]: windows of a stream

pub mod config;
pub mod stage;

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{Ops, RowSpec, SequenceRows, SpecLayout, WeightLayout};

use self::config::{StackConfig, WindowCodecConfig};
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{AudioLayer, LayerSegments, NORM_EPS, linear, norm};
use crate::models::parts::weights::Weights;

/// Taps of the second transposed convolution. The first has as many as its stride, which is 2 for both.
const TAPS: usize = 3;
/// Rows of a code in the first layers.
const DOUBLED: usize = 2;

type Affine<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

/// Layers with the norm after them.
struct Stack<O: Ops> {
    config: StackConfig,
    frequencies: O::Weight,
    layers: Vec<AudioLayer<O>>,
    norm: Affine<O>,
}

/// The decoder's weights.
pub struct WindowCodec<O: Ops> {
    config: WindowCodecConfig,
    tables: Vec<O::Weight>,
    /// First transposed convolution: a row to two, and the norm after it.
    first: (Affine<O>, Affine<O>),
    decoder: Stack<O>,
    /// Second transposed convolution: a row and the one before it to two, and the norm after it.
    second: (Affine<O>, Affine<O>),
    embeddings: O::Weight,
    vocoder: Stack<O>,
    head: Affine<O>,
}

/// A window of codes, and the part of it whose samples are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeWindow {
    /// Codes of each frame.
    pub codes: Vec<Vec<u32>>,
    /// First code whose samples are wanted, and the one after the last.
    pub wanted: (usize, usize),
}

impl CodeWindow {
    /// Spectra that the wanted samples lie in: the first, and the one after the last. A sample lies in four of them.
    pub fn spectra(&self) -> (usize, usize) {
        let (from, to) = self.wanted;
        let rows = WindowCodecConfig::ROWS;
        ((from * rows).saturating_sub(rows / 2), (to * rows + rows / 2).min(self.codes.len() * rows))
    }
}

/// Rows of a stack in a step.
struct StackSections {
    batch: BatchSection,
    segments: SegmentSection,
}

/// Sections of the row spec.
pub struct WindowCodecSections {
    codes: Vec<SpecSection>,
    doubled: StackSections,
    /// Rows that the second convolution sees: one more than there are in each window, and those before them.
    seen: [SpecSection; 2],
    /// Rows that it makes of a window, the cut one included, and the windows' lengths.
    made: SpecSection,
    made_lengths: SegmentSection,
    /// Rows of these without the cut ones.
    kept: SpecSection,
    spectrogram: StackSections,
    spectra: SpecSection,
}

impl<O: Ops> Stack<O> {
    fn load(w: &Weights<'_, O>, config: StackConfig, theta: f32) -> Result<Self, LoadError> {
        let layer = |at| AudioLayer::load(&w.at("layers").at(at), config.layer);
        Ok(Self {
            frequencies: w.rotary(config.layer.width / config.layer.heads, theta)?,
            layers: (0..config.layers).map(layer).collect::<Result<_, _>>()?,
            norm: norm(w, "layer_norm", config.layer.width)?,
            config,
        })
    }

    fn forward(&self, ops: &O, mut x: O::T, (spec, sections): (&O::Spec, &StackSections)) -> O::T {
        let (batch, lengths) = (ops.batch_at(spec, sections.batch), ops.index(spec, sections.segments.words()));
        let rotary = Some((&batch, &self.frequencies));
        let segments = LayerSegments { lengths: &lengths, rotary, reach: self.config.reach };
        for layer in &self.layers {
            x = layer.forward(ops, x, &segments);
        }
        ops.layer_norm(&x, &self.norm.0, &self.norm.1, NORM_EPS)
    }
}

impl StackSections {
    fn new(layout: &mut SpecLayout, rows: usize, windows: usize) -> Self {
        Self { batch: layout.batch(rows, windows, 1), segments: layout.segments(rows, windows) }
    }

    fn fill(&self, spec: &mut RowSpec, lengths: &[usize]) {
        let sequence = |&rows: &usize| SequenceRows { table: &[0], position: 0, rows };
        spec.set_batch(self.batch, &lengths.iter().map(sequence).collect::<Vec<_>>(), 0);
        spec.set_segments(self.segments, lengths);
    }
}

/// Loads a transposed convolution `[input, out, taps]` of stride 2 as a matrix to two rows, `[2 * out, steps * input]`: of
/// each row alone, or of each and the one before it.
fn doubling<O: Ops>(
    w: &Weights<'_, O>,
    (input, out, taps): (usize, usize, usize),
    steps: usize,
) -> Result<(Affine<O>, Affine<O>), LoadError> {
    let conv = w.at("conv");
    let (weight, bias) = (conv.values("weight", &[input, out, taps])?, conv.values("bias", &[out])?);
    let mut matrix = vec![0.0; DOUBLED * out * steps * input];
    for (at, by) in weight.iter().enumerate() {
        let (column, row, tap) = (at / (out * taps), at / taps % out, at % taps);
        matrix[((tap % DOUBLED) * out + row) * steps * input + tap / DOUBLED * input + column] = *by;
    }
    let matrix = w.made("transposed convolution", WeightLayout::Linear, &matrix, &[DOUBLED * out, steps * input])?;
    let bias = w.made("joined bias", WeightLayout::Vector, &bias.repeat(DOUBLED), &[DOUBLED * out])?;
    Ok(((matrix, bias), norm(w, "norm", out)?))
}

impl<O: Ops> WindowCodec<O> {
    /// Loads the codebooks' entries below `quantizer`, and the decoder below `w`.
    pub fn load(quantizer: &Weights<'_, O>, w: &Weights<'_, O>, config: WindowCodecConfig) -> Result<Self, LoadError> {
        let (width, narrow) = (config.decoder.layer.width, config.vocoder.layer.width);
        let table = |(at, entries): (usize, &usize)| {
            quantizer.at("vq.layers").at(at).at("_codebook").table("embed", *entries, width)
        };
        let vocoder = w.at("vocoder");
        Ok(Self {
            tables: config.entries.iter().enumerate().map(table).collect::<Result<_, _>>()?,
            first: doubling(&w.at("dconv1"), (width, width, DOUBLED), 1)?,
            decoder: Stack::load(w, config.decoder, config.theta)?,
            second: doubling(&w.at("dconv2"), (width, config.bins, TAPS), TAPS.div_ceil(DOUBLED))?,
            embeddings: vocoder.linear("embeddings.weight", narrow, config.bins)?,
            head: linear(&vocoder.at("head"), "out", config.spectrum(), narrow)?,
            vocoder: Stack::load(&vocoder, config.vocoder, config.theta)?,
            config,
        })
    }

    /// Sizes of the decoder.
    pub fn config(&self) -> &WindowCodecConfig {
        &self.config
    }

    /// Reserves the row spec's sections for windows of `codes` codes in all.
    pub fn layout(&self, layout: &mut SpecLayout, codes: usize) -> WindowCodecSections {
        let (doubled, rows) = (DOUBLED * codes, WindowCodecConfig::ROWS * codes);
        // A window has one code at least, so there are at most as many of them.
        let windows = codes;
        WindowCodecSections {
            codes: self.tables.iter().map(|_| layout.list(codes)).collect(),
            doubled: StackSections::new(layout, doubled, windows),
            seen: [(); 2].map(|()| layout.list(doubled + windows)),
            made: layout.list(rows + windows),
            made_lengths: layout.segments(rows + windows, windows),
            kept: layout.list(rows),
            spectrogram: StackSections::new(layout, rows, windows),
            spectra: layout.list(rows),
        }
    }

    /// Fills a row spec with windows.
    pub fn fill(&self, spec: &mut RowSpec, sections: &WindowCodecSections, windows: &[CodeWindow]) {
        for (at, section) in sections.codes.iter().enumerate() {
            spec.set_each(*section, windows.iter().flat_map(|window| window.codes.iter().map(move |codes| codes[at])));
        }
        let lengths = |by: usize, more: usize| -> Vec<usize> {
            windows.iter().map(|window| window.codes.len() * by + more).collect()
        };
        let (doubled, rows) = (lengths(DOUBLED, 0), lengths(WindowCodecConfig::ROWS, 0));
        sections.doubled.fill(spec, &doubled);
        let [own, before] = sections.seen;
        spec.set_each(own, starts(&doubled).flat_map(|(first, rows)| padded(first, rows, 0)));
        spec.set_each(before, starts(&doubled).flat_map(|(first, rows)| padded(first, rows, 1)));
        // Two rows of each that the convolution saw; the last one is of nothing but the bias.
        let made = lengths(WindowCodecConfig::ROWS, 1);
        let pairs = lengths(WindowCodecConfig::ROWS, DOUBLED);
        let first_rows = starts(&pairs).zip(&made);
        spec.set_each(sections.made, first_rows.flat_map(|((first, _), made)| (first..first + made).map(word)));
        spec.set_segments(sections.made_lengths, &made);
        let kept = starts(&made).flat_map(|(first, made)| (first..first + made - 1).map(word));
        spec.set_each(sections.kept, kept);
        sections.spectrogram.fill(spec, &rows);
        let wanted = starts(&rows).zip(windows).flat_map(|((first, _), window)| {
            let (from, to) = window.spectra();
            (first + from..first + to).map(word)
        });
        spec.set_each(sections.spectra, wanted);
    }

    /// Returns the wanted spectra of all windows: logarithms of the magnitudes, then angles.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &WindowCodecSections) -> O::T {
        let index = |section: SpecSection| ops.index(spec, section);
        let tables = self.tables.iter().zip(&sections.codes);
        let embedded = tables.map(|(table, codes)| ops.embed_at(table, &index(*codes)));
        let sum = embedded.reduce(|sum, codes| ops.add(sum, &codes)).expect("a code has codebooks");
        let ((matrix, bias), (scale, shift)) = &self.first;
        let x = ops.reshape(ops.linear(&sum, matrix, Some(bias)), self.config.decoder.layer.width);
        let lengths = index(sections.doubled.segments.words());
        let x = ops.segment_norm_at(&x, scale, shift, NORM_EPS, &lengths);
        let x = self.decoder.forward(ops, x, (spec, &sections.doubled));
        let seen = sections.seen.map(|rows| ops.gather_at(&x, &index(rows)));
        let ((matrix, bias), (scale, shift)) = &self.second;
        let x = ops.linear(&ops.concat_columns(&seen.each_ref()), matrix, Some(bias));
        let x = ops.gather_at(&ops.reshape(x, self.config.bins), &index(sections.made));
        let x = ops.segment_norm_at(&x, scale, shift, NORM_EPS, &index(sections.made_lengths.words()));
        let x = ops.linear(&ops.gather_at(&x, &index(sections.kept)), &self.embeddings, None);
        let x = self.vocoder.forward(ops, x, (spec, &sections.spectrogram));
        ops.linear(&ops.gather_at(&x, &index(sections.spectra)), &self.head.0, Some(&self.head.1))
    }
}

/// For each length, the sum of those before it, and itself.
fn starts(lengths: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    lengths.iter().scan(0, |before, &length| {
        *before += length;
        Some((*before - length, length))
    })
}

/// One row more than `rows` rows from `first` on, each `back` rows earlier; those beyond both ends are absent.
fn padded(first: usize, rows: usize, back: usize) -> impl Iterator<Item = u32> {
    let row = move |at: usize| at.checked_sub(back).filter(|&at| at < rows);
    (0..=rows).map(move |at| row(at).map_or(repartee_kernels::NO_ROW, |at| word(first + at)))
}

fn word(row: usize) -> u32 {
    row as u32
}
