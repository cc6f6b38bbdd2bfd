//! A masked-diffusion language model beside [`CausalLm`](crate::models::parts::autoregressive::CausalLm): what it computes for
//! the stage, and a pass over several canvases.
//!
//! Keys and values of a settled place change with every mask that another place loses, because attention looks both ways. So
//! nothing is cached: each refinement step runs all layers over prompt and canvas. A pass is cut into units of layers.

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{Ops, SequenceRows, SpecLayout};

use super::canvas::RefinementPlan;
use crate::models::parts::lists::{list, row};

/// A model that refines canvases.
pub trait Denoiser<O: Ops>: Send {
    /// Sizes of refinement.
    fn plan(&self) -> RefinementPlan;
    /// Id of a place that is not settled.
    fn mask(&self) -> u32;
    /// Prompt of a text, up to its canvas; several if the text is long.
    ///
    /// # Errors
    /// The text has no ids.
    fn prompts(&self, text: &str) -> Result<Vec<Vec<u32>>, String>;
    /// Number of choices of a place, units and ends.
    fn choices(&self) -> usize;
    /// Id of a choice on the canvas.
    fn id(&self, choice: u32) -> u32;
    /// Code of a choice; `None` for an end of the speech.
    fn code(&self, choice: u32) -> Option<u32>;

    /// Number of layers.
    fn layers(&self) -> usize;
    /// Multiplications of a row in a layer.
    fn row_work(&self) -> usize;
    /// Width of a row.
    fn width(&self) -> usize;
    /// Rows of ids before the first layer.
    fn embed(&self, ops: &O, ids: &O::Index) -> O::T;
    /// Applies a layer to rows that see all rows of their segment.
    fn layer(&self, ops: &O, at: usize, x: O::T, seen: (&O::Batch, &O::Index)) -> O::T;
    /// Logits of rows after the last layer, one for each choice.
    fn logits(&self, ops: &O, x: &O::T) -> O::T;
}

/// A pass over the canvases of several slots: one refinement step of each.
pub struct Pass<O: Ops> {
    /// Rows of all canvases after some layers, and the number of these. There are rows between two calls.
    x: Option<O::T>,
    layers: usize,
    /// Positions of each canvas.
    lengths: Vec<usize>,
}

/// Sections of the row spec for the rows of a pass.
struct PassSections {
    batch: BatchSection,
    segments: SegmentSection,
}

impl<O: Ops> Pass<O> {
    /// Begins a pass over the ids of canvases.
    pub fn new(ops: &O, model: &impl Denoiser<O>, canvases: &[&[u32]]) -> Self {
        let x = model.embed(ops, &list(ops, &canvases.concat()));
        Self { x: Some(x), layers: 0, lengths: canvases.iter().map(|ids| ids.len()).collect() }
    }

    /// Runs layers of at most about `most` multiplications, one at least. True once all are done.
    pub fn advance(&mut self, ops: &O, model: &impl Denoiser<O>, most: usize) -> bool {
        let rows: usize = self.lengths.iter().sum();
        let count = (most / (rows * model.row_work()).max(1)).max(1);
        let to = model.layers().min(self.layers + count);
        let mut layout = SpecLayout::default();
        let sections = PassSections {
            batch: layout.batch(rows, self.lengths.len(), 1),
            segments: layout.segments(rows, self.lengths.len()),
        };
        let mut spec = layout.spec();
        let sequence = |&rows: &usize| SequenceRows { table: &[0], position: 0, rows };
        spec.set_batch(sections.batch, &self.lengths.iter().map(sequence).collect::<Vec<_>>(), 0);
        spec.set_segments(sections.segments, &self.lengths);
        let spec = ops.upload(&spec);
        let words: SpecSection = sections.segments.words();
        let (batch, segments) = (ops.batch_at(&spec, sections.batch), ops.index(&spec, words));
        for layer in self.layers..to {
            self.x = self.x.take().map(|x| model.layer(ops, layer, x, (&batch, &segments)));
        }
        self.layers = to;
        to == model.layers()
    }

    /// Logits of the wanted positions of each canvas, in a pass that is done; empty for a canvas that wants none.
    pub fn logits(&self, ops: &O, model: &impl Denoiser<O>, wanted: &[std::ops::Range<usize>]) -> Vec<Vec<f32>> {
        let firsts = self.lengths.iter().scan(0, |next, length| {
            let first = *next;
            *next += length;
            Some(first)
        });
        let rows: Vec<u32> =
            firsts.zip(wanted).flat_map(|(first, wanted)| wanted.clone().map(move |at| row(first + at))).collect();
        let Some(x) = self.x.as_ref().filter(|_| !rows.is_empty()) else { return vec![Vec::new(); wanted.len()] };
        let numbers = ops.read(&model.logits(ops, &ops.gather_at(x, &list(ops, &rows))));
        let mut left = &numbers[..];
        let mut of_canvas = |wanted: &std::ops::Range<usize>| {
            let (own, rest) = left.split_at(wanted.len() * model.choices());
            left = rest;
            own.to_vec()
        };
        wanted.iter().map(&mut of_canvas).collect()
    }
}
