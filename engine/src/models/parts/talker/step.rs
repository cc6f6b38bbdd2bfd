//! One step of a talker: the row spec of its rows, the layers over them, and the codes that are sampled.

use repartee_engine_api::Sampling;
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ID, Ops, RowSpec, SpecLayout, StepOutputs};

use super::frames::{FrameDecoder, FrameSections};
use super::model::{CodecPart, TalkerModel, TalkerRow, TextPart};
use crate::models::parts::autoregressive::{Sampler, StepContext, StepInput, StepShape};
use crate::models::parts::slot_rows::SlotRows;

/// Rows that the stage before left, and the state that is kept between frames.
pub struct TalkerStep<O: Ops> {
    /// Rows of the stage before, if it leaves any.
    pub handed: Option<SlotRows<O>>,
    /// Codes of a step, and the last frame of each slot.
    pub frames: FrameDecoder<O>,
}

/// Sections of the row spec for a talker.
pub struct TalkerSections {
    text: SpecSection,
    codec: SpecSection,
    /// Rows with a handed text part, and the numbers of their handed rows.
    handed_at: SpecSection,
    handed: SpecSection,
    cloned: Option<ClonedSections>,
    /// For each row to sample from, the row that is added to its logits, or [`NO_ID`].
    least: Option<SpecSection>,
    /// For each row to sample from, the logits of the id that counts as said, and the parameters of its history.
    said_before: Option<(SpecSection, SampleSection)>,
    frames: FrameSections,
}

/// Rows of a cloned voice: the speaker embedding, or the codes of a frame.
struct ClonedSections {
    at: SpecSection,
    numbers: SpecSection,
    codes: Vec<SpecSection>,
}

/// Number of rows that are computed differently from the rest.
pub fn special_rows(rows: &[TalkerRow]) -> usize {
    let special =
        |row: &&TalkerRow| matches!(row.text, TextPart::Handed(_)) || matches!(row.codec, CodecPart::Cloned { .. });
    rows.iter().filter(special).count()
}

impl<O: Ops> TalkerStep<O> {
    /// Reserves the row spec's sections.
    pub fn layout(&self, talker: &impl TalkerModel<O>, shape: StepShape, layout: &mut SpecLayout) -> TalkerSections {
        let predictor = talker.code_predictor();
        TalkerSections {
            text: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            handed_at: layout.list(shape.special),
            handed: layout.list(shape.special),
            cloned: predictor.filter(|_| shape.special > 0 && self.handed.is_none()).map(|predictor| ClonedSections {
                at: layout.list(shape.special),
                numbers: layout.list(shape.special * predictor.input),
                codes: (0..predictor.codes()).map(|_| layout.list(shape.special)).collect(),
            }),
            least: talker.least_codes().map(|_| layout.list(shape.sampled)),
            said_before: talker.said_before().map(|_| (layout.list(shape.sampled), layout.samples(shape.sampled))),
            frames: self.frames.layout(predictor, shape, layout),
        }
    }

