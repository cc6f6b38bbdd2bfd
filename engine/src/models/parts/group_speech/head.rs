//! The speech head: a second stack of layers whose cache has a group of positions for each
//! position of the language model, the prompt's included. From a position's row and its text it draws the group's codes,
//! each after the one before it.
//!
//! The group of a position before which nothing was drawn has the mark that begins codes in the place of each code. The
//! last position of a prompt is different: from its second row on its group has what was drawn.

use repartee_kernels::row_spec::{BatchSection, SampleSection, SpecSection};
use repartee_kernels::{Ops, RowSpec, SampleParams, SequenceRows, SpecLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::autoregressive::{BLOCK, StepInput, StepShape};
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::weights::Weights;

/// Codes of the speech, and their groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeechCodes {
    /// Number of the codes that have a sound; the others are marks.
    pub sounds: usize,
    /// Number of all codes, marks included.
    pub all: usize,
    /// Mark before the first code.
    pub begin: u32,
    /// Mark that ends the speech.
    pub end: u32,
    /// Codes of a position of the language model.
    pub group: usize,
}

/// The head with loaded weights.
pub struct SpeechHead<O: Ops> {
    codes: SpeechCodes,
    /// Width of a row of the language model.
    width: usize,
    /// Embeddings of the codes, and their matrix if that is another weight.
    table: (O::Weight, Option<O::Weight>),
    /// From a row to those of its group.
    pre_matching: (O::Weight, O::Weight),
    input_matching: O::Weight,
    layers: Decoder<O>,
    output_matching: O::Weight,
    /// From the mean of a group's codes to a part of the language model's next row.
    spoken: O::Weight,
}

/// Sections of the row spec.
pub struct HeadSections {
    /// For each row of the first pass its place among the groups' rows, and the code before it.
    inputs: SpecSection,
    before: SpecSection,
    batch: BatchSection,
    /// Rows of the first pass that the first codes come of.
    first: SpecSection,
    /// Slots whose codes count from now on.
    begun: SpecSection,
    /// Rows of each further code.
    later: Vec<(SpecSection, BatchSection)>,
    /// Sampling of each code.
    params: Vec<SampleSection>,
}

impl<O: Ops> SpeechHead<O> {
    /// Loads `pre_matching`, `input_matching`, `output_matching` and the layers below `layers`, of a language model whose rows have
    /// `width` numbers. `of_codes` has the table of codes, `embed_tokens`, and `output_matching` of a group's mean.
    pub fn load(
        (w, of_codes): (&Weights<'_, O>, &Weights<'_, O>),
        (codes, width): (SpeechCodes, usize),
        (layers, shape, inner): (&str, DecoderShape, usize),
    ) -> Result<Self, LoadError> {
        // Files have either of the two names of one matrix.
        let table = match of_codes.has("embed_tokens.weight") {
            true => of_codes.tied("embed_tokens.weight", codes.all, width)?,
            false => w.tied("lm_head.weight", codes.all, width)?,
        };
        let pre_matching = w.at("pre_matching");
        let rows = codes.group * width;
        Ok(Self {
            table,
            pre_matching: (pre_matching.linear("weight", rows, width)?, pre_matching.vector("bias", rows)?),
            input_matching: w.linear("input_matching.weight", shape.hidden, width)?,
            layers: Decoder::load(&w.at(layers), shape, |_| FeedForward::Dense(inner))?,
            output_matching: w.linear("output_matching.weight", width, shape.hidden)?,
            spoken: of_codes.linear("output_matching.weight", width, width)?,
            codes,
            width,
        })
    }

    /// Codes of the speech.
    pub fn codes(&self) -> SpeechCodes {
        self.codes
    }

