//! The second stage: reads the hidden row of every prompt position, then makes two codec frames of each row of the response.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine::internals::autoregressive::{BLOCK, CausalLm, Forward, HiddenRow, Sampled, Sampler, SlotState};
use repartee_engine::internals::decoder::Decoder;
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{BlockPool, EdgeKind, Element, End, Item, Outbox, ResponseParams, Room};
use repartee_engine_api::Sampling;
use repartee_kernels::Ops;
use repartee_kernels::cpu::{Cpu, Tensor, Weight};
use repartee_kernels::ops::NO_ID;

use super::script::END;
use super::voices::Recorded;
use super::{BOOK, CODES, FRAMES, HIDDEN, PIECE_CODES, PIECE_FRAMES, VOCABULARY, decoder};

/// Positions of a response beside its tokens: the row that ends it.
pub const END_ROWS: usize = 2;
const SAMPLING: Sampling = Sampling { temperature: 0.7, top_k: 16, top_p: 1.0, repetition_penalty: 1.0 };

/// A position: the sum of what it has.
#[derive(Default)]
pub struct Row {
    /// A hidden row of the writer; a response's end has none.
    hidden: Option<(Arc<Tensor>, usize)>,
    token: Option<u32>,
    /// The codes of the row before.
    codes: Option<[u32; PIECE_CODES]>,
    voice: Option<Vec<f32>>,
}

/// What it keeps of a slot.
#[derive(Default)]
pub struct Heard {
    /// Prompt positions read, cached or queued.
    positions: usize,
    speaking: Option<Speaking>,
}

struct Speaking {
    params: ResponseParams,
    /// Rows that wait for the codes before them.
    rows: VecDeque<Row>,
    begun: bool,
    /// How the text ended, once it has.
    complete: Option<End>,
    /// How the speech ended, if it did before the text.
    over: Option<End>,
    codes: Option<[u32; PIECE_CODES]>,
}

pub struct SpeakerLm {
    model: Decoder<Cpu>,
    context: Weight,
    tokens: Weight,
    codes: Weight,
    heads: Weight,
    voices: Recorded,
    positions: usize,
    /// For each row that is sampled from in this step, whether it ends the response.
    ending: Vec<bool>,
}

type State = SlotState<Cpu, SpeakerLm>;

impl SpeakerLm {
    pub fn load(weights: &Weights<'_, Cpu>, voices: Recorded) -> Self {
        let w = weights.at("speaker");
        Self {
            model: decoder(&w),
            context: w.linear("context", HIDDEN, HIDDEN).unwrap(),
            tokens: w.table("tokens", VOCABULARY, HIDDEN).unwrap(),
            codes: w.table("codes", PIECE_CODES * BOOK, HIDDEN).unwrap(),
            heads: w.linear("heads", PIECE_CODES * BOOK, HIDDEN).unwrap(),
            voices,
            positions: 0,
            ending: Vec::new(),
        }
    }

    /// The same for so many positions of a prompt and its response.
    pub fn within(self, positions: usize) -> Self {
        Self { positions, ..self }
    }

    /// Queues the next row once the codes before it are known: that of the next token, or the end's.
    fn advance(&self, state: &mut State) {
        let Some(speaking) = &mut state.own.speaking else { return };
        if speaking.begun && speaking.codes.is_none() {
            return;
        }
        let end = || Row { token: Some(END), ..Row::default() };
        let Some(row) = speaking.rows.pop_front().or_else(|| speaking.complete.map(|_| end())) else { return };
        let row = Row { codes: speaking.codes.take(), ..row };
        if speaking.begun {
            return state.push(row);
        }
        speaking.begun = true;
        let params = speaking.params.clone();
        let voice = Some(self.voices.row(&params.voice));
        state.push(Row { voice, ..row });
        state.begin(params, self.positions);
    }

    /// Ends the response and truncates to the prompt's rows; queued ones stay queued.
    fn finish(state: &mut State, pool: &mut BlockPool) {
        state.own.speaking = None;
        state.truncate(pool, state.own.positions);
    }

    fn embed(&self, ops: &Cpu, rows: &[Row]) -> Tensor {
        let hidden = |row: &Row| match &row.hidden {
            Some((rows, row)) => ops.gather(rows, &[*row]),
            None => ops.tensor(vec![0.0; HIDDEN], HIDDEN),
        };
        let hidden: Vec<Tensor> = rows.iter().map(hidden).collect();
        let mut x = ops.linear(&ops.concat(&hidden.iter().collect::<Vec<_>>()), &self.context, None);
        let tokens: Vec<u32> = rows.iter().map(|row| row.token.unwrap_or(NO_ID)).collect();
        x = ops.add(x, &ops.embed(&self.tokens, &ops.ids(&tokens)));
        for at in 0..PIECE_CODES {
            let code = |row: &Row| row.codes.map_or(NO_ID, |codes| (at * BOOK) as u32 + codes[at]);
            let codes: Vec<u32> = rows.iter().map(code).collect();
            x = ops.add(x, &ops.embed(&self.codes, &ops.ids(&codes)));
        }
        let voices = rows.iter().flat_map(|row| row.voice.clone().unwrap_or_else(|| vec![0.0; HIDDEN])).collect();
        ops.add(x, &ops.tensor(voices, HIDDEN))
    }
}

/// How a response ended whose text and speech ended so: at a limit if either did.
fn both(text: End, speech: End) -> End {
    if text == End::Length { text } else { speech }
}

