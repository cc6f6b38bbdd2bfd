//! First stage: a decoder over text, audio and the model's own speech. It gives each token with its hidden row.
//!
//! Streamed text is read one token a step, together with the last sampled token; the response ends with the text.

use std::collections::VecDeque;

use repartee_engine::internals::autoregressive::{
    BLOCK, CausalLm, SampleOutcome, Sampler, SlotState, StepContext, StepInput, StepShape,
};
use repartee_engine::internals::decoder::Decoder;
use repartee_engine::internals::slot_rows::SlotRows;
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{
    BlockPool, ContextBudget, EdgeKind, Element, ElementValue, Outbox, ResponseParams, StageEnd, StageItem, Tokenizer,
};
use repartee_engine_api::{Role, Sampling};
use repartee_kernels::cpu::{Cpu, Weight};
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ID, Ops, RowSpec, SpecLayout, StepOutputs, WeightLayout};

use super::decoder::decoder;
use super::sizes::{BOOK, CODES, HIDDEN, VOCABULARY};
use super::template::END;

/// Default sampling of requests.
const SAMPLING: Sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
/// Share of positions reserved for a response (one in four), if its limit does not ask for fewer.
const RESERVED_SHARE: usize = 4;

/// Input of one position.
pub enum WriterRow {
    /// An element of the prompt.
    Prompt(Element),
    /// A position of the response.
    Streamed {
        /// Last token of the response.
        token: u32,
        /// Next token of the streamed text; [`END`] after it.
        text: u32,
    },
}

impl WriterRow {
    fn id(&self) -> u32 {
        match self {
            Self::Streamed { token, .. } => *token,
            Self::Prompt(Element { value: ElementValue::Token(id), .. }) => *id,
            Self::Prompt(_) => NO_ID,
        }
    }

    /// Row to add from the table of codebook `book`, or of the text.
    fn other(&self, book: usize) -> u32 {
        match self {
            Self::Streamed { text, .. } if book == CODES => *text,
            Self::Prompt(Element { value: ElementValue::Codes(codes), .. }) => {
                codes.get(book).map_or(NO_ID, |code| (book * BOOK) as u32 + code)
            }
            _ => NO_ID,
        }
    }

    fn audio(&self) -> Option<&[f32]> {
        match self {
            Self::Prompt(element) => element.audio(),
            Self::Streamed { .. } => None,
        }
    }
}

/// Sections of the step's row spec.
pub struct WriterSections {
    ids: SpecSection,
    others: [SpecSection; CODES + 1],
    audio_at: SpecSection,
    audio: SpecSection,
    hidden: SpecSection,
    endless: SpecSection,
    params: SampleSection,
}

/// State of a response whose text streams in.
#[derive(Default)]
pub struct WriterText {
    ids: VecDeque<u32>,
    /// True if nothing follows.
    ended: bool,
    /// Last token, until the text for its position has arrived.
    last: Option<u32>,
}

/// The writer: text from a prompt.
pub struct WriterLm {
    model: Decoder<Cpu>,
    tokens: Weight,
    codes: Weight,
    head: Weight,
    /// Mask of words and the end; excludes ids without text of their own.
    allowed: Weight,
    /// Added to the logits of a response whose text streams in, so that it does not end by itself.
    endless: Weight,
    context: usize,
    /// Hidden rows for the speaker, of every position.
    hidden: SlotRows<Cpu>,
    /// For each row sampled in this step, true if its text has ended.
    ending: Vec<bool>,
}

impl WriterLm {
    /// Loads it for `context` positions of a slot.
    pub fn load(weights: &Weights<'_, Cpu>, tokenizer: &Tokenizer, context: usize, hidden: SlotRows<Cpu>) -> Self {
        let w = weights.at("writer");
        let is_word = |id: u32| {
            let text = tokenizer.decode(&[id]);
            let word = text.strip_prefix(' ').unwrap_or(&text);
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
        };
        let allowed = |id: usize| if id as u32 == END || is_word(id as u32) { 1.0 } else { 0.0 };
        let allowed: Vec<f32> = (0..VOCABULARY).map(allowed).collect();
        let endless: Vec<f32> = (0..VOCABULARY).map(|id| if id as u32 == END { -1e9 } else { 0.0 }).collect();
        Self {
            model: decoder(&w),
            tokens: w.table("tokens", VOCABULARY, HIDDEN).unwrap(),
            codes: w.table("codes", CODES * BOOK, HIDDEN).unwrap(),
            head: w.linear("head", VOCABULARY, HIDDEN).unwrap(),
            allowed: w.made("allowed", WeightLayout::Vector, &allowed, &[VOCABULARY]).unwrap(),
            endless: w.made("endless", WeightLayout::Table, &endless, &[1, VOCABULARY]).unwrap(),
            context,
            hidden,
            ending: Vec::new(),
        }
    }

    /// Queues the row after the last token once the text for its position is known.
    fn advance(state: &mut SlotState<Cpu, Self>) {
        let text = &mut state.own;
        let Some(token) = text.last else { return };
        let Some(next) = text.ids.pop_front().or(text.ended.then_some(END)) else { return };
        text.last = None;
        // No prompt has such a position, so a later prompt does not match it.
        let position = Element { role: Role::User, value: ElementValue::Codes([token, next].into()) };
        state.extend(position, WriterRow::Streamed { token, text: next });
    }
}

impl CausalLm<Cpu> for WriterLm {
    type Row = WriterRow;
    type Slot = WriterText;
    type Piece = u32;
    type Sections = WriterSections;

