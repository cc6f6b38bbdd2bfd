//! The language model with the speech head as a stage: each position of a response is a text token, and a group of codes
//! while the response speaks.
//!
//! Both caches share one table of blocks, so that rewinding, forking and sharing a prefix cut both. A position that was
//! sampled from has codes in the head's cache that no prompt has there: it is found in no later prompt.

use std::sync::Arc;

use repartee_engine_api::Sampling;
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ID, NO_ROW, Ops, RowSpec, SampleParams, SpecLayout, StateSpec, StepOutputs};

use super::head::{HeadSections, SpeechHead};
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::models::parts::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, Sampler, SlotState, StepContext, StepInput, StepShape,
};
use crate::models::parts::language_model::LanguageModel;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "language_model";
/// Divisor of the context: a quarter is reserved for a response, or less if its limit is lower.
const RESERVED_SHARE: usize = 4;
/// Groups of a spoken response for each of its tokens, and of one of any length.
const GROUPS_PER_TOKEN: usize = 4;
const LEAST_GROUPS: usize = 64;

/// Ids of the text that have a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextIds {
    /// Stands for a row of audio.
    pub audio: u32,
    /// Begins audio, and the speech of a response.
    pub begin: u32,
    /// Ends audio, and the speech of a response.
    pub end: u32,
    /// Says nothing, beside codes.
    pub silent: u32,
}

/// Ids that end the text, and those around function calls, whose codes are not said.
#[derive(Debug, Clone)]
pub struct ResponseIds {
    /// Ids of the text that have a meaning.
    pub text: TextIds,
    /// Id that ends a response.
    pub stop: u32,
    /// Ids that open and close a function call.
    pub call: Option<(u32, u32)>,
}

/// The language model with its head, as the first stage.
pub struct SpeakerPart<O: Ops> {
    /// The language model.
    pub model: LanguageModel<O>,
    /// Number of its layers.
    pub layers: usize,
    /// The speech head.
    pub head: SpeechHead<O>,
    /// Maximum positions of the model.
    pub most_positions: usize,
    /// Most groups of a response.
    pub most_groups: usize,
    /// Mask over all ids, 1 for each that may be sampled.
    pub allowed: O::Weight,
    /// Ids with a meaning.
    pub ids: ResponseIds,
    /// Default sampling of the text.
    pub text_sampling: Sampling,
    /// Sampling of codes.
    pub code_sampling: Sampling,
}

impl<O: Device> StagePart<O> for SpeakerPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn most_positions(&self) -> Option<usize> {
        Some(self.most_positions)
    }

    /// Keys and values of both, and the masks of sampled ids.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let position = self.model.model.position_bytes() + self.head.group_bytes();
        SlotBytes { position, fixed: self.model.vocabulary() + self.head.codes().all }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let (slots, context) = (at.slots.total(), at.slots.context);
        let said = at.ops.state(StateSpec::TokenMask { slots, vocabulary: self.head.codes().all });
        Box::new(Autoregressive::new(at.ops, SpeakerLm { part: *self, slots, context, said }, slots, context))
    }
}

/// The language model in its stage.
struct SpeakerLm<O: Ops> {
    part: SpeakerPart<O>,
    slots: usize,
    /// Positions of a slot.
    context: usize,
    /// Codes of each slot's response.
    said: O::State,
}

/// Input of a position.
pub enum SpeakerRow {
    /// A position of a prompt.
    Prompt(Element),
    /// A position of a response.
    Said {
        /// Id of its text.
        id: u32,
        /// Codes that it says beside the text.
        codes: Option<Arc<[u32]>>,
        /// Code that was drawn last before it.
        before: u32,
    },
}

/// State of a response between positions.
#[derive(Default)]
pub struct SpeakerSlot {
    in_speech: bool,
    /// True within a function call.
    calls: bool,
    /// Text tokens said.
    tokens: u32,
}

/// A sampled position.
pub struct SpeakerPiece {
    row: SpeakerRow,
    /// Its text, if it says some.
    text: Option<u32>,
    /// Codes with a sound.
    codes: Vec<u32>,
}

/// Sections of the row spec.
pub struct SpeakerSections {
    /// Ids of tokens, and with those that stand for audio.
    ids: SpecSection,
    texts: SpecSection,
    /// Audio rows, and their numbers.
    audio_at: SpecSection,
    audio: SpecSection,
    /// Rows that say codes, and these codes.
    spoken_at: SpecSection,
    spoken: Vec<SpecSection>,
    params: SampleSection,
    head: HeadSections,
}

impl<O: Ops> SpeakerLm<O> {
    /// Block of the padding: the one behind those of the slots.
    fn scratch(&self) -> u32 {
        (self.slots * self.context.div_ceil(BLOCK)) as u32
    }

