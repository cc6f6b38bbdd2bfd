//! Frames of a talker: codebook 0 is sampled from the talker's logits. A code predictor, if there is one, fills in the
//! others; then the sum of their embeddings is the codec part of the next row.

use repartee_engine_api::Sampling;
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ROW, Ops, RowSpec, SpecLayout, StateSpec};

use super::codec_lm::CodecLm;
use super::model::{CodecPart, TalkerRow};
use crate::models::parts::autoregressive::{Sampler, StepInput, StepShape};
use crate::models::parts::depth::model::{DepthModel, DepthSections};

/// Most slots whose frames one step completes with a code predictor.
pub const MAX_SLOTS: usize = 128;

/// Sampling of codebook 0, and of the others.
#[derive(Debug, Clone, Copy)]
pub struct FrameSampling {
    /// Sampling of codebook 0.
    pub first: Sampling,
    /// Sampling of the others.
    pub rest: Sampling,
}

/// State kept between frames, and sampling parameters.
pub struct FrameDecoder<O: Ops> {
    /// With a code predictor: its cache, and the sum of the embeddings of each slot's last frame.
    predicted: Option<(Vec<O::State>, O::State)>,
    sampling: FrameSampling,
}

/// Sections of the row spec that a step uses.
pub struct FrameSections {
    params: SampleSection,
    predicted: Option<PredictedSections>,
}

struct PredictedSections {
    /// For each row, the slot whose last frame is its codec part.
    last: SpecSection,
    predictor: DepthSections,
    /// Slot of each new frame.
    made: SpecSection,
}

/// Bytes of a slot in a [`FrameDecoder`].
pub fn slot_bytes<O: Ops>(predictor: Option<&DepthModel<O>>) -> usize {
    predictor.map_or(0, |predictor| predictor.slot_bytes() + predictor.input * size_of::<f32>())
}

impl<O: Ops> FrameDecoder<O> {
    /// Creates state for `slots` slots.
    pub fn new(ops: &O, predictor: Option<&DepthModel<O>>, slots: usize, sampling: FrameSampling) -> Self {
        let predicted = predictor.map(|predictor| {
            let last = StateSpec::Rows { rows: slots, columns: predictor.input };
            (predictor.cache(ops, slots.min(MAX_SLOTS)), ops.state(last))
        });
        Self { predicted, sampling }
    }

    /// True if codebook 0 has a repetition penalty.
    pub fn penalises(&self) -> bool {
        self.sampling.first.repetition_penalty != 1.0
    }

    /// Reserves the row spec's sections for a step.
    pub fn layout(
        &self,
        predictor: Option<&DepthModel<O>>,
        shape: StepShape,
        layout: &mut SpecLayout,
    ) -> FrameSections {
        FrameSections {
            params: layout.samples(shape.sampled),
            predicted: predictor.map(|predictor| PredictedSections {
                last: layout.list(shape.rows),
                predictor: predictor.layout(layout, shape.sampled),
                made: layout.list(shape.sampled),
            }),
        }
    }

    /// Fills the sections.
    pub fn fill(
        &self,
        predictor: Option<&DepthModel<O>>,
        step: &StepInput<'_, TalkerRow>,
        sections: &FrameSections,
        spec: &mut RowSpec,
    ) {
        // The text's random numbers are stream 0, codebook `c` is stream `c + 1`.
        let chosen = |sampling, codebook: usize| {
            step.samplers.iter().map(move |row: &Sampler<'_>| row.sample_params(sampling, codebook + 1))
        };
        spec.set_samples(sections.params, chosen(&self.sampling.first, 0));
        let (Some(predictor), Some(sections)) = (predictor, &sections.predicted) else { return };
        let last = |(row, at): (&TalkerRow, &(usize, usize))| {
            if row.codec == CodecPart::LastFrame { at.0 as u32 } else { NO_ROW }
        };
        spec.set_each(sections.last, step.rows.iter().zip(step.at).map(last));
        predictor.fill(spec, &sections.predictor, |code| chosen(&self.sampling.rest, code.codebook + 1));
        spec.set_each(sections.made, step.samplers.iter().map(|row| row.slot as u32));
    }

    /// Returns the codec parts of all rows: the last frame's embedding for rows after a frame, `codecs` for the others.
    pub fn with_last_frames(&self, ops: &O, codecs: O::T, spec: &O::Spec, sections: &FrameSections) -> O::T {
        match (&self.predicted, &sections.predicted) {
            (Some((_, last)), Some(sections)) => ops.overlay(codecs, last, &ops.index(spec, sections.last)),
            _ => codecs,
        }
    }

    /// Makes a frame of each normed row of `hidden`; `logits` are those of codebook 0. Appends the codes to `ids`,
    /// codebook by codebook.
    pub fn decode(
        &mut self,
        ops: &O,
        (codec, predictor): (&CodecLm<O>, Option<&DepthModel<O>>),
        (spec, sections): (&O::Spec, &FrameSections),
        (hidden, logits): (&O::T, &O::T),
        output_mask: &mut O::State,
        ids: &mut Vec<O::Index>,
    ) {
        let params = ops.index(spec, sections.params.words());
        let first = ops.sample_at(logits, &params, Some(&codec.allowed_mask), Some(output_mask));
        ids.push(first.clone());
        let (Some(predictor), Some((cache, last)), Some(sections)) =
            (predictor, &mut self.predicted, &sections.predicted)
        else {
            return;
        };
        let embedded = codec.rows(ops, &first);
        let at = (spec, &sections.predictor);
        let sum = predictor.draw(ops, at, hidden, Some(embedded), cache, |codes, _| ids.push(codes));
        if let Some(sum) = sum {
            ops.store(last, &ops.index(spec, sections.made), &sum);
        }
    }
}