    fn name(&self) -> &'static str {
        "writer"
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Rows
    }
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }
    fn cache(&self, ops: &Cpu, blocks: usize) -> Vec<<Cpu as Ops>::State> {
        self.model.cache(ops, blocks, BLOCK)
    }
    fn prompt_row(&self, element: &Element) -> Option<WriterRow> {
        Some(WriterRow::Prompt(element.clone()))
    }
    fn limit(&self, params: &ResponseParams) -> usize {
        params.max_tokens as usize
    }

    fn accept(
        &mut self,
        slot: usize,
        item: StageItem,
        state: &mut SlotState<Cpu, Self>,
        _: &mut BlockPool,
        out: &mut Outbox,
    ) {
        match item {
            StageItem::Streamed(elements) if state.decoding().is_some() => {
                let id = |element: &Element| match element.value {
                    ElementValue::Token(id) => Some(id),
                    _ => None,
                };
                state.own.ids.extend(elements.iter().filter_map(id));
                Self::advance(state);
            }
            StageItem::StreamedEnd(_) if state.decoding().is_some() => {
                state.own.ended = true;
                Self::advance(state);
            }
            StageItem::Abort => {
                state.end();
                state.drop_queue();
                state.own = WriterText::default();
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn special_rows(&self, rows: &[WriterRow]) -> usize {
        rows.iter().filter(|row| row.audio().is_some()).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> WriterSections {
        WriterSections {
            ids: layout.list(shape.rows),
            others: std::array::from_fn(|_| layout.list(shape.rows)),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special * HIDDEN),
            hidden: layout.list(shape.rows),
            endless: layout.list(shape.sampled),
            params: layout.samples(shape.sampled),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, WriterRow>, sections: &WriterSections, spec: &mut RowSpec) {
        spec.set_each(sections.ids, step.rows.iter().map(WriterRow::id));
        for (book, others) in sections.others.iter().enumerate() {
            spec.set_each(*others, step.rows.iter().map(|row| row.other(book)));
        }
        let audio = || step.rows.iter().enumerate().filter_map(|(i, row)| Some((i as u32, row.audio()?)));
        spec.set_each(sections.audio_at, audio().map(|(i, _)| i));
        spec.set_floats_each(sections.audio, audio().flat_map(|(_, row)| row.iter().copied()));
        spec.set_each(sections.hidden, step.at.iter().map(|&(slot, position)| self.hidden.number(slot, position)));
        let endless = step.samplers.iter().map(|row| if row.params.streamed { 0 } else { NO_ID });
        spec.set_each(sections.endless, endless);
        let params = |row: &Sampler<'_>| row.sample_params(row.params.sampling.as_ref().unwrap_or(&SAMPLING), 0);
        spec.set_samples(sections.params, step.samplers.iter().map(params));
        let ending = |row: &Sampler<'_>| matches!(step.rows[row.row], WriterRow::Streamed { text: END, .. });
        self.ending = step.samplers.iter().map(ending).collect();
    }

    fn forward(
        &mut self,
        ops: &Cpu,
        sections: &WriterSections,
        step: StepContext<'_, Cpu>,
        outputs: &mut StepOutputs<Cpu>,
    ) {
        let index = |at| ops.index(step.spec, at);
        let mut x = ops.embed_at(&self.tokens, &index(sections.ids));
        for (book, others) in sections.others.iter().enumerate() {
            let table = if book == CODES { &self.tokens } else { &self.codes };
            x = ops.add(x, &ops.embed_at(table, &index(*others)));
        }
        if sections.audio.capacity() > 0 {
            let audio = ops.floats(step.spec, sections.audio, HIDDEN);
            x = ops.scatter_at(x, &index(sections.audio_at), &audio);
        }
        let (x, _) = self.model.forward(ops, x, step.cache, step.batch, None);
        let hidden = self.model.norm(ops, &x);
        self.hidden.store(ops, &index(sections.hidden), &hidden);
        let Some(last) = step.last else { return };
        let logits = ops.linear(&ops.gather_at(&hidden, last), &self.head, None);
        let logits = ops.add(logits, &ops.embed_at(&self.endless, &index(sections.endless)));
        let params = index(sections.params.words());
        outputs.ids.push(ops.sample_at(&logits, &params, Some(&self.allowed), Some(step.output_mask)));
    }

    fn sampled(&mut self, ids: Vec<u32>, at: usize, _: &mut SlotState<Cpu, Self>) -> SampleOutcome<u32> {
        match ids[0] {
            NO_ID => SampleOutcome::NotFinite,
            END => SampleOutcome::Stop,
            _ if self.ending[at] => SampleOutcome::Stop,
            id => SampleOutcome::Piece(id),
        }
    }

    fn emit(&self, slot: usize, id: &u32, position: usize, out: &mut Outbox) {
        out.push((slot, StageItem::Row { id: *id, position }));
    }

    fn continue_after(&mut self, state: &mut SlotState<Cpu, Self>, id: u32) {
        if state.decoding().is_some_and(|decoding| decoding.params.streamed) {
            state.own.last = Some(id);
            Self::advance(state);
        } else {
            let position = Element::token(Role::Assistant, id);
            state.extend(position.clone(), WriterRow::Prompt(position));
        }
    }

    fn ended(
        &mut self,
        slot: usize,
        end: StageEnd,
        state: &mut SlotState<Cpu, Self>,
        _: &mut BlockPool,
        out: &mut Outbox,
    ) {
        state.own = WriterText::default();
        out.push((slot, StageItem::End(end)));
    }

    fn failed(&mut self, state: &mut SlotState<Cpu, Self>, _: &mut BlockPool) {
        state.drop_queue();
        state.own = WriterText::default();
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget {
        ContextBudget { used: prompt.len(), limit: self.context - max_tokens.min(self.context / RESERVED_SHARE) }
    }
}
