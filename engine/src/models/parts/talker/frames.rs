//! Frames of a talker with a code predictor: codebook 0 is sampled from the talker's logits, the predictor fills in the
//! others, and the sum of their embeddings is the codec part of the next row.

use repartee_engine_api::Sampling;
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ROW, RowSpec, SpecLayout, StateSpec, StepOps};

use super::codec_lm::CodecLm;
use crate::models::parts::autoregressive::{Sampler, StepInput, StepShape};
use crate::models::parts::depth::code_predictor::{CodePredictor, PredictorSections};

/// Most slots whose frames one step completes.
pub const MAX_SLOTS: usize = 128;

/// State kept between frames, and sampling parameters.
pub struct FrameDecoder<O: StepOps> {
    predictor_cache: Vec<O::State>,
    /// Sum of the embeddings of each slot's last frame.
    last: O::State,
    sampling: Sampling,
    predictor_sampling: Sampling,
}

/// Sections of the row spec that a step uses.
pub struct FrameSections {
    /// For each row, the slot whose last frame is its codec part.
    last: SpecSection,
    params: SampleSection,
    predictor: PredictorSections,
    /// Slot of each new frame.
    made: SpecSection,
}

impl<O: StepOps> FrameDecoder<O> {
    /// Creates state for `slots` slots and rows of `width` numbers; `sampling` is that of codebook 0 and that of the
    /// others.
    pub fn new(
        ops: &O,
        predictor: &CodePredictor<O>,
        (slots, width): (usize, usize),
        sampling: (Sampling, Sampling),
    ) -> Self {
        Self {
            predictor_cache: predictor.cache(ops, slots.min(MAX_SLOTS)),
            last: ops.state(StateSpec::Rows { rows: slots, columns: width }),
            sampling: sampling.0,
            predictor_sampling: sampling.1,
        }
    }

    /// Reserves the row spec's sections for a step.
    pub fn layout(&self, predictor: &CodePredictor<O>, shape: StepShape, layout: &mut SpecLayout) -> FrameSections {
        FrameSections {
            last: layout.list(shape.rows),
            params: layout.samples(shape.sampled),
            predictor: predictor.layout(layout, shape.sampled),
            made: layout.list(shape.sampled),
        }
    }

    /// Fills the sections; `follows` is true for a row whose codec part is its slot's last frame.
    pub fn fill<R>(
        &self,
        predictor: &CodePredictor<O>,
        step: &StepInput<'_, R>,
        follows: impl Fn(&R) -> bool,
        sections: &FrameSections,
        spec: &mut RowSpec,
    ) {
        let last = |(row, at): (&R, &(usize, usize))| if follows(row) { at.0 as u32 } else { NO_ROW };
        spec.set_each(sections.last, step.rows.iter().zip(step.at).map(last));
        // The text's random numbers are stream 0, codebook `c` is stream `c + 1`.
        let chosen = |sampling, codebook: usize| {
            step.samplers.iter().map(move |row: &Sampler<'_>| row.sample_params(sampling, codebook + 1))
        };
        spec.set_samples(sections.params, chosen(&self.sampling, 0));
        predictor.fill(spec, &sections.predictor, |codebook| chosen(&self.predictor_sampling, codebook));
        spec.set_each(sections.made, step.samplers.iter().map(|row| row.slot as u32));
    }

    /// Returns the codec parts of all rows: the last frame's embedding for rows after a frame, `codecs` for the others.
    pub fn with_last_frames(&self, ops: &O, codecs: O::T, spec: &O::Spec, sections: &FrameSections) -> O::T {
        ops.overlay(codecs, &self.last, &ops.index(spec, sections.last))
    }

    /// Makes a frame of each normed row of `hidden`; `logits` are those of codebook 0. Appends the codes to `ids`,
    /// codebook by codebook.
    pub fn decode(
        &mut self,
        ops: &O,
        (codec, predictor): (&CodecLm<O>, &CodePredictor<O>),
        (spec, sections): (&O::Spec, &FrameSections),
        (hidden, logits): (&O::T, &O::T),
        output_mask: &mut O::State,
        ids: &mut Vec<O::Index>,
    ) {
        let params = ops.index(spec, sections.params.words());
        let first = ops.sample_at(logits, &params, Some(&codec.allowed_mask), Some(output_mask));
        let embedded = codec.rows(ops, &first);
        ids.push(first);
        let at = (spec, &sections.predictor);
        let cache = &mut self.predictor_cache;
        let embedding = predictor.predict_residuals(ops, at, hidden, embedded, cache, |codes, _| ids.push(codes));
        ops.store(&mut self.last, &ops.index(spec, sections.made), &embedding);
    }
}