    /// True if a response begins with a mark that nobody samples.
    fn opens(step: usize, params: &ResponseParams) -> bool {
        step == 0 && params.audio
    }
}

impl<O: Device> CausalLm<O> for SpeakerLm<O> {
    type Row = SpeakerRow;
    type Slot = SpeakerSlot;
    type Piece = SpeakerPiece;
    type Sections = SpeakerSections;

    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn vocabulary(&self) -> usize {
        self.part.model.vocabulary()
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        let mut cache = self.part.model.model.cache(ops, blocks, BLOCK);
        cache.extend(self.part.head.cache(ops, blocks));
        cache
    }

    /// The text and the codes of a position.
    fn max_items(&self) -> usize {
        1 + self.part.head.codes().group
    }

    fn prompt_row(&self, element: &Element) -> Option<SpeakerRow> {
        Some(SpeakerRow::Prompt(element.clone()))
    }

    /// A written response has its tokens. A spoken one has the mark that begins speech, and speaks after its text has ended.
    fn limit(&self, params: &ResponseParams) -> usize {
        let tokens = params.max_tokens as usize;
        if !params.audio {
            return tokens;
        }
        1 + (GROUPS_PER_TOKEN * tokens + LEAST_GROUPS).min(self.part.most_groups)
    }

    /// Rows of prompts.
    fn special_rows(&self, rows: &[SpeakerRow]) -> usize {
        rows.iter().filter(|row| matches!(row, SpeakerRow::Prompt(_))).count()
    }

    fn hold(&mut self, state: &mut SlotState<O, Self>) {
        state.replace_last(Element::codes(Arc::from([])));
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> SpeakerSections {
        let group = self.part.head.codes().group;
        SpeakerSections {
            ids: layout.list(shape.rows),
            texts: layout.list(shape.rows),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special * self.part.model.width()),
            spoken_at: layout.list(shape.sampled),
            spoken: (0..group).map(|_| layout.list(shape.sampled)).collect(),
            params: layout.samples(shape.sampled),
            head: self.part.head.layout(shape, layout, (self.slots, self.context.div_ceil(BLOCK))),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, SpeakerRow>, sections: &SpeakerSections, spec: &mut RowSpec) {
        let id = |row: &SpeakerRow, absent: u32| match row {
            SpeakerRow::Said { id, .. } => *id,
            SpeakerRow::Prompt(Element { value: ElementValue::Token(id), .. }) => *id,
            SpeakerRow::Prompt(_) => absent,
        };
        spec.set_each(sections.ids, step.rows.iter().map(|row| id(row, NO_ID)));
        spec.set_each(sections.texts, step.rows.iter().map(|row| id(row, self.part.ids.text.audio)));
        let audio = || {
            step.rows.iter().enumerate().filter_map(|(at, row)| match row {
                SpeakerRow::Prompt(element) => Some((at as u32, element.audio()?)),
                SpeakerRow::Said { .. } => None,
            })
        };
        spec.set_each(sections.audio_at, audio().map(|(at, _)| at));
        spec.set_floats_each(sections.audio, audio().flat_map(|(_, row)| row.iter().copied()));
        // A row of a response is sampled from.
        let spoken = || {
            step.samplers.iter().filter_map(|sampler| match &step.rows[sampler.row] {
                SpeakerRow::Said { codes: Some(codes), .. } => Some((sampler.row as u32, codes)),
                _ => None,
            })
        };
        spec.set_each(sections.spoken_at, spoken().map(|(at, _)| at));
        for (code, section) in sections.spoken.iter().enumerate() {
            spec.set_each(*section, spoken().map(|(_, codes)| codes[code]));
        }
        let params = |row: &Sampler<'_>| {
            let params = row.sample_params(&row.params.sampling.unwrap_or(self.part.text_sampling), 0);
            // The id in whose place the mark stands counts in no history.
            if Self::opens(row.step, row.params) { SampleParams { slot: NO_ROW as usize, ..params } } else { params }
        };
        spec.set_samples(sections.params, step.samplers.iter().map(params));
        let before = |row: &SpeakerRow| match row {
            SpeakerRow::Said { before, .. } => Some(*before),
            SpeakerRow::Prompt(_) => None,
        };
        // Codes count from the group after the mark on; those before it are not said.
        let begun = step.samplers.iter().filter(|row| row.step <= 1).map(|row| row.slot as u32);
        // The text's random numbers are stream 0.
        let codes = |code: usize| {
            let params = |row: &Sampler<'_>| row.sample_params(&self.part.code_sampling, 1 + code);
            step.samplers.iter().map(params).collect()
        };
        self.part.head.fill((step, spec), &sections.head, before, begun, codes, self.scratch());
    }

