//! A depth model in general: from one row of a language model the codes of its frames, step by step, with a short KV
//! cache of its own.
//!
//! A codebook's code of frame `f` is drawn in step `f` plus the codebook's delay; with one frame and delays 0, 1, 2, ..
//! there is one code a step. Each step's input is the sum of the embeddings of the codes drawn in the step before. The
//! language model's row precedes them as a position of its own, or is added to each ([`HiddenInput`]).

use std::borrow::Borrow;
use std::slice;

use repartee_kernels::row_spec::{BatchSection, SampleSection, SpecSection};
use repartee_kernels::{Ops, RowSpec, SampleParams, SequenceRows, SpecLayout};

use crate::models::parts::decoder::Decoder;

/// Weight and bias of a linear layer.
pub type Linear<O> = (<O as Ops>::Weight, Option<<O as Ops>::Weight>);

/// Way in which the language model's row enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenInput {
    /// As a position of its own before the codes.
    Position,
    /// Added to the input of every step.
    Added,
}

/// One codebook that a depth model predicts.
pub struct DepthCodebook<O: Ops> {
    /// Steps from the first one to that of its first code.
    pub delay: usize,
    /// Embeddings of its codes, as input of later steps.
    pub table: O::Weight,
    /// Norm before the head, and its epsilon; `None` for the layers' last norm.
    pub norm: Option<(O::Weight, f32)>,
    /// Head for its logits.
    pub head: O::Weight,
    /// Mask over its ids, 1 for each that may be drawn; `None` for all.
    pub allowed: Option<O::Weight>,
}

/// A depth model, assembled by its family.
pub struct DepthModel<O: Ops> {
    /// Frames that a row of the language model stands for.
    pub frames: usize,
    /// Codebooks, in order.
    pub codebooks: Vec<DepthCodebook<O>>,
    /// Layers: the same for all steps, or one set for each.
    pub layers: Vec<Decoder<O>>,
    /// Width of a row of the language model.
    pub input: usize,
    /// Width of a row in the layers.
    pub width: usize,
    /// Way in which the language model's row enters.
    pub hidden: HiddenInput,
    /// Projections of the language model's row: none, the same for all steps, or one for each.
    pub hidden_projections: Vec<Linear<O>>,
    /// Projection of all inputs to the layers' width, the language model's row included; `None` if they have it.
    pub projection: Option<Linear<O>>,
    /// True if a code that was drawn before, in the language model's step, precedes these.
    pub follows_code: bool,
    /// True if the sum of the embeddings of all codes is wanted, the code before included.
    pub summed: bool,
}

/// Sections of the row spec for a step that completes frames.
pub struct DepthSections {
    rows: usize,
    /// Order of the first rows: hidden, code, hidden, code, ..
    pairs: Option<SpecSection>,
    /// Positions of each step.
    batches: Vec<BatchSection>,
    /// Sampling parameters of each code, in the order of drawing.
    params: Vec<SampleSection>,
}

/// A code that a depth model draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnCode {
    /// Index of the codebook.
    pub codebook: usize,
    /// Index of the frame.
    pub frame: usize,
}

impl<O: Ops> DepthModel<O> {
    /// Number of steps.
    fn steps(&self) -> usize {
        self.frames + self.codebooks.iter().map(|codebook| codebook.delay).max().unwrap_or(0)
    }

    /// Positions of a step.
    fn positions(&self, step: usize) -> usize {
        if step == 0 && self.pairs() { 2 } else { 1 }
    }

    /// True if the first step has two positions: the language model's row and the code before.
    fn pairs(&self) -> bool {
        self.follows_code && self.hidden == HiddenInput::Position
    }

    /// Codes of a step, in the order of drawing.
    fn drawn(&self, step: usize) -> impl Iterator<Item = DrawnCode> {
        let codebooks = self.codebooks.iter().enumerate();
        codebooks.filter_map(move |(codebook, DepthCodebook { delay, .. })| {
            let frame = step.checked_sub(*delay).filter(|&frame| frame < self.frames)?;
            Some(DrawnCode { codebook, frame })
        })
    }

    /// All codes, in the order of drawing.
    pub fn order(&self) -> impl Iterator<Item = DrawnCode> {
        (0..self.steps()).flat_map(|step| self.drawn(step))
    }

    /// Codes of a row, the one before included.
    pub fn codes(&self) -> usize {
        self.codebooks.len() * self.frames + usize::from(self.follows_code)
    }

    /// Positions of one row in the cache.
    fn length(&self) -> usize {
        self.steps() + usize::from(self.pairs())
    }

    /// Creates a KV cache for `rows` rows at once, padded to a bucket: one block for each.
    pub fn cache(&self, ops: &O, rows: usize) -> Vec<O::State> {
        self.layers.first().map_or_else(Vec::new, |layers| layers.cache(ops, ops.bucket(rows), self.length()))
    }

    /// Bytes of one row in [`DepthModel::cache`].
    pub fn slot_bytes(&self) -> usize {
        self.length() * self.layers.first().map_or(0, Decoder::position_bytes)
    }

