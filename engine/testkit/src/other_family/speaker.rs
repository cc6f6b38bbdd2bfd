//! Second stage: reads the hidden row of every prompt position, then makes two codec frames of each row of the
//! response.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine::internals::autoregressive::{
    BLOCK, CausalLm, SampleOutcome, SlotState, StepContext, StepInput, StepShape,
};
use repartee_engine::internals::decoder::Decoder;
use repartee_engine::internals::slot_rows::SlotRows;
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{
    BlockPool, ContextBudget, EdgeKind, Element, Outbox, ResponseParams, StageEnd, StageItem,
};
use repartee_engine_api::Sampling;
use repartee_kernels::cpu::{Cpu, Weight};
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ID, NO_ROW, Ops, RowSpec, SpecLayout, StepOutputs};

use super::decoder::decoder;
use super::sizes::{BOOK, CODES, FRAMES, HIDDEN, PIECE_CODES, PIECE_FRAMES, VOCABULARY};
use super::template::END;
use super::voices::Recorded;

/// Positions of a response besides its tokens: the row that ends it.
pub const END_ROWS: usize = 2;
const SAMPLING: Sampling = Sampling { temperature: 0.7, top_k: 16, top_p: 1.0, repetition_penalty: 1.0 };

/// Input of one position: the sum of its parts.
#[derive(Default)]
pub struct SpeakerRow {
    /// Position of the writer's hidden row; a response's end has none.
    hidden: Option<usize>,
    token: Option<u32>,
    /// Codes of the row before.
    codes: Option<[u32; PIECE_CODES]>,
    voice: Option<Vec<f32>>,
}

/// Sections of the step's row spec.
pub struct SpeakerSections {
    hidden: SpecSection,
    tokens: SpecSection,
    codes: [SpecSection; PIECE_CODES],
    voices: SpecSection,
    params: [SampleSection; PIECE_CODES],
}

/// State of a slot.
#[derive(Default)]
pub struct SpeakerSlot {
    /// Prompt positions read, cached or queued.
    positions: usize,
    speech: Option<SpeakerSpeech>,
}

struct SpeakerSpeech {
    params: ResponseParams,
    /// Rows that wait for the codes before them.
    rows: VecDeque<SpeakerRow>,
    begun: bool,
    /// End of the text, once it has ended.
    complete: Option<StageEnd>,
    /// End of the speech, if it ended before the text.
    over: Option<StageEnd>,
    codes: Option<[u32; PIECE_CODES]>,
}

/// The speaker: two codec frames from each row of text.
pub struct SpeakerLm {
    model: Decoder<Cpu>,
    context: Weight,
    tokens: Weight,
    codes: Weight,
    heads: Weight,
    voices: Recorded,
    positions: usize,
    hidden: SlotRows<Cpu>,
    /// For each row sampled in this step, true if it ends the response.
    ending: Vec<bool>,
}

type State = SlotState<Cpu, SpeakerLm>;

impl SpeakerLm {
    /// Loads it for `positions` positions of a prompt and its response in a slot; `hidden` holds the writer's rows.
    pub fn load(weights: &Weights<'_, Cpu>, voices: Recorded, positions: usize, hidden: SlotRows<Cpu>) -> Self {
        let w = weights.at("speaker");
        Self {
            model: decoder(&w),
            context: w.linear("context", HIDDEN, HIDDEN).unwrap(),
            tokens: w.table("tokens", VOCABULARY, HIDDEN).unwrap(),
            codes: w.table("codes", PIECE_CODES * BOOK, HIDDEN).unwrap(),
            heads: w.linear("heads", PIECE_CODES * BOOK, HIDDEN).unwrap(),
            voices,
            positions,
            hidden,
            ending: Vec::new(),
        }
    }

