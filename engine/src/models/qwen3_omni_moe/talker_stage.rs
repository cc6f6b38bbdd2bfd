//! Rows of the talker: user rows of the prompt, the header of a response, and one text token with each frame.
//!
//! As in the reference, its prompt is the rows of all user messages and the header of the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use repartee_engine_api::Role;
use repartee_kernels::ops::NO_ID;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{RowSpec, SpecLayout, StepOps, StepOutputs};

use super::config::Config;
use super::generation::GenerationConfig;
use super::talker::Talker;
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::models::parts::autoregressive::{StepContext, StepInput, StepShape};
use crate::models::parts::language_model::LanguageModel;
use crate::models::parts::slot_rows::SlotRows;
use crate::models::parts::talker::codec_lm::CodecLm;
use crate::models::parts::talker::frames::{FrameDecoder, FrameSections, MAX_SLOTS};
use crate::models::parts::talker::speech_state::SpokenUtterance;
use crate::models::parts::talker::stage::TalkerModel;
use crate::stage::{EdgeKind, ResponseParams, StageItem};

/// Rows between the user rows and the first frame: the response's header and its first text token.
pub const HEADER_ROWS: usize = 9;

/// Input of a position: the sum of a text part and a codec part.
pub enum TalkerRow {
    /// A text token and a codec id ([`NO_ID`] for none).
    Text {
        /// Id of the text token.
        id: u32,
        /// Codec id, or [`NO_ID`].
        codec: u32,
    },
    /// An audio row, from the thinker's hidden row.
    Audio {
        /// Position in the thinker's prompt.
        position: usize,
    },
    /// A text token and the sum of the last frame's embeddings.
    Frame {
        /// Id of the text token.
        id: u32,
    },
}

/// The talker with its code predictor and special tokens, and the thinker that provides its rows.
pub struct FrameTalker<O: StepOps> {
    thinker: Arc<LanguageModel<O>>,
    talker: Talker<O>,
    /// Hidden rows of the thinker.
    hidden: SlotRows<O>,
    frames: FrameDecoder<O>,
    ids: Ids,
    speakers: BTreeMap<String, u32>,
}

/// Special ids, for the response's header and the speech.
struct Ids {
    /// Ids of `<|im_start|>assistant\n`.
    header: [u32; 3],
    tts_bos: u32,
    tts_eos: u32,
    tts_pad: u32,
    nothink: u32,
    think_bos: u32,
    think_eos: u32,
    codec_pad: u32,
    codec_bos: u32,
    codec_eos: u32,
}

/// Sections of the row spec for the talker.
pub struct TalkerSections {
    text: SpecSection,
    codec: SpecSection,
    /// Audio rows, and the numbers of their hidden rows.
    audio_at: SpecSection,
    audio: SpecSection,
    frames: FrameSections,
}

impl<O: StepOps> FrameTalker<O> {
    /// Creates the stage's model for `slots` slots; `hidden` are the thinker's rows, `header` is
    /// `<|im_start|>assistant\n`.
    pub fn new(
        ops: &O,
        (thinker, talker, hidden): (Arc<LanguageModel<O>>, Talker<O>, SlotRows<O>),
        slots: usize,
        header: [u32; 3],
        (config, generation): (&Config, &GenerationConfig),
    ) -> Self {
        let codec = &config.talker;
        let sampling = (generation.talker, generation.code_predictor);
        Self {
            frames: FrameDecoder::new(ops, &talker.code_predictor, (slots, codec.text.layers.hidden_size), sampling),
            hidden,
            ids: Ids {
                header,
                tts_bos: config.tts_bos_token_id,
                tts_eos: config.tts_eos_token_id,
                tts_pad: config.tts_pad_token_id,
                nothink: codec.codec_nothink_id,
                think_bos: codec.codec_think_bos_id,
                think_eos: codec.codec_think_eos_id,
                codec_pad: codec.codec_pad_id,
                codec_bos: codec.codec_bos_id,
                codec_eos: codec.codec_eos_token_id,
            },
            speakers: codec.speaker_id.clone(),
            thinker,
            talker,
        }
    }
}

