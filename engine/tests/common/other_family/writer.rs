//! The first stage: a decoder over text, audio and the model's own speech. It gives each token with its hidden row.
//!
//! Text that streams in is read one token a step, beside the token that the step before made; the response ends with it.

use std::collections::VecDeque;

use repartee_engine::internals::autoregressive::{BLOCK, CausalLm, Forward, HiddenRow, Sampled, Sampler, SlotState};
use repartee_engine::internals::decoder::Decoder;
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{
    BlockPool, EdgeKind, Element, End, Item, Outbox, ResponseParams, Room, Tokenizer, Value,
};
use repartee_engine_api::{Role, Sampling};
use repartee_kernels::cpu::{Cpu, Tensor, Weight};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::{Layout, Ops};

use super::script::END;
use super::{BOOK, CODES, HIDDEN, VOCABULARY, decoder};

/// Sampling of requests that name none.
const SAMPLING: Sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
/// One in so many positions is left for a response, if its limit does not ask for fewer.
const RESERVED_SHARE: usize = 4;

/// A position.
pub enum Row {
    Prompt(Element<Tensor>),
    /// The last token of the response, and the next one of the text that streams in; [`END`] after it.
    Streamed {
        token: u32,
        text: u32,
    },
}

/// What it keeps of a response whose text streams in.
#[derive(Default)]
pub struct Text {
    ids: VecDeque<u32>,
    /// Whether nothing follows.
    ended: bool,
    /// The last token, until the text beside it has come.
    last: Option<u32>,
}

pub struct WriterLm {
    model: Decoder<Cpu>,
    tokens: Weight,
    codes: Weight,
    head: Weight,
    /// Words and the end, nothing that is no text by itself.
    allowed: Weight,
    /// Added to the logits of a response whose text streams in: it does not end by itself.
    endless: Weight,
    context: usize,
    /// For each row that is sampled from in this step, whether its text has ended.
    ending: Vec<bool>,
}

impl WriterLm {
    pub fn load(weights: &Weights<'_, Cpu>, tokenizer: &Tokenizer) -> Self {
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
            allowed: w.made("allowed", Layout::Vector, &allowed, &[VOCABULARY]).unwrap(),
            endless: w.made("endless", Layout::Table, &endless, &[1, VOCABULARY]).unwrap(),
            context: 0,
            ending: Vec::new(),
        }
    }

    /// The same for so many positions.
    pub fn within(self, context: usize) -> Self {
        Self { context, ..self }
    }

    /// Queues the row after the last token once the text beside it is known.
    fn advance(state: &mut SlotState<Cpu, Self>) {
        let text = &mut state.own;
        let Some(token) = text.last else { return };
        let Some(next) = text.ids.pop_front().or(text.ended.then_some(END)) else { return };
        text.last = None;
        // No prompt has such a position, so a later one does not take it for its own.
        let position = Element { role: Role::User, value: Value::Codes([token, next].into()) };
        state.extend(position, Row::Streamed { token, text: next });
    }

    fn embed(&self, ops: &Cpu, rows: &[Row]) -> Tensor {
        let mut ids = vec![NO_ID; rows.len()];
        let mut others: Vec<Vec<u32>> = vec![vec![NO_ID; rows.len()]; CODES + 1];
        let (mut at, mut audio) = (Vec::new(), Vec::new());
        for (i, row) in rows.iter().enumerate() {
            match row {
                Row::Streamed { token, text } => (ids[i], others[CODES][i]) = (*token, *text),
                Row::Prompt(element) => match &element.value {
                    Value::Token(id) => ids[i] = *id,
                    Value::Codes(codes) => {
                        for (book, &code) in codes.iter().enumerate() {
                            others[book][i] = (book * BOOK) as u32 + code;
                        }
                    }
                    Value::Audio { window, row } => {
                        at.push(i);
                        audio.push(ops.gather(&window.rows, &[*row]));
                    }
                },
            }
        }
        let mut x = ops.embed(&self.tokens, &ops.ids(&ids));
        for (book, others) in others.iter().enumerate() {
            let table = if book == CODES { &self.tokens } else { &self.codes };
            x = ops.add(x, &ops.embed(table, &ops.ids(others)));
        }
        if audio.is_empty() { x } else { ops.scatter(x, &at, &ops.concat(&audio.iter().collect::<Vec<_>>())) }
    }
}

impl CausalLm<Cpu> for WriterLm {
    type Row = Row;
    type Slot = Text;
    type Piece = u32;