    /// Creates the cache: blocks of as many groups as the language model's have positions.
    pub fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.layers.cache(ops, blocks, BLOCK * self.codes.group)
    }

    /// Bytes of a group in the cache.
    pub fn group_bytes(&self) -> usize {
        self.codes.group * self.layers.position_bytes()
    }

    /// Computes what groups of codes add to the language model's rows; `at` has the ids of each of a group's codes.
    pub fn spoken(&self, ops: &O, at: &[O::Index]) -> Option<O::T> {
        let rows = at.iter().map(|codes| ops.embed_at(&self.table.0, codes));
        let sum = rows.reduce(|sum, rows| ops.add(sum, &rows))?;
        Some(ops.linear(&ops.scale_all(sum, 1.0 / self.codes.group as f32), &self.spoken, None))
    }

    /// Reserves the sections. All of `shape.special` rows are the prompt's; `tables` has the most sequences, and blocks of each.
    pub fn layout(&self, shape: StepShape, layout: &mut SpecLayout, (slots, blocks): (usize, usize)) -> HeadSections {
        // A row of a response has a row in the first pass, and one of a prompt has its whole group.
        let rows = self.codes.group * shape.special + shape.rows;
        let sampled = shape.sampled;
        let further = if sampled > 0 { self.codes.group - 1 } else { 0 };
        HeadSections {
            inputs: layout.list(rows),
            before: layout.list(rows),
            batch: layout.batch(rows, shape.rows.min(slots), blocks),
            first: layout.list(sampled),
            begun: layout.list(sampled),
            later: (0..further).map(|_| (layout.list(sampled), layout.batch(sampled, sampled, blocks))).collect(),
            params: (0..self.codes.group).map(|_| layout.samples(sampled)).collect(),
        }
    }

    /// Fills the sections. `before` is the code before a row of a response, `None` for the prompt's; `begun` has the slots whose
    /// codes count from now on; `params` has the sampling of each code; `scratch` is the block of the padding.
    pub fn fill<R>(
        &self,
        (step, spec): (&StepInput<'_, R>, &mut RowSpec),
        sections: &HeadSections,
        before: impl Fn(&R) -> Option<u32>,
        begun: impl Iterator<Item = u32>,
        params: impl Fn(usize) -> Vec<SampleParams>,
        scratch: u32,
    ) {
        let group = self.codes.group;
        let mut draws = vec![false; step.rows.len()];
        step.samplers.iter().for_each(|sampler| draws[sampler.row] = true);
        let (mut inputs, mut codes) = (Vec::new(), Vec::new());
        // Of each row of the step: its last row in the first pass, and its sequence.
        let (mut last, mut sequence_of) = (Vec::new(), Vec::new());
        let mut rows = step.rows.iter().zip(&draws).enumerate();
        let mut sequences = Vec::with_capacity(step.sequences.len());
        for (number, sequence) in step.sequences.iter().enumerate() {
            let start = inputs.len();
            for (at, (row, draws)) in rows.by_ref().take(sequence.rows) {
                let before = before(row);
                let count = if *draws || before.is_some() { 1 } else { group };
                inputs.extend((0..count).map(|code| (group * at + code) as u32));
                codes.resize(inputs.len(), before.unwrap_or(self.codes.begin));
                last.push(inputs.len() as u32 - 1);
                sequence_of.push(number);
            }
            let (position, rows) = (group * sequence.position, inputs.len() - start);
            sequences.push(SequenceRows { table: sequence.table, position, rows });
        }
        spec.set(sections.inputs, &inputs);
        spec.set(sections.before, &codes);
        spec.set_batch(sections.batch, &sequences, scratch);
        spec.set_each(sections.first, step.samplers.iter().map(|sampler| last[sampler.row]));
        spec.set_each(sections.begun, begun);
        for (code, (at, batch)) in (1..).zip(&sections.later) {
            spec.set_each(*at, step.samplers.iter().map(|sampler| (group * sampler.row + code) as u32));
            let sequence = |row: usize| {
                let table = step.sequences[sequence_of[row]].table;
                SequenceRows { table, position: group * step.at[row].1 + code, rows: 1 }
            };
            let sequences: Vec<_> = step.samplers.iter().map(|sampler| sequence(sampler.row)).collect();
            spec.set_batch(*batch, &sequences, scratch);
        }
        for (code, section) in sections.params.iter().enumerate() {
            spec.set_samples(*section, params(code));
        }
    }

    /// Runs the head over all rows of a step, `hidden` with the embeddings of their text, and draws the codes of those that
    /// sample. `chosen` gets the ids and the raw logits of each code. `said` is the history of the penalty.
    pub fn draw(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &HeadSections),
        hidden: &O::T,
        (cache, said): (&mut [O::State], &mut O::State),
        mut chosen: impl FnMut(O::Index, O::T),
    ) {
        let index = |section| ops.index(spec, section);
        let inputs = ops.linear(hidden, &self.pre_matching.0, Some(&self.pre_matching.1));
        let inputs = ops.reshape(inputs, self.width);
        let mut x = self.pass(
            ops,
            &inputs,
            &index(sections.inputs),
            &index(sections.before),
            cache,
            &ops.batch_at(spec, sections.batch),
        );
        if sections.first.capacity() == 0 {
            return;
        }
        ops.reset_at(said, &index(sections.begun));
        x = ops.gather_at(&x, &index(sections.first));
        let mut later = sections.later.iter();
        for params in &sections.params {
            let x_out = ops.linear(&self.layers.norm(ops, &x), &self.output_matching, None);
            let logits = ops.linear(&x_out, self.table.1.as_ref().unwrap_or(&self.table.0), None);
            let ids = ops.sample_at(&logits, &index(params.words()), None, Some(said));
            if let Some((at, batch)) = later.next() {
                x = self.pass(ops, &inputs, &index(*at), &ids, cache, &ops.batch_at(spec, *batch));
            }
            chosen(ids, logits);
        }
    }

    /// Runs the layers over rows of groups, each with the code before it. Returns the rows before the last norm.
    fn pass(
        &self,
        ops: &O,
        inputs: &O::T,
        at: &O::Index,
        before: &O::Index,
        cache: &mut [O::State],
        batch: &O::Batch,
    ) -> O::T {
        let x = ops.add(ops.gather_at(inputs, at), &ops.embed_at(&self.table.0, before));
        self.layers.forward(ops, ops.linear(&x, &self.input_matching, None), cache, batch, None).0
    }
}