impl<O: Device> TalkerModel<O> for FrameTalker<O> {
    type Row = TalkerRow;
    type Token = u32;
    /// Codec id of the speaker.
    type Voice = u32;
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
        role == Role::User
    }

    fn prompt_row(&self, element: &Element, position: usize) -> Option<TalkerRow> {
        Some(match element.value {
            ElementValue::Token(id) => TalkerRow::Text { id, codec: NO_ID },
            ElementValue::Audio { .. } | ElementValue::Codes(_) => TalkerRow::Audio { position },
        })
    }

    fn used(&self, prompt: &[Element]) -> usize {
        prompt.iter().filter(|element| self.reads(element.role)).count()
    }

    fn voice(&self, params: &ResponseParams) -> u32 {
        self.speakers.get(&params.voice).copied().unwrap_or(self.ids.codec_pad)
    }

    fn token(&self, item: &StageItem) -> Option<u32> {
        match item {
            StageItem::Token(id) => Some(*id),
            _ => None,
        }
    }

    /// Returns the response's header and first text token, [`HEADER_ROWS`] rows. The last one gives codebook 0 of the
    /// first frame.
    fn first_rows(&self, &speaker: &u32, said: &SpokenUtterance<u32>) -> Option<Vec<TalkerRow>> {
        let (ids, &first) = (&self.ids, said.tokens.first()?);
        let header = ids.header.map(|id| TalkerRow::Text { id, codec: NO_ID });
        let codecs = [ids.nothink, ids.think_bos, ids.think_eos, speaker];
        let codecs = codecs.map(|codec| TalkerRow::Text { id: ids.tts_pad, codec });
        let bos = TalkerRow::Text { id: ids.tts_bos, codec: ids.codec_pad };
        let first = TalkerRow::Text { id: first, codec: ids.codec_bos };
        Some(header.into_iter().chain(codecs).chain([bos, first]).collect())
    }

    /// Each frame goes with the next token, then the end token, then padding.
    fn next_row(&self, _: &u32, said: &SpokenUtterance<u32>, frames: usize, _: &[u32]) -> Option<TalkerRow> {
        let id = match said.tokens.get(frames) {
            Some(&token) => token,
            None if said.ended.is_none() => return None,
            None if frames == said.tokens.len() => self.ids.tts_eos,
            None => self.ids.tts_pad,
        };
        Some(TalkerRow::Frame { id })
    }

    fn is_end(&self, code: u32) -> bool {
        code == self.ids.codec_eos
    }

    fn special(&self, rows: &[TalkerRow]) -> usize {
        rows.iter().filter(|row| matches!(row, TalkerRow::Audio { .. })).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerSections {
        TalkerSections {
            text: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special),
            frames: self.frames.layout(&self.talker.code_predictor, shape, layout),
        }
    }

    fn fill(&self, step: &StepInput<'_, TalkerRow>, sections: &TalkerSections, spec: &mut RowSpec) {
        let ids = |row: &TalkerRow| match *row {
            TalkerRow::Text { id, codec } => (id, codec),
            TalkerRow::Audio { .. } => (NO_ID, NO_ID),
            TalkerRow::Frame { id } => (id, NO_ID),
        };
        spec.set_each(sections.text, step.rows.iter().map(|row| ids(row).0));
        spec.set_each(sections.codec, step.rows.iter().map(|row| ids(row).1));
        let audio = || {
            step.rows.iter().zip(step.at).enumerate().filter_map(|(i, (row, at))| match row {
                TalkerRow::Audio { position } => Some((i, self.hidden.number(at.0, *position))),
                _ => None,
            })
        };
        spec.set_each(sections.audio_at, audio().map(|(i, _)| i as u32));
        spec.set_each(sections.audio, audio().map(|(_, number)| number));
        let follows = |row: &TalkerRow| matches!(row, TalkerRow::Frame { .. });
        self.frames.fill(&self.talker.code_predictor, step, follows, &sections.frames, spec);
    }

    fn forward(&mut self, ops: &O, sections: &TalkerSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let talker = &self.talker;
        let index = |section| ops.index(spec, section);
        let mut x = talker.text_rows(ops, &ops.embed_at(&self.thinker.embed_tokens, &index(sections.text)));
        if sections.audio.capacity() > 0 {
            let hidden = self.hidden.load(ops, &index(sections.audio));
            x = ops.scatter_at(x, &index(sections.audio_at), &talker.audio_rows(ops, &hidden));
        }
        let codecs = talker.codec.rows(ops, &index(sections.codec));
        x = ops.add(x, &self.frames.with_last_frames(ops, codecs, spec, &sections.frames));
        let Some(last) = last else {
            talker.codec.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = talker.codec.forward(ops, x, cache, batch, last);
        let logits = talker.codec.logits(ops, &hidden);
        let models = (&talker.codec, &talker.code_predictor);
        self.frames.decode(ops, models, (spec, &sections.frames), (&hidden, &logits), output_mask, &mut outputs.ids);
    }
}
