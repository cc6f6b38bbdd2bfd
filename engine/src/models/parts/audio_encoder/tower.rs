//! The encoder's weights, and its step over windows of any callers.

use std::ops::Range;

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{Activation, Ops, ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey, WeightLayout};

use super::convolutions::{Chunk, Stem, StemSections, starts};
use super::layer::{AudioLayer, LayerSegments, NORM_EPS, linear, norm};
use super::pieces::UNIT;
use super::shape::{Convolutions, EncoderShape, Positions};
use crate::model::WindowInput;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Audio encoder: convolutions, transformer layers, a norm, linear layers.
pub struct AudioTower<O: Ops> {
    shape: EncoderShape,
    stem: Stem<O>,
    pub(super) positions: TowerPositions<O>,
    pub(super) layers: Vec<AudioLayer<O>>,
    /// Most multiplications of a unit of work.
    pub(super) most: usize,
    norm: (O::Weight, O::Weight),
    projection: Vec<(O::Weight, O::Weight)>,
}

/// Positions of the rows.
pub(super) enum TowerPositions<O: Ops> {
    /// Added to the rows, by this table.
    Added(O::Weight),
    /// Rotations of queries and keys, with these frequencies.
    Rotary(O::Weight),
}

/// Part of the encoder that a step runs.
pub(super) struct Span<'a> {
    /// Rows before the layers, and rows that are added after all of them; `None` for a step that begins with the convolutions.
    pub before: Option<(&'a [f32], &'a [f32])>,
    /// Layers of the step.
    pub layers: Range<usize>,
    /// True if norm and projection follow.
    pub ends: bool,
}

/// Input of a step.
enum SpanInput {
    /// Inputs of the convolutions.
    Mel(StemSections),
    /// Rows, and those that are added after the layers.
    Rows(SpecSection, Option<SpecSection>),
}

/// Sections of the row spec that a step uses.
struct TowerSections {
    input: SpanInput,
    /// Positions of the rows within their chunk, as ids of the table, or else to rotate.
    positions: Option<SpecSection>,
    rotated: Option<BatchSection>,
    /// Lengths of the windows in rows.
    segments: SegmentSection,
    /// First and second row of each pair.
    pairs: Option<[SpecSection; 2]>,
}

