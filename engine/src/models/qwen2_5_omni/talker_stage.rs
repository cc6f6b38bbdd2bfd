//! Rows of the talker: the thinker's rows of prompt and text, and the code before each row.
//!
//! As in the reference, its prompt is the thinker's whole prompt. The row of a text token is the thinker's row of that
//! token, computed when the next token is sampled. So the last token of a text that ended at a limit has no row and is
//! not spoken.

use std::collections::BTreeMap;
use std::sync::Arc;

use repartee_engine_api::{Role, Sampling};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ROW, RowSpec, SpecLayout, StepOps, StepOutputs};

use super::config::TalkerConfig;
use super::talker::{Talker, ends};
use crate::device::Device;
use crate::elements::Element;
use crate::models::parts::autoregressive::{StepContext, StepInput, StepShape};
use crate::models::parts::generation::Generation;
use crate::models::parts::language_model::LanguageModel;
use crate::models::parts::slot_rows::SlotRows;
use crate::models::parts::talker::codec_lm::CodecLm;
use crate::models::parts::talker::speech_state::SpokenUtterance;
use crate::models::parts::talker::stage::TalkerModel;
use crate::stage::{EdgeKind, ResponseParams, StageEnd, StageItem};

/// Rows between the prompt and the first code.
pub const HEADER_ROWS: usize = 2;

/// Input of a position: a thinker row or a text token's embedding, and a codec id ([`NO_ID`] for none).
#[derive(Debug, Clone, Copy)]
pub struct TalkerRow {
    text: Text,
    codec: u32,
}

#[derive(Debug, Clone, Copy)]
enum Text {
    /// The thinker's row of this position.
    Handed(usize),
    /// A special token of the text.
    Mark(u32),
}

/// The talker with its special tokens, and the thinker that provides its rows.
pub struct CodeTalker<O: StepOps> {
    thinker: Arc<LanguageModel<O>>,
    talker: Talker<O>,
    /// Rows from the thinker.
    handed: SlotRows<O>,
    config: TalkerConfig,
    /// For each voice, the token before its text.
    bos: BTreeMap<String, u32>,
    sampling: Sampling,
}

/// Sections of the row spec for the talker.
pub struct TalkerSections {
    special_tokens: SpecSection,
    handed: SpecSection,
    codec: SpecSection,
    params: SampleSection,
    /// Padding ids to add to the history, for each row to sample from, and the parameters of these histories.
    padding: SpecSection,
    histories: SampleSection,
}

/// Positions of the text tokens whose rows the thinker has computed.
fn known(said: &SpokenUtterance<usize>) -> &[usize] {
    let unknown = usize::from(said.ended != Some(StageEnd::Stop) && !said.tokens.is_empty());
    &said.tokens[..said.tokens.len() - unknown]
}

impl<O: StepOps> CodeTalker<O> {
    /// Creates the stage's model; `handed` are the thinker's rows, `bos` holds each voice's token before its text.
    pub fn new(
        (thinker, talker, handed): (Arc<LanguageModel<O>>, Talker<O>, SlotRows<O>),
        bos: BTreeMap<String, u32>,
        (config, generation): (&TalkerConfig, &Generation),
    ) -> Self {
        Self { thinker, talker, handed, config: config.clone(), bos, sampling: generation.talker }
    }
}