    fn forward(&mut self, ops: &O, sections: &SpeakerSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let SpeakerPart { model, layers, head, allowed, .. } = &self.part;
        let index = |section| ops.index(spec, section);
        let audio = (sections.audio.capacity() > 0)
            .then(|| (index(sections.audio_at), ops.floats(spec, sections.audio, model.width())));
        let mut x = model.embed(ops, &index(sections.ids), audio.as_ref().map(|(at, audio)| (at, audio)));
        if sections.spoken_at.capacity() > 0 {
            let codes: Vec<O::Index> = sections.spoken.iter().map(|codes| index(*codes)).collect();
            if let Some(rows) = head.spoken(ops, &codes) {
                let at = index(sections.spoken_at);
                // The mean of text and codes.
                let rows = ops.scale_all(ops.add(ops.gather_at(&x, &at), &rows), 0.5);
                x = ops.scatter_at(x, &at, &rows);
            }
        }
        let (cache, of_head) = cache.split_at_mut(*layers);
        let (x, _) = model.model.forward(ops, x, cache, batch, None);
        let normed = model.model.norm(ops, &x);
        if let Some(last) = last {
            let logits = model.head(ops, &ops.gather_at(&normed, last));
            outputs.ids.push(ops.sample_at(&logits, &index(sections.params.words()), Some(allowed), Some(output_mask)));
        }
        let hidden = ops.add(normed, &ops.embed_at(&model.embed_tokens, &index(sections.texts)));
        head.draw(ops, (spec, &sections.head), &hidden, (of_head, &mut self.said), |ids, _| outputs.ids.push(ids));
    }

    fn sampled(&mut self, ids: Vec<u32>, _: usize, state: &mut SlotState<O, Self>) -> SampleOutcome<SpeakerPiece> {
        let (marks, codes_of) = (&self.part.ids, self.part.head.codes());
        let Some(decoding) = state.decoding() else { return SampleOutcome::Stop };
        let (step, max_tokens) = (decoding.steps, decoding.params.max_tokens);
        let opens = Self::opens(step, &decoding.params);
        if step == 0 {
            state.own = SpeakerSlot::default();
        }
        let own = &mut state.own;
        let Some((&sampled, drawn)) = ids.split_first().filter(|_| !ids.contains(&NO_ID)) else {
            return SampleOutcome::NotFinite;
        };
        let Some(&before) = drawn.last() else { return SampleOutcome::NotFinite };
        let stops = !opens && sampled == marks.stop;
        let mut id = if opens { marks.text.begin } else { sampled };
        let mut said = None;
        if own.in_speech && drawn.contains(&codes_of.end) {
            own.in_speech = false;
            id = marks.text.end;
        } else if own.in_speech {
            said = Some(Arc::<[u32]>::from(drawn));
        }
        if let Some((open, close)) = marks.call {
            own.calls = id == open || (own.calls && id != close);
        }
        let sounds = said.iter().filter(|_| !own.calls).flat_map(|codes| codes.iter().copied());
        let codes: Vec<u32> = sounds.filter(|&code| (code as usize) < codes_of.sounds).collect();
        let is_mark = [marks.text.begin, marks.text.end, marks.text.silent].contains(&id);
        let text = (!is_mark && !stops).then_some(id);
        if text.is_some() {
            if own.tokens >= max_tokens {
                return SampleOutcome::Full;
            }
            own.tokens += 1;
        }
        own.in_speech |= opens;
        let ends_silently = stops && codes.is_empty();
        let piece = SpeakerPiece { row: SpeakerRow::Said { id, codes: said, before }, text, codes };
        match (ends_silently, stops) {
            (true, _) => SampleOutcome::Stop,
            // The last group of speech that the end of the text cuts off.
            (_, true) => SampleOutcome::Last(piece),
            _ => SampleOutcome::Piece(piece),
        }
    }

    fn emit(&self, slot: usize, piece: &SpeakerPiece, _: usize, out: &mut Outbox) {
        out.extend(piece.text.map(|id| (slot, StageItem::Token(id))));
        out.extend(piece.codes.iter().map(|code| (slot, StageItem::Codes(vec![*code]))));
    }

    fn continue_after(&mut self, state: &mut SlotState<O, Self>, piece: SpeakerPiece) {
        state.extend(Element::codes(Arc::from([])), piece.row);
    }

    fn ended(&mut self, slot: usize, end: StageEnd, _: &mut SlotState<O, Self>, _: &mut BlockPool, out: &mut Outbox) {
        out.push((slot, StageItem::End(end)));
    }

    fn failed(&mut self, state: &mut SlotState<O, Self>, _: &mut BlockPool) {
        state.drop_queue();
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget {
        let reserved = (GROUPS_PER_TOKEN * max_tokens + LEAST_GROUPS).min(self.context / RESERVED_SHARE);
        ContextBudget { used: prompt.len(), limit: self.context - reserved }
    }
}
