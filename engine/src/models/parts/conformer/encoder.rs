//! The encoder's weights, and its step over one window. [`unfinished`](super::unfinished) runs a part of that.

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{Activation, Ops, ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey};

use super::attention::{PositionTable, Positions};
use super::layer::ConformerLayer;
use super::shape::ConformerShape;
use super::subsampling::{Subsampling, SubsamplingSections};
use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, EncodingProgress, WindowInput};
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{NORM_EPS, linear, norm};
use crate::models::parts::audio_encoder::pieces::UNIT;
use crate::models::parts::weights::Weights;

/// A FastConformer encoder and its adapter.
pub struct Conformer<O: Ops> {
    pub(super) shape: ConformerShape,
    pub(super) subsampling: Subsampling<O>,
    pub(super) positions: PositionTable<O>,
    pub(super) layers: Vec<ConformerLayer<O>>,
    adapter_norm: (O::Weight, O::Weight),
    adapter: Vec<(O::Weight, O::Weight)>,
    /// Most multiplications of a unit of work.
    pub(super) most: usize,
}

/// Sections of the row spec for one window.
struct ConformerSections {
    subsampling: SubsamplingSections,
    /// Ids of the table of positions, all 0.
    zeros: SpecSection,
    batch: BatchSection,
    segments: SegmentSection,
}

impl<O: Ops> Conformer<O> {
    /// Loads the encoder below `w`, and the adapter below `adapter`.
    pub fn load(w: &Weights<'_, O>, adapter: &Weights<'_, O>, shape: ConformerShape) -> Result<Self, LoadError> {
        let layer = |at| ConformerLayer::load(&w.at("layers").at(at), &shape);
        let widths = std::iter::once(shape.width).chain(shape.adapter.iter().copied());
        // A function without weights stands between two matrices.
        let matrices = shape.adapter.iter().zip(widths).enumerate();
        let matrices = matrices.map(|(at, (out, input))| linear(adapter, &(2 * at + 1).to_string(), *out, input));
        Ok(Self {
            subsampling: Subsampling::load(&w.at("pre_encode"), &shape)?,
            positions: PositionTable::new(w, shape.width)?,
            layers: (0..shape.layers).map(layer).collect::<Result<_, _>>()?,
            adapter_norm: norm(adapter, "0", shape.width)?,
            adapter: matrices.collect::<Result<_, _>>()?,
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

    /// Sizes of the encoder.
    pub fn shape(&self) -> &ConformerShape {
        &self.shape
    }

    /// Width of an encoded row.
    pub fn output(&self) -> usize {
        self.shape.output()
    }

    /// Encodes one window, `[frames, bins]`; returns its rows.
    pub fn encode(&self, ops: &O, mel: &[f32], spec: &mut RowSpec, back: &mut ReadBack) -> Vec<f32> {
        let frames = mel.len() / self.shape.bins;
        let own = ConformerShape::rows(frames);
        if own == 0 {
            return Vec::new();
        }
        let mut layout = SpecLayout::default();
        let subsampling = self.subsampling.layout(ops, &mut layout, frames);
        let rows = subsampling.rows();
        let sections = ConformerSections {
            zeros: layout.list(rows),
            batch: layout.batch(rows, 1, 1),
            segments: layout.segments(rows, 1),
            subsampling,
        };
        layout.clear_spec(spec);
        self.subsampling.fill(spec, &sections.subsampling, mel);
        spec.set_each(sections.zeros, std::iter::repeat_n(0, rows));
        spec.set_batch(sections.batch, &[SequenceRows { table: &[0], position: 0, rows: own }], 0);
        spec.set_segments(sections.segments, &[own]);
        let key = StepKey { stage: "encoder", rows, variant: sections.subsampling.variant() };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(self.forward(ops, spec, &sections));
        });
        ops.collect(ticket, back);
        back.numbers[..own * self.output()].to_vec()
    }

    /// Rows before the layers.
    pub(super) fn begin(&self, ops: &O, spec: &O::Spec, sections: &SubsamplingSections) -> O::T {
        let x = self.subsampling.forward(ops, spec, sections);
        if self.shape.scales_rows { ops.scale_all(x, (self.shape.width as f32).sqrt()) } else { x }
    }

    fn forward(&self, ops: &O, spec: &O::Spec, sections: &ConformerSections) -> O::T {
        let mut x = self.begin(ops, spec, &sections.subsampling);
        let batch = ops.batch_at(spec, sections.batch);
        let keys = self.positions.keys(ops, &ops.index(spec, sections.zeros), &batch);
        let at = Positions {
            batch: &batch,
            segments: &ops.index(spec, sections.segments.words()),
            keys: &keys,
            frequencies: self.positions.frequencies(),
        };
        for layer in &self.layers {
            x = layer.forward(ops, x, self.shape.heads, &at);
        }
        self.adapt(ops, &x)
    }

    /// Rows of the layers to those of the language model, each independent of the others.
    pub(super) fn adapt(&self, ops: &O, x: &O::T) -> O::T {
        let mut x = ops.layer_norm(x, &self.adapter_norm.0, &self.adapter_norm.1, NORM_EPS);
        for (at, (weight, bias)) in self.adapter.iter().enumerate() {
            x = ops.linear(&if at > 0 { ops.activation(x, Activation::Gelu) } else { x }, weight, Some(bias));
        }
        x
    }
}

/// An encoder with its device and buffers.
pub struct ConformerEncoder<O: Ops> {
    ops: O,
    conformer: Conformer<O>,
    /// Most frames of a window.
    most_frames: usize,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> ConformerEncoder<O> {
    /// Creates an encoder of windows of at most `most_frames` frames, on a device with buffers of its own.
    pub fn new(ops: &O, conformer: Conformer<O>, most_frames: usize) -> Self {
        let (ops, spec, back) = (ops.with_own_buffers(), RowSpec::default(), ReadBack::default());
        Self { ops, conformer, most_frames, spec, back }
    }

    fn heard(&self, rows: Vec<f32>) -> AudioRows {
        AudioRows { count: rows.len() / self.conformer.output(), rows }
    }
}

impl<O: Device> Encoder for ConformerEncoder<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let encode = |window: &WindowInput<'_>| {
            let rows = self.conformer.encode(&self.ops, window.data, &mut self.spec, &mut self.back);
            self.heard(rows)
        };
        windows.iter().map(encode).collect()
    }

    fn units(&self, window: &WindowInput<'_>) -> usize {
        self.conformer.units(window.data.len() / self.conformer.shape().bins)
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        let Self { ops, conformer, spec, back, .. } = self;
        let rows = conformer.advance(ops, window.data, progress, units, (spec, back))?;
        Some(self.heard(rows))
    }

    fn unfinished_bytes(&self) -> usize {
        self.conformer.unfinished_bytes(self.most_frames)
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}