    /// Queues the next row once the codes before it are known: the row of the next token, or of the end.
    fn advance(&self, state: &mut State) {
        let Some(speaking) = &mut state.own.speech else { return };
        if speaking.begun && speaking.codes.is_none() {
            return;
        }
        let end = || SpeakerRow { token: Some(END), ..SpeakerRow::default() };
        let Some(row) = speaking.rows.pop_front().or_else(|| speaking.complete.map(|_| end())) else { return };
        let row = SpeakerRow { codes: speaking.codes.take(), ..row };
        if speaking.begun {
            return state.push(row);
        }
        speaking.begun = true;
        let params = speaking.params.clone();
        let voice = Some(self.voices.row(&params.voice));
        state.push(SpeakerRow { voice, ..row });
        state.begin(params, self.positions);
    }

    /// Ends the response and truncates to the prompt's rows; queued ones stay queued.
    fn finish(state: &mut State, pool: &mut BlockPool) {
        state.own.speech = None;
        state.truncate(pool, state.own.positions);
    }
}

/// End of a response from the ends of its text and its speech: at a limit if either is.
fn both(text: StageEnd, speech: StageEnd) -> StageEnd {
    if text == StageEnd::Length { text } else { speech }
}

impl CausalLm<Cpu> for SpeakerLm {
    type Row = SpeakerRow;
    type Slot = SpeakerSlot;
    type Piece = [u32; PIECE_CODES];
    type Sections = SpeakerSections;