    fn name(&self) -> &'static str {
        "writer"
    }
    fn takes(&self) -> EdgeKind {
        EdgeKind::Prompt
    }
    fn gives(&self) -> EdgeKind {
        EdgeKind::Rows
    }
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }
    fn cache(&self, ops: &Cpu, blocks: usize) -> Vec<<Cpu as Ops>::State> {
        self.model.cache(ops, blocks, BLOCK)
    }
    fn prompt_row(&self, element: &Element<Tensor>) -> Option<Row> {
        Some(Row::Prompt(element.clone()))
    }
    fn limit(&self, params: &ResponseParams) -> usize {
        params.max_tokens as usize
    }

    fn accept(
        &mut self,
        slot: usize,
        item: Item<Tensor>,
        state: &mut SlotState<Cpu, Self>,
        _: &mut BlockPool,
        out: &mut Outbox<Tensor>,
    ) {
        match item {
            Item::Streamed(elements) if state.decoding().is_some() => {
                let id = |element: &Element<Tensor>| match element.value {
                    Value::Token(id) => Some(id),
                    _ => None,
                };
                state.own.ids.extend(elements.iter().filter_map(id));
                Self::advance(state);
            }
            Item::StreamedEnd if state.decoding().is_some() => {
                state.own.ended = true;
                Self::advance(state);
            }
            Item::Abort => {
                state.end();
                state.drop_queue();
                state.own = Text::default();
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }

    fn forward(
        &mut self,
        ops: &Cpu,
        rows: Vec<Row>,
        cache: &mut [<Cpu as Ops>::State],
        batch: &<Cpu as Ops>::Batch,
        at: &[usize],
    ) -> Forward<Tensor> {
        self.ending = at.iter().map(|&at| matches!(rows[at], Row::Streamed { text: END, .. })).collect();
        let (x, _) = self.model.forward(ops, self.embed(ops, &rows), cache, batch, None);
        let hidden = self.model.norm(ops, &x);
        Forward { last: ops.gather(&hidden, at), hidden: Some(hidden) }
    }

    fn sample(
        &mut self,
        ops: &Cpu,
        last: &Tensor,
        samplers: &[Sampler<'_>],
        output_mask: &mut <Cpu as Ops>::State,
    ) -> Vec<Sampled<u32>> {
        let endless = samplers.iter().map(|row| if row.params.streamed { 0 } else { NO_ID });
        let endless = ops.embed(&self.endless, &ops.ids(&endless.collect::<Vec<_>>()));
        let logits = ops.add(ops.linear(last, &self.head, None), &endless);
        let params = |row: &Sampler<'_>| row.sample_params(row.params.sampling.as_ref().unwrap_or(&SAMPLING), 0);
        let params: Vec<_> = samplers.iter().map(params).collect();
        let ids = ops.read_ids(&ops.sample(&logits, &params, Some(&self.allowed), Some(output_mask)));
        let sampled = |(id, ending): (u32, &bool)| match id {
            NO_ID => Sampled::NotFinite,
            END => Sampled::Stop,
            _ if *ending => Sampled::Stop,
            id => Sampled::Piece(id),
        };
        ids.into_iter().zip(&self.ending).map(sampled).collect()
    }

    fn give(&self, slot: usize, id: &u32, hidden: HiddenRow<'_, Tensor>, out: &mut Outbox<Tensor>) {
        let Some((rows, row)) = hidden else { return };
        out.push((slot, Item::Row { id: *id, rows: rows.clone(), row }));
    }

    fn follow(&mut self, state: &mut SlotState<Cpu, Self>, id: u32) {
        if state.decoding().is_some_and(|decoding| decoding.params.streamed) {
            state.own.last = Some(id);
            Self::advance(state);
        } else {
            let position = Element::token(Role::Assistant, id);
            state.extend(position.clone(), Row::Prompt(position));
        }
    }

    fn ended(
        &mut self,
        slot: usize,
        end: End,
        state: &mut SlotState<Cpu, Self>,
        _: &mut BlockPool,
        out: &mut Outbox<Tensor>,
    ) {
        state.own = Text::default();
        out.push((slot, Item::End(end)));
    }

    fn failed(&mut self, state: &mut SlotState<Cpu, Self>, _: &mut BlockPool) {
        state.drop_queue();
        state.own = Text::default();
    }

    fn room(&self, prompt: &[Element<Tensor>], max_tokens: usize) -> Room {
        Room { used: prompt.len(), limit: self.context - max_tokens.min(self.context / RESERVED_SHARE) }
    }
}
