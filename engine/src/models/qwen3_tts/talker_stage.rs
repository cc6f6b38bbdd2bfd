//! Rows of the talker: the prompt's instructions, the rows of an utterance before its first frame, and the text id that
//! goes with each frame. If text streams in, a frame waits for its id.

use std::sync::Arc;

use repartee_engine_api::Role;
use repartee_kernels::ops::NO_ID;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{RowSpec, SpecLayout, StepOps, StepOutputs};

use super::generation::GenerationConfig;
use super::talker::{LEAST_FRAMES, Talker};
use super::utterance::{Utterance, UtteranceRow, UtteranceTokens};
use super::voices::{Cloned, Voice, VoiceList};
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::models::parts::autoregressive::{Sampler, StepContext, StepInput, StepShape};
use crate::models::parts::talker::codec_lm::CodecLm;
use crate::models::parts::talker::frames::{FrameDecoder, FrameSections, MAX_SLOTS};
use crate::models::parts::talker::speech_state::SpokenUtterance;
use crate::models::parts::talker::stage::TalkerModel;
use crate::stage::{EdgeKind, ResponseParams, StageItem};

/// The talker with its code predictor, special tokens and voices.
pub struct FrameTalker<O: StepOps> {
    talker: Talker<O>,
    frames: FrameDecoder<O>,
    sizes: Sizes,
    tokens: UtteranceTokens,
    voices: VoiceList,
    /// True if text that does not stream in precedes the first frame.
    whole: bool,
}

/// Sizes of the stage.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Number of slots.
    pub slots: usize,
    /// Width of a row.
    pub width: usize,
    /// Codes of a frame.
    pub groups: usize,
}

/// Voice of a response, and the placement of its text.
pub struct SpeakingStyle {
    voice: Voice,
    /// True if all text precedes the first frame, as in the reference unless text streams in or the voice is cloned.
    whole: bool,
}

/// Sections of the row spec for the talker.
pub struct TalkerSections {
    text: SpecSection,
    codec: SpecSection,
    /// Rows of a recording: the speaker embedding, or the codes of a frame.
    cloned_at: SpecSection,
    cloned: SpecSection,
    cloned_codes: Vec<SpecSection>,
    /// For each row to sample from, the mask of a response that may not end yet, or [`NO_ID`].
    endless: SpecSection,
    frames: FrameSections,
}

impl<O: StepOps> FrameTalker<O> {
    /// Creates the stage's model.
    pub fn new(
        ops: &O,
        talker: Talker<O>,
        sizes: Sizes,
        (tokens, voices, whole): (UtteranceTokens, VoiceList, bool),
        generation: &GenerationConfig,
    ) -> Self {
        let sampling = (generation.talker, generation.code_predictor);
        let frames = FrameDecoder::new(ops, &talker.code_predictor, (sizes.slots, sizes.width), sampling);
        Self { talker, frames, sizes, tokens, voices, whole }
    }
}

fn utterance<'a>(SpeakingStyle { voice, whole }: &'a SpeakingStyle, said: &'a SpokenUtterance<u32>) -> Utterance<'a> {
    Utterance { voice, text: &said.tokens, ended: said.ended.is_some(), whole: *whole }
}

impl<O: Device> TalkerModel<O> for FrameTalker<O> {
    type Row = UtteranceRow;
    type Token = u32;
    type Voice = SpeakingStyle;
    type Sections = TalkerSections;

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn codec(&self) -> &CodecLm<O> {
        &self.talker.codec
    }

    fn max_slots(&self) -> usize {
        MAX_SLOTS
    }

    fn reads(&self, role: Role) -> bool {
        role == Role::System
    }

    fn prompt_row(&self, element: &Element, _: usize) -> Option<UtteranceRow> {
        match element.value {
            ElementValue::Token(id) => Some(UtteranceRow::Text { id, codec: NO_ID }),
            ElementValue::Audio { .. } | ElementValue::Codes(_) => None,
        }
    }

    fn voice(&self, params: &ResponseParams) -> SpeakingStyle {
        SpeakingStyle { voice: self.voices.get(&params.voice), whole: self.whole && !params.streamed }
    }

