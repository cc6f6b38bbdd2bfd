//! The encoder's weights, and its step over one window.

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{Activation, Ops, ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey};

use super::attention::{PositionTable, Positions};
use super::layer::ConformerLayer;
use super::shape::ConformerShape;
use super::subsampling::{Subsampling, SubsamplingSections};
use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, WindowInput};
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::layer::{NORM_EPS, linear, norm};
use crate::models::parts::weights::Weights;

/// A FastConformer encoder and its adapter.
pub struct Conformer<O: Ops> {
    shape: ConformerShape,
    subsampling: Subsampling<O>,
    positions: PositionTable<O>,
    layers: Vec<ConformerLayer<O>>,
    adapter_norm: (O::Weight, O::Weight),
    adapter: Vec<(O::Weight, O::Weight)>,
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
            shape,
        })
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

    fn forward(&self, ops: &O, spec: &O::Spec, sections: &ConformerSections) -> O::T {
        let mut x = self.subsampling.forward(ops, spec, &sections.subsampling);
        if self.shape.scales_rows {
            x = ops.scale_all(x, (self.shape.width as f32).sqrt());
        }
        let batch = ops.batch_at(spec, sections.batch);
        let keys = self.positions.keys(ops, &ops.index(spec, sections.zeros), &batch);
        let at = Positions {
            batch: &batch,
            segments: &ops.index(spec, sections.segments.words()),
            keys: &keys,
            frequencies: self.positions.frequencies(),
        };
        for layer in &self.layers {
            x = layer.forward(ops, x, &at);
        }
        let mut x = ops.layer_norm(&x, &self.adapter_norm.0, &self.adapter_norm.1, NORM_EPS);
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
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> ConformerEncoder<O> {
    /// Creates an encoder on a device with buffers of its own.
    pub fn new(ops: &O, conformer: Conformer<O>) -> Self {
        Self { ops: ops.with_own_buffers(), conformer, spec: RowSpec::default(), back: ReadBack::default() }
    }
}

impl<O: Device> Encoder for ConformerEncoder<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let Self { ops, conformer, spec, back } = self;
        let encoded = windows.iter().map(|window| conformer.encode(ops, window.data, spec, back));
        encoded.map(|rows| AudioRows { count: rows.len() / conformer.output(), rows }).collect()
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}