    /// Fills the sections.
    pub fn fill(
        &self,
        talker: &impl TalkerModel<O>,
        step: &StepInput<'_, TalkerRow>,
        sections: &TalkerSections,
        spec: &mut RowSpec,
    ) {
        let text = |row: &TalkerRow| match row.text {
            TextPart::Token(id) => id,
            TextPart::Handed(_) => NO_ID,
        };
        spec.set_each(sections.text, step.rows.iter().map(text));
        let codec = |row: &TalkerRow| match row.codec {
            CodecPart::Id(id) => id,
            CodecPart::LastFrame | CodecPart::Cloned { .. } => NO_ID,
        };
        spec.set_each(sections.codec, step.rows.iter().map(codec));
        if let Some(rows) = &self.handed {
            let handed = || {
                step.rows.iter().zip(step.at).enumerate().filter_map(|(i, (row, at))| match row.text {
                    TextPart::Handed(position) => Some((i as u32, rows.number(at.0, position))),
                    TextPart::Token(_) => None,
                })
            };
            spec.set_each(sections.handed_at, handed().map(|(i, _)| i));
            spec.set_each(sections.handed, handed().map(|(_, number)| number));
        }
        if let (Some(sections), Some(predictor)) = (&sections.cloned, talker.code_predictor()) {
            let cloned = || {
                step.rows.iter().enumerate().filter_map(|(at, row)| match &row.codec {
                    CodecPart::Cloned { voice, frame } => Some((at, voice, *frame)),
                    _ => None,
                })
            };
            spec.set_each(sections.at, cloned().map(|(at, ..)| at as u32));
            let width = predictor.input;
            spec.set_floats_each(sections.numbers, cloned().flat_map(|(_, voice, frame)| voice.row(frame, width)));
            for (codebook, section) in sections.codes.iter().enumerate() {
                spec.set_each(*section, cloned().map(|(_, voice, frame)| voice.code(frame, codebook).unwrap_or(NO_ID)));
            }
        }
        if let (Some(section), Some((least, _))) = (sections.least, talker.least_codes()) {
            let endless = |row: &Sampler<'_>| if row.step < least { 0 } else { NO_ID };
            spec.set_each(section, step.samplers.iter().map(endless));
        }
        if let Some((rows, histories)) = sections.said_before {
            spec.set_each(rows, step.samplers.iter().map(|_| 0));
            // The text's random numbers are stream 0.
            let params = step.samplers.iter().map(|row| row.sample_params(&Sampling::GREEDY, 1));
            spec.set_samples(histories, params);
        }
        self.frames.fill(talker.code_predictor(), step, &sections.frames, spec);
    }

    /// Runs the step: the layers over all rows, then the codes of the rows to sample from.
    pub fn forward(
        &mut self,
        talker: &impl TalkerModel<O>,
        ops: &O,
        sections: &TalkerSections,
        step: StepContext<'_, O>,
        outputs: &mut StepOutputs<O>,
    ) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let codec = talker.codec();
        let index = |section| ops.index(spec, section);
        let mut text = talker.token_rows(ops, &index(sections.text));
        if let Some(rows) = self.handed.as_ref().filter(|_| sections.handed.capacity() > 0) {
            let rows = talker.handed_rows(ops, rows.load(ops, &index(sections.handed)));
            text = ops.scatter_at(text, &index(sections.handed_at), &rows);
        }
        let mut codecs = codec.rows(ops, &index(sections.codec));
        if let (Some(sections), Some(predictor)) = (&sections.cloned, talker.code_predictor()) {
            let [first, rest @ ..] = &sections.codes[..] else { unreachable!("a frame has at least two codes") };
            let rest: Vec<O::Index> = rest.iter().map(|codes| index(*codes)).collect();
            let frames = predictor.embed_frames(ops, codec.rows(ops, &index(*first)), &rest);
            let rows = ops.add(ops.floats(spec, sections.numbers, predictor.input), &frames);
            codecs = ops.scatter_at(codecs, &index(sections.at), &rows);
        }
        codecs = self.frames.with_last_frames(ops, codecs, spec, &sections.frames);
        let x = talker.input_rows(ops, text, &codecs);
        let Some(last) = last else {
            codec.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = codec.forward(ops, x, cache, batch, last);
        let mut logits = codec.logits(ops, &hidden);
        if let (Some(section), Some((_, row))) = (sections.least, talker.least_codes()) {
            logits = ops.add(logits, &ops.embed_at(row, &index(section)));
        }
        if let (Some((rows, histories)), Some(row)) = (sections.said_before, talker.said_before())
            && self.frames.penalises()
        {
            ops.sample_at(&ops.embed_at(row, &index(rows)), &index(histories.words()), None, Some(output_mask));
        }
        let models = (codec, talker.code_predictor());
        self.frames.decode(ops, models, (spec, &sections.frames), (&hidden, &logits), output_mask, &mut outputs.ids);
    }
}