impl<O: Device> TalkerModel<O> for CodeTalker<O> {
    type Row = TalkerRow;
    /// Position of the token.
    type Token = usize;
    /// Token before the text.
    type Voice = u32;
    type Sections = TalkerSections;

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Rows
    }

    fn codec(&self) -> &CodecLm<O> {
        &self.talker.codec
    }

    fn reads(&self, _: Role) -> bool {
        true
    }

    fn prompt_row(&self, _: &Element, position: usize) -> Option<TalkerRow> {
        Some(TalkerRow { text: Text::Handed(position), codec: NO_ID })
    }

    fn voice(&self, params: &ResponseParams) -> u32 {
        self.bos.get(&params.voice).copied().unwrap_or(self.config.tts_text_pad_token_id)
    }

    fn token(&self, item: &StageItem) -> Option<usize> {
        match item {
            // The item names the row that the token was sampled from, one before its own.
            StageItem::Row { position, .. } => Some(position + 1),
            _ => None,
        }
    }

    fn is_silent(&self, said: &SpokenUtterance<usize>) -> bool {
        known(said).is_empty()
    }

    fn first_rows(&self, &bos: &u32, said: &SpokenUtterance<usize>) -> Option<Vec<TalkerRow>> {
        let &first = known(said).first()?;
        Some(vec![
            TalkerRow { text: Text::Mark(bos), codec: self.config.tts_codec_pad_token_id },
            TalkerRow { text: Text::Handed(first), codec: self.config.tts_codec_start_token_id },
        ])
    }

    /// Each code goes with the next token, then the end token, then padding.
    fn next_row(&self, _: &u32, said: &SpokenUtterance<usize>, count: usize, codes: &[u32]) -> Option<TalkerRow> {
        let known = known(said);
        let text = match known.get(count) {
            Some(&position) => Text::Handed(position),
            None if said.ended.is_none() => return None,
            None if count == known.len() => Text::Mark(self.config.tts_text_end_token_id),
            None => Text::Mark(self.config.tts_text_pad_token_id),
        };
        Some(TalkerRow { text, codec: *codes.first()? })
    }

    fn is_end(&self, code: u32) -> bool {
        ends(&self.config).contains(&code)
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerSections {
        TalkerSections {
            special_tokens: layout.list(shape.rows),
            handed: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            params: layout.samples(shape.sampled),
            padding: layout.list(shape.sampled),
            histories: layout.samples(shape.sampled),
        }
    }

    fn fill(&self, step: &StepInput<'_, TalkerRow>, sections: &TalkerSections, spec: &mut RowSpec) {
        let mark = |row: &TalkerRow| match row.text {
            Text::Mark(id) => id,
            Text::Handed(_) => NO_ID,
        };
        spec.set_each(sections.special_tokens, step.rows.iter().map(mark));
        let handed = |(row, at): (&TalkerRow, &(usize, usize))| match row.text {
            Text::Handed(position) => self.handed.number(at.0, position),
            Text::Mark(_) => NO_ROW,
        };
        spec.set_each(sections.handed, step.rows.iter().zip(step.at).map(handed));
        spec.set_each(sections.codec, step.rows.iter().map(|row| row.codec));
        // The text's random numbers are stream 0.
        spec.set_samples(sections.params, step.samplers.iter().map(|row| row.sample_params(&self.sampling, 1)));
        spec.set_each(sections.padding, step.samplers.iter().map(|_| 0));
        let histories = step.samplers.iter().map(|row| row.sample_params(&Sampling::GREEDY, 1));
        spec.set_samples(sections.histories, histories);
    }

    fn forward(&mut self, ops: &O, sections: &TalkerSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let codec = &self.talker.codec;
        let index = |section| ops.index(spec, section);
        let marks = ops.embed_at(&self.thinker.embed_tokens, &index(sections.special_tokens));
        let x = ops.add(self.handed.load(ops, &index(sections.handed)), &marks);
        let x = self.talker.rows(ops, x, &index(sections.codec));
        let Some(last) = last else {
            codec.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = codec.forward(ops, x, cache, batch, last);
        let logits = codec.logits(ops, &hidden);
        if self.sampling.repetition_penalty != 1.0 {
            let histories = index(sections.histories.words());
            self.talker.say_padding(ops, &index(sections.padding), &histories, output_mask);
        }
        let params = index(sections.params.words());
        outputs.ids.push(ops.sample_at(&logits, &params, Some(&codec.allowed_mask), Some(output_mask)));
    }
}