    fn lead<'a>(&self, style: &'a SpeakingStyle) -> &'a [Vec<u32>] {
        style.voice.recording().map_or(&[], |recording| &recording.frames)
    }

    fn token(&self, item: &StageItem) -> Option<u32> {
        match item {
            StageItem::Token(id) => Some(*id),
            _ => None,
        }
    }

    fn first_rows(&self, style: &SpeakingStyle, said: &SpokenUtterance<u32>) -> Option<Vec<UtteranceRow>> {
        self.tokens.begin(&utterance(style, said))
    }

    fn next_row(
        &self,
        style: &SpeakingStyle,
        said: &SpokenUtterance<u32>,
        frame: usize,
        _: &[u32],
    ) -> Option<UtteranceRow> {
        self.tokens.text_with_frame(&utterance(style, said), frame).map(|id| UtteranceRow::Frame { id })
    }

    fn is_end(&self, code: u32) -> bool {
        code == self.tokens.codec_eos
    }

    fn special(&self, rows: &[UtteranceRow]) -> usize {
        rows.iter().filter(|row| matches!(row, UtteranceRow::Cloned { .. })).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerSections {
        let Sizes { width, groups, .. } = self.sizes;
        TalkerSections {
            text: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            cloned_at: layout.list(shape.special),
            cloned: layout.list(shape.special * width),
            cloned_codes: (0..groups).map(|_| layout.list(shape.special)).collect(),
            endless: layout.list(shape.sampled),
            frames: self.frames.layout(&self.talker.code_predictor, shape, layout),
        }
    }

    fn fill(&self, step: &StepInput<'_, UtteranceRow>, sections: &TalkerSections, spec: &mut RowSpec) {
        let ids = |row: &UtteranceRow| match *row {
            UtteranceRow::Text { id, codec } => (id, codec),
            UtteranceRow::Cloned { id, .. } | UtteranceRow::Frame { id } => (id, NO_ID),
        };
        spec.set_each(sections.text, step.rows.iter().map(|row| ids(row).0));
        spec.set_each(sections.codec, step.rows.iter().map(|row| ids(row).1));
        let cloned = || {
            step.rows.iter().enumerate().filter_map(|(at, row)| match row {
                UtteranceRow::Cloned { voice, frame, .. } => Some((at, voice, *frame)),
                _ => None,
            })
        };
        spec.set_each(sections.cloned_at, cloned().map(|(at, ..)| at as u32));
        // A frame's row consists of its codes alone.
        let speaker = |at: usize, voice: &Cloned, frame: Option<usize>| {
            if frame.is_none() { voice.speaker.get(at).copied().unwrap_or_default() } else { 0.0 }
        };
        let width = self.sizes.width;
        let numbers = cloned().flat_map(move |(_, voice, frame)| (0..width).map(move |at| speaker(at, voice, frame)));
        spec.set_floats_each(sections.cloned, numbers);
        for (group, section) in sections.cloned_codes.iter().enumerate() {
            let code =
                |voice: &Cloned, frame| voice.frames.get::<usize>(frame).and_then(|codes| codes.get(group)).copied();
            let code =
                |(_, voice, frame): (usize, &Arc<Cloned>, Option<usize>)| frame.and_then(|frame| code(voice, frame));
            spec.set_each(*section, cloned().map(|row| code(row).unwrap_or(NO_ID)));
        }
        let endless = |row: &Sampler<'_>| if row.step < LEAST_FRAMES { 0 } else { NO_ID };
        spec.set_each(sections.endless, step.samplers.iter().map(endless));
        let follows = |row: &UtteranceRow| matches!(row, UtteranceRow::Frame { .. });
        self.frames.fill(&self.talker.code_predictor, step, follows, &sections.frames, spec);
    }

    fn forward(&mut self, ops: &O, sections: &TalkerSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let talker = &self.talker;
        let index = |section| ops.index(spec, section);
        let x = talker.text_rows(ops, &index(sections.text));
        let mut codecs = talker.codec.rows(ops, &index(sections.codec));
        if sections.cloned_at.capacity() > 0 {
            let [first, rest @ ..] = &sections.cloned_codes[..] else { unreachable!("a frame has at least two codes") };
            let rest: Vec<O::Index> = rest.iter().map(|codes| index(*codes)).collect();
            let frames = talker.code_predictor.embed_frames(ops, talker.codec.rows(ops, &index(*first)), &rest);
            let rows = ops.add(ops.floats(spec, sections.cloned, self.sizes.width), &frames);
            codecs = ops.scatter_at(codecs, &index(sections.cloned_at), &rows);
        }
        let x = ops.add(x, &self.frames.with_last_frames(ops, codecs, spec, &sections.frames));
        let Some(last) = last else {
            talker.codec.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = talker.codec.forward(ops, x, cache, batch, last);
        let endless = ops.embed_at(&talker.endless, &index(sections.endless));
        let logits = ops.add(talker.codec.logits(ops, &hidden), &endless);
        let models = (&talker.codec, &talker.code_predictor);
        self.frames.decode(ops, models, (spec, &sections.frames), (&hidden, &logits), output_mask, &mut outputs.ids);
    }
}