impl CausalLm<Cpu> for SpeakerLm {
    type Row = Row;
    type Slot = Heard;
    type Piece = [u32; PIECE_CODES];

    fn name(&self) -> &'static str {
        "speaker"
    }
    fn takes(&self) -> EdgeKind {
        EdgeKind::Rows
    }
    fn gives(&self) -> EdgeKind {
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
    fn prompt_row(&self, _: &Element<Tensor>) -> Option<Row> {
        None
    }
    fn limit(&self, _: &ResponseParams) -> usize {
        self.positions
    }

    fn accept(
        &mut self,
        slot: usize,
        item: Item<Tensor>,
        state: &mut State,
        pool: &mut BlockPool,
        out: &mut Outbox<Tensor>,
    ) {
        match item {
            Item::Rewind { to } => {
                // No response is active, so the queue holds prompt rows only.
                state.own.positions = state.own.positions.min(to);
                state.truncate(pool, state.own.positions);
            }
            Item::Context { elements, hidden, .. } => {
                for row in 0..elements.len() {
                    state.push(Row { hidden: Some((Arc::clone(&hidden), row)), ..Row::default() });
                }
                state.own.positions += elements.len();
            }
            Item::Begin(params) => {
                if params.audio {
                    state.own.speaking = Some(Speaking {
                        params: params.clone(),
                        rows: VecDeque::new(),
                        begun: false,
                        complete: None,
                        over: None,
                        codes: None,
                    });
                }
                out.push((slot, Item::Begin(params)));
            }
            Item::Row { id, rows, row } => {
                if let Some(speaking) = state.own.speaking.as_mut().filter(|speaking| speaking.over.is_none()) {
                    speaking.rows.push_back(Row { hidden: Some((rows, row)), token: Some(id), ..Row::default() });
                    self.advance(state);
                }
            }
            Item::End(end) => match &mut state.own.speaking {
                Some(speaking) if speaking.over.is_none() && (speaking.begun || !speaking.rows.is_empty()) => {
                    speaking.complete = Some(end);
                    self.advance(state);
                }
                speaking => {
                    let speech = speaking.take().and_then(|speaking| speaking.over);
                    out.push((slot, Item::End(both(end, speech.unwrap_or(end)))));
                }
            },
            Item::Abort => {
                if state.own.speaking.is_some() {
                    state.end();
                    Self::finish(state, pool);
                }
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
        self.ending = at.iter().map(|&at| rows[at].hidden.is_none()).collect();
        let (x, _) = self.model.forward(ops, self.embed(ops, &rows), cache, batch, None);
        Forward { last: self.model.norm(ops, &ops.gather(&x, at)), hidden: None }
    }

    fn sample(
        &mut self,
        ops: &Cpu,
        last: &Tensor,
        samplers: &[Sampler<'_>],
        _: &mut <Cpu as Ops>::State,
    ) -> Vec<Sampled<[u32; PIECE_CODES]>> {
        let logits = ops.linear(last, &self.heads, None);
        let codes: [Vec<u32>; PIECE_CODES] = std::array::from_fn(|at| {
            let params: Vec<_> = samplers.iter().map(|row| row.sample_params(&SAMPLING, at + 1)).collect();
            ops.read_ids(&ops.sample(&ops.narrow(&logits, at * BOOK, BOOK), &params, None, None))
        });
        let sampled = |(row, ending): (usize, &bool)| {
            let piece = std::array::from_fn(|at| codes[at][row]);
            match *ending {
                true => Sampled::Stop,
                _ if piece.contains(&NO_ID) => Sampled::NotFinite,
                _ => Sampled::Piece(piece),
            }
        };
        self.ending.iter().enumerate().map(|(row, ending)| sampled((row, ending))).collect()
    }

    fn give(&self, slot: usize, piece: &[u32; PIECE_CODES], _: HiddenRow<'_, Tensor>, out: &mut Outbox<Tensor>) {
        out.extend(piece.chunks(CODES).map(|frame| (slot, Item::Codes(frame.to_vec()))));
    }

    fn follow(&mut self, state: &mut State, piece: [u32; PIECE_CODES]) {
        if let Some(speaking) = &mut state.own.speaking {
            speaking.codes = Some(piece);
        }
        self.advance(state);
    }

    /// The response ends once its text has ended too.
    fn ended(&mut self, slot: usize, end: End, state: &mut State, pool: &mut BlockPool, out: &mut Outbox<Tensor>) {
        let Some(speaking) = &mut state.own.speaking else { return };
        if let Some(text) = speaking.complete {
            Self::finish(state, pool);
            out.push((slot, Item::End(both(text, end))));
            return;
        }
        speaking.over = Some(end);
        speaking.rows.clear();
        state.truncate(pool, state.own.positions);
    }

    fn failed(&mut self, state: &mut State, pool: &mut BlockPool) {
        Self::finish(state, pool);
    }

    fn reads(&self, _: &Element<Tensor>) -> bool {
        true
    }

    fn ahead(&self, state: &State) -> Duration {
        let rows = state.own.speaking.as_ref().map_or(0, |speaking| speaking.rows.len());
        Duration::from_secs(1) * (PIECE_FRAMES * rows) as u32 / FRAMES
    }

    fn room(&self, prompt: &[Element<Tensor>], max_tokens: usize) -> Room {
        Room { used: prompt.len(), limit: self.positions - max_tokens.min(self.positions / 2) }
    }
}