impl<O: Ops> AudioTower<O> {
    /// Loads an encoder; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, shape: EncoderShape) -> Result<Self, LoadError> {
        let (d, rows) = (shape.layer.width, shape.convolutions.rows(shape.chunk));
        let layers = (0..shape.layers).map(|i| AudioLayer::load(&w.at(format_args!("layers.{i}")), shape.layer));
        let widths = std::iter::once(d).chain(shape.projection.iter().map(|(_, width)| *width));
        let projection = shape.projection.iter().zip(widths).map(|((name, out), width)| linear(w, name, *out, width));
        Ok(Self {
            stem: Stem::load(w, &shape)?,
            positions: match shape.positions {
                Positions::Table(name) => TowerPositions::Added(w.table(name, rows, d)?),
                Positions::Sinusoids => {
                    let table = w.made("positions", WeightLayout::Table, &sinusoids(rows, d), &[rows, d])?;
                    TowerPositions::Added(table)
                }
                Positions::Rotary(theta) => TowerPositions::Rotary(w.rotary(d / shape.layer.heads, theta)?),
            },
            layers: layers.collect::<Result<_, _>>()?,
            norm: norm(w, shape.norm, d)?,
            projection: projection.collect::<Result<_, _>>()?,
            // A device that captures steps is fast, and would capture each part of each size.
            most: if w.ops().eager_steps().is_some() { usize::MAX } else { UNIT },
            shape,
        })
    }

    /// Returns the encoder with another bound of multiplications in a unit of work.
    #[must_use]
    pub fn with_units(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Most multiplications of a unit of work.
    pub fn unit(&self) -> usize {
        self.most
    }

    /// Sizes of the encoder.
    pub fn shape(&self) -> &EncoderShape {
        &self.shape
    }

    /// Encodes windows of any callers, at most [`EncoderShape::window`] frames each. Returns the rows of each window.
    pub fn encode(
        &self,
        ops: &O,
        windows: &[WindowInput<'_>],
        spec: &mut RowSpec,
        back: &mut ReadBack,
    ) -> Vec<Vec<f32>> {
        let mut rows = vec![Vec::new(); windows.len()];
        let frames: Vec<Option<usize>> = windows.iter().map(|window| self.image_frames(window)).collect();
        let mut steps = frames.clone();
        steps.sort_unstable();
        steps.dedup();
        for image in steps {
            let mine: Vec<usize> = (0..windows.len()).filter(|&i| frames[i] == image).collect();
            let chunks: Vec<Vec<Chunk<'_>>> = mine.iter().map(|&i| self.chunks(windows[i].data, image)).collect();
            self.step(ops, &chunks, spec, back);
            let mut rest = &back.numbers[..];
            for &i in &mine {
                let tokens = self.shape.tokens(windows[i].data.len() / self.shape.bins);
                let (encoded, after) = rest.split_at(tokens * self.shape.output_width());
                (rows[i], rest) = (encoded.to_vec(), after);
            }
        }
        rows
    }

    /// Frames of a window's images, padding included. Windows whose images have one size form one step; without images
    /// all windows do.
    pub(super) fn image_frames(&self, window: &WindowInput<'_>) -> Option<usize> {
        let full = self.shape.chunk;
        // Every window but an item's last one has at least one full chunk.
        let frames = if window.index > 0 { full } else { full.min(window.data.len() / self.shape.bins) };
        matches!(self.shape.convolutions, Convolutions::Conv2d { .. }).then_some(frames)
    }

    /// Cuts a window into chunks, of `image` frames each if they are images.
    pub(super) fn chunks<'a>(&self, mel: &'a [f32], image: Option<usize>) -> Vec<Chunk<'a>> {
        let chunk = |mel: &'a [f32]| {
            let frames = mel.len() / self.shape.bins;
            Chunk { mel, frames: image.unwrap_or(frames), rows: self.shape.convolutions.rows(frames), first: 0 }
        };
        mel.chunks(self.shape.chunk * self.shape.bins).map(chunk).collect()
    }

    /// Encodes windows, each of some chunks, and reads their rows back.
    fn step(&self, ops: &O, windows: &[Vec<Chunk<'_>>], spec: &mut RowSpec, back: &mut ReadBack) {
        let whole = Span { before: None, layers: 0..self.layers.len(), ends: true };
        self.run(ops, windows, &whole, (spec, back));
    }

    /// Runs a part of the encoder over windows, each of some chunks, and reads the rows back, those of padding behind.
    pub(super) fn run(
        &self,
        ops: &O,
        windows: &[Vec<Chunk<'_>>],
        span: &Span<'_>,
        (spec, back): (&mut RowSpec, &mut ReadBack),
    ) {
        let lengths: Vec<usize> = windows.iter().map(|chunks| chunks.iter().map(|chunk| chunk.rows).sum()).collect();
        let pooled = lengths.iter().map(|&rows| self.shape.pooled(rows)).sum();
        if pooled == 0 && span.ends {
            return;
        }
        let [rows, pooled] = [lengths.iter().sum(), pooled].map(|rows| ops.bucket(rows));
        let chunks = windows.concat();
        let mut layout = SpecLayout::default();
        let width = self.shape.layer.width;
        let (input, size) = match span.before {
            None => {
                let (stem, size) = self.stem.layout(ops, &mut layout, (&chunks, rows), &self.shape);
                (SpanInput::Mel(stem), size)
            }
            Some((_, added)) => {
                let x = layout.list(rows * width);
                let added = (span.ends && !added.is_empty()).then(|| layout.list(rows * width));
                (SpanInput::Rows(x, added), 0)
            }
        };
        let sections = TowerSections {
            input,
            positions: (span.before.is_none() && matches!(self.positions, TowerPositions::Added(_)))
                .then(|| layout.list(rows)),
            rotated: matches!(self.positions, TowerPositions::Rotary(_)).then(|| layout.batch(rows, rows, 1)),
            segments: layout.segments(rows, rows),
            pairs: (span.ends && self.shape.pairs).then(|| [(); 2].map(|()| layout.list(pooled))),
        };
        layout.clear_spec(spec);
        match (&sections.input, span.before.unwrap_or_default()) {
            (SpanInput::Mel(stem), _) => self.stem.fill(spec, stem, &chunks, &self.shape),
            (SpanInput::Rows(at, added_at), (x, added)) => {
                spec.set_floats(*at, x);
                added_at.iter().for_each(|at| spec.set_floats(*at, added));
            }
        }
        if let Some(positions) = sections.positions {
            spec.set_each(
                positions,
                chunks.iter().flat_map(|chunk| chunk.first as u32..(chunk.first + chunk.rows) as u32),
            );
        }
        if let Some(rotated) = sections.rotated {
            let sequence = |chunk: &Chunk<'_>| SequenceRows { table: &[0], position: 0, rows: chunk.rows };
            spec.set_batch(rotated, &chunks.iter().map(sequence).collect::<Vec<_>>(), 0);
        }
        spec.set_segments(sections.segments, &lengths);
        for (second, &section) in sections.pairs.iter().flatten().enumerate() {
            let first = starts(lengths.iter().copied());
            let pairs = first.flat_map(|(first, rows)| (0..rows / 2).map(move |pair| first + 2 * pair + second));
            spec.set_each(section, pairs.map(|row| row as u32));
        }
        let whole = span.before.is_none() && span.ends;
        let stage = if whole { "encoder" } else { "encoder part" };
        // Parts are steps of devices that capture none.
        let key = StepKey { stage, rows, variant: size * (rows + 1) + pooled };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(self.forward(ops, spec, &sections, span));
        });
        ops.collect(ticket, back);
    }

    fn forward(&self, ops: &O, spec: &O::Spec, sections: &TowerSections, span: &Span<'_>) -> O::T {
        let width = self.shape.layer.width;
        let (mut x, mut kept) = match &sections.input {
            SpanInput::Mel(stem) => (self.stem.forward(ops, spec, stem, &self.shape), None),
            SpanInput::Rows(at, added) => {
                (ops.floats(spec, *at, width), added.map(|added| ops.floats(spec, added, width)))
            }
        };
        let batch = sections.rotated.map(|rotated| ops.batch_at(spec, rotated));
        let mut rotary = None;
        match &self.positions {
            TowerPositions::Added(table) => {
                let positions = sections.positions.map(|positions| ops.embed_at(table, &ops.index(spec, positions)));
                x = positions.into_iter().fold(x, |x, positions| ops.add(x, &positions));
            }
            TowerPositions::Rotary(frequencies) => rotary = batch.as_ref().map(|batch| (batch, frequencies)),
        }
        let lengths = &ops.index(spec, sections.segments.words());
        let segments = LayerSegments { lengths, rotary, reach: self.shape.reach };
        for at in span.layers.clone() {
            x = self.layers[at].forward(ops, x, &segments);
            if span.ends && self.shape.skip == Some(at + 1) {
                kept = Some(ops.copy(&x));
            }
        }
        if !span.ends {
            return x;
        }
        if let Some(kept) = kept {
            x = ops.add(x, &kept);
        }
        if let Some(pairs) = sections.pairs {
            let [first, second] = pairs.map(|rows| ops.gather_at(&x, &ops.index(spec, rows)));
            x = ops.scale_all(ops.add(first, &second), 0.5);
        }
        let mut x = ops.layer_norm(&x, &self.norm.0, &self.norm.1, NORM_EPS);
        for (i, (weight, bias)) in self.projection.iter().enumerate() {
            x = ops.linear(&if i > 0 { ops.activation(x, Activation::Gelu) } else { x }, weight, Some(bias));
        }
        x
    }
}

/// Whisper's position table `[length, channels]`: sines, then cosines.
fn sinusoids(length: usize, channels: usize) -> Vec<f32> {
    let half = channels / 2;
    let step = (10_000f64.ln() / (half - 1) as f64) as f32;
    let mut table = Vec::with_capacity(length * channels);
    for t in 0..length {
        let angles = (0..half).map(|i| t as f32 * (-step * i as f32).exp());
        table.extend(angles.clone().map(f32::sin));
        table.extend(angles.map(f32::cos));
    }
    table
}