    fn name(&self) -> &'static str {
        "speaker"
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Rows
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }
    fn vocabulary(&self) -> usize {
        BOOK
    }
    fn cache(&self, ops: &Cpu, blocks: usize) -> Vec<<Cpu as Ops>::State> {
        self.model.cache(ops, blocks, BLOCK)
    }
    fn max_items(&self) -> usize {
        PIECE_FRAMES
    }
    fn prompt_row(&self, _: &Element) -> Option<SpeakerRow> {
        None
    }
    fn limit(&self, _: &ResponseParams) -> usize {
        self.positions
    }

    fn accept(&mut self, slot: usize, item: StageItem, state: &mut State, pool: &mut BlockPool, out: &mut Outbox) {
        match item {
            StageItem::Rewind { to } => {
                // No response is active, so the queue holds prompt rows only.
                state.own.positions = state.own.positions.min(to);
                state.truncate(pool, state.own.positions);
            }
            StageItem::Context { from, elements } => {
                for row in 0..elements.len() {
                    state.push(SpeakerRow { hidden: Some(from + row), ..SpeakerRow::default() });
                }
                state.own.positions += elements.len();
            }
            StageItem::Begin(params) => {
                if params.audio {
                    state.own.speech = Some(SpeakerSpeech {
                        params: params.clone(),
                        rows: VecDeque::new(),
                        begun: false,
                        complete: None,
                        over: None,
                        codes: None,
                    });
                }
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Row { id, position } => {
                if let Some(speaking) = state.own.speech.as_mut().filter(|speaking| speaking.over.is_none()) {
                    speaking.rows.push_back(SpeakerRow {
                        hidden: Some(position),
                        token: Some(id),
                        ..SpeakerRow::default()
                    });
                    self.advance(state);
                }
            }
            StageItem::End(end) => match &mut state.own.speech {
                Some(speaking) if speaking.over.is_none() && (speaking.begun || !speaking.rows.is_empty()) => {
                    speaking.complete = Some(end);
                    self.advance(state);
                }
                speaking => {
                    let speech = speaking.take().and_then(|speaking| speaking.over);
                    out.push((slot, StageItem::End(both(end, speech.unwrap_or(end)))));
                }
            },
            StageItem::Abort => {
                if state.own.speech.is_some() {
                    state.end();
                    Self::finish(state, pool);
                }
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> SpeakerSections {
        SpeakerSections {
            hidden: layout.list(shape.rows),
            tokens: layout.list(shape.rows),
            codes: std::array::from_fn(|_| layout.list(shape.rows)),
            voices: layout.list(shape.rows * HIDDEN),
            params: std::array::from_fn(|_| layout.samples(shape.sampled)),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, SpeakerRow>, sections: &SpeakerSections, spec: &mut RowSpec) {
        let hidden = |(row, at): (&SpeakerRow, &(usize, usize))| match row.hidden {
            Some(position) => self.hidden.number(at.0, position),
            None => NO_ROW,
        };
        spec.set_each(sections.hidden, step.rows.iter().zip(step.at).map(hidden));
        spec.set_each(sections.tokens, step.rows.iter().map(|row| row.token.unwrap_or(NO_ID)));
        for (at, section) in sections.codes.iter().enumerate() {
            let code = |row: &SpeakerRow| row.codes.map_or(NO_ID, |codes| (at * BOOK) as u32 + codes[at]);
            spec.set_each(*section, step.rows.iter().map(code));
        }
        let voice = |row: &SpeakerRow| row.voice.clone().unwrap_or_else(|| vec![0.0; HIDDEN]);
        spec.set_floats_each(sections.voices, step.rows.iter().flat_map(voice));
        for (at, section) in sections.params.iter().enumerate() {
            spec.set_samples(*section, step.samplers.iter().map(|row| row.sample_params(&SAMPLING, at + 1)));
        }
        self.ending = step.samplers.iter().map(|row| step.rows[row.row].hidden.is_none()).collect();
    }

    fn forward(
        &mut self,
        ops: &Cpu,
        sections: &SpeakerSections,
        step: StepContext<'_, Cpu>,
        outputs: &mut StepOutputs<Cpu>,
    ) {
        let index = |at| ops.index(step.spec, at);
        let mut x = ops.linear(&self.hidden.load(ops, &index(sections.hidden)), &self.context, None);
        x = ops.add(x, &ops.embed_at(&self.tokens, &index(sections.tokens)));
        for codes in sections.codes {
            x = ops.add(x, &ops.embed_at(&self.codes, &index(codes)));
        }
        x = ops.add(x, &ops.floats(step.spec, sections.voices, HIDDEN));
        let (x, _) = self.model.forward(ops, x, step.cache, step.batch, None);
        let Some(last) = step.last else { return };
        let logits = ops.linear(&self.model.norm(ops, &ops.gather_at(&x, last)), &self.heads, None);
        for (at, params) in sections.params.into_iter().enumerate() {
            let logits = ops.narrow(&logits, at * BOOK, BOOK);
            outputs.ids.push(ops.sample_at(&logits, &index(params.words()), None, None));
        }
    }

    fn sampled(&mut self, ids: Vec<u32>, at: usize, _: &mut State) -> SampleOutcome<[u32; PIECE_CODES]> {
        match <[u32; PIECE_CODES]>::try_from(ids) {
            _ if self.ending[at] => SampleOutcome::Stop,
            Ok(piece) if !piece.contains(&NO_ID) => SampleOutcome::Piece(piece),
            _ => SampleOutcome::NotFinite,
        }
    }

    fn emit(&self, slot: usize, piece: &[u32; PIECE_CODES], _: usize, out: &mut Outbox) {
        out.extend(piece.chunks(CODES).map(|frame| (slot, StageItem::Codes(frame.to_vec()))));
    }

    fn continue_after(&mut self, state: &mut State, piece: [u32; PIECE_CODES]) {
        if let Some(speaking) = &mut state.own.speech {
            speaking.codes = Some(piece);
        }
        self.advance(state);
    }

    /// Ends the response once its text has ended too.
    fn ended(&mut self, slot: usize, end: StageEnd, state: &mut State, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speaking) = &mut state.own.speech else { return };
        if let Some(text) = speaking.complete {
            Self::finish(state, pool);
            out.push((slot, StageItem::End(both(text, end))));
            return;
        }
        speaking.over = Some(end);
        speaking.rows.clear();
        state.truncate(pool, state.own.positions);
    }

    fn failed(&mut self, state: &mut State, pool: &mut BlockPool) {
        Self::finish(state, pool);
    }

    fn reads(&self, _: &Element) -> bool {
        true
    }

    fn buffered_audio(&self, state: &State) -> Duration {
        let rows = state.own.speech.as_ref().map_or(0, |speaking| speaking.rows.len());
        Duration::from_secs(1) * (PIECE_FRAMES * rows) as u32 / FRAMES
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget {
        ContextBudget { used: prompt.len(), limit: self.positions - max_tokens.min(self.positions / 2) }
    }
}