    /// Reserves the row spec's sections for a step of `rows` rows.
    pub fn layout(&self, layout: &mut SpecLayout, rows: usize) -> DepthSections {
        DepthSections {
            rows,
            pairs: self.pairs().then(|| layout.list(2 * rows)),
            batches: (0..self.steps()).map(|step| layout.batch(self.positions(step) * rows, rows, 1)).collect(),
            params: self.order().map(|_| layout.samples(rows)).collect(),
        }
    }

    /// Fills a row spec; `params` yields the sampling parameters of a code for each row.
    pub fn fill<P>(&self, spec: &mut RowSpec, sections: &DepthSections, mut params: impl FnMut(DrawnCode) -> P)
    where
        P: IntoIterator<Item: Borrow<SampleParams>>,
    {
        let rows = sections.rows as u32;
        if let Some(pairs) = sections.pairs {
            spec.set_each(pairs, (0..rows).flat_map(|row| [row, rows + row]));
        }
        // Rows of the padding have blocks too.
        let tables: Vec<u32> = (0..rows).collect();
        let mut position = 0;
        for (step, batch) in sections.batches.iter().enumerate() {
            let rows = self.positions(step);
            let sequence = |block| SequenceRows { table: slice::from_ref(block), position, rows };
            spec.set_batch(*batch, &tables.iter().map(sequence).collect::<Vec<_>>(), 0);
            position += rows;
        }
        for (chosen, code) in sections.params.iter().zip(self.order()) {
            spec.set_samples(*chosen, params(code));
        }
    }

    /// Draws the codes of each row of `hidden`; `before` is the embedding of the code before, if one precedes. `chosen`
    /// gets the ids and the raw logits of each code, in the order of [`DepthModel::order`]. Returns the sum of the
    /// embeddings of all codes, `before` included, if it is wanted.
    pub fn draw(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &DepthSections),
        hidden: &O::T,
        before: Option<O::T>,
        cache: &mut [O::State],
        mut chosen: impl FnMut(O::Index, O::T),
    ) -> Option<O::T> {
        let mut params = sections.params.iter();
        let (mut input, mut sum) = (before, None);
        for (step, batch) in sections.batches.iter().enumerate() {
            let enters = step == 0 || self.hidden == HiddenInput::Added;
            let projection = of_step(&self.hidden_projections, step).filter(|_| enters);
            let projected = projection.map(|projection| linear(ops, hidden, projection));
            let hidden = projected.as_ref().unwrap_or(hidden);
            let x = match (self.hidden, input.take(), sections.pairs) {
                (HiddenInput::Position, Some(before), Some(pairs)) if step == 0 => {
                    let x = ops.gather_at(&ops.concat(&[hidden, &before]), &ops.index(spec, pairs));
                    sum = Some(before).filter(|_| self.summed);
                    x
                }
                (HiddenInput::Position, Some(codes), _) => codes,
                (HiddenInput::Added, Some(codes), _) => ops.add(codes, hidden),
                (_, None, _) => ops.copy(hidden),
            };
            let x = match &self.projection {
                Some(projection) => linear(ops, &x, projection),
                None => x,
            };
            let batch = ops.batch_at(spec, *batch);
            let layers = of_step(&self.layers, step).expect("a depth model has layers");
            let mut x = layers.forward(ops, x, cache, &batch, None).0;
            if step == 0 && sections.pairs.is_some() {
                // The second row of each pair.
                x = ops.narrow(&ops.reshape(x, 2 * self.width), self.width, self.width);
            }
            let normed = layers.norm(ops, &x);
            for DrawnCode { codebook, .. } in self.drawn(step) {
                let codebook = &self.codebooks[codebook];
                let logits = match &codebook.norm {
                    None => ops.linear(&normed, &codebook.head, None),
                    Some((norm, eps)) => ops.linear(&ops.rms_norm(&x, norm, *eps), &codebook.head, None),
                };
                let Some(params) = params.next() else { break };
                let params = ops.index(spec, params.words());
                let ids = ops.sample_at(&logits, &params, codebook.allowed.as_ref(), None);
                let wanted = self.summed || step + 1 < sections.batches.len();
                let embedded = wanted.then(|| ops.embed_at(&codebook.table, &ids));
                chosen(ids, logits);
                let Some(embedded) = embedded else { continue };
                sum = sum.map(|sum| ops.add(sum, &embedded));
                input = Some(match input.take() {
                    Some(input) => ops.add(input, &embedded),
                    None => embedded,
                });
            }
        }
        sum
    }

    /// Sums the embeddings of whole frames, one row each: `first` holds the embeddings of the code before, `rest` the
    /// codes of each codebook.
    pub fn embed_frames(&self, ops: &O, first: O::T, rest: &[O::Index]) -> O::T {
        let codebooks = self.codebooks.iter().zip(rest);
        codebooks.fold(first, |sum, (codebook, codes)| ops.add(sum, &ops.embed_at(&codebook.table, codes)))
    }
}

/// The one of all steps, or that of `step`; `None` if there is none.
fn of_step<T>(each: &[T], step: usize) -> Option<&T> {
    if let [all] = each { Some(all) } else { each.get(step) }
}

fn linear<O: Ops>(ops: &O, x: &O::T, (weight, bias): &Linear<O>) -> O::T {
    ops.linear(x, weight, bias.as_ref())
}
