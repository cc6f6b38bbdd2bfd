//! The stage of a causal language model: prefix reuse, prefill and decode as one step, sampling, limits and stops, for many
//! slots at once. A [`CausalLm`] says what a position is made of and what becomes of a sampled row.
//!
//! The stage that reads the prompt keeps the longest common prefix of a new prompt and the cached one; its sequence is
//! truncated there and the rest prefilled. That one rule serves every change of the history.

mod stage;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::Sampling;
use repartee_kernels::{Ops, SampleParams, random::uniform};

pub use self::stage::Autoregressive;
use crate::elements::Element;
use crate::sequence::{BlockPool, Sequence};
#[cfg(doc)]
use crate::stage::Stage;
use crate::stage::{EdgeKind, End, Item, Outbox, ResponseParams, Room};

/// Positions in a block of a key-value cache.
pub const BLOCK: usize = 16;

/// A response that a language model is generating.
pub struct Decoding {
    /// Its parameters.
    pub params: ResponseParams,
    /// Pieces sampled so far.
    pub steps: usize,
    /// Most of them.
    limit: usize,
}

/// What the stage keeps of a slot.
pub struct SlotState<O: Ops, L: CausalLm<O>> {
    sequence: Sequence,
    /// Rows that are not cached yet, in order.
    queue: VecDeque<L::Row>,
    /// Positions of prompt and response, in the stage that reads the prompt; the first `sequence.len()` are cached.
    prompt: Vec<Element<O::T>>,
    /// Leading positions of the prompt that no later stage reads.
    shareable: usize,
    /// Positions of the last prompt; those after it are of its response.
    prompted: usize,
    decoding: Option<Decoding>,
    /// Whether a response began since the penalty's history was last cleared.
    fresh: bool,
    /// The model's own.
    pub own: L::Slot,
}

impl<O: Ops, L: CausalLm<O>> Default for SlotState<O, L> {
    fn default() -> Self {
        Self {
            sequence: Sequence::default(),
            queue: VecDeque::new(),
            prompt: Vec::new(),
            shareable: 0,
            prompted: 0,
            decoding: None,
            fresh: false,
            own: L::Slot::default(),
        }
    }
}

impl<O: Ops, L: CausalLm<O>> SlotState<O, L> {
    /// Positions cached.
    pub fn cached(&self) -> usize {
        self.sequence.len()
    }

    /// The response being generated.
    pub fn decoding(&self) -> Option<&Decoding> {
        self.decoding.as_ref()
    }

    /// Appends a row.
    pub fn push(&mut self, row: L::Row) {
        self.queue.push_back(row);
    }

    /// Appends a position to the prompt, and its row.
    pub fn extend(&mut self, element: Element<O::T>, row: L::Row) {
        self.prompt.push(element);
        self.queue.push_back(row);
    }

    /// Begins a response of at most `limit` pieces. Its first piece is sampled from the last row once the queue is empty.
    pub fn begin(&mut self, params: ResponseParams, limit: usize) {
        self.decoding = Some(Decoding { params, steps: 0, limit });
        self.fresh = true;
    }

    /// Forgets the response; rows stay.
    pub fn end(&mut self) -> Option<Decoding> {
        self.decoding.take()
    }

    /// Drops every position from `len` on, queued ones too. Returns how many stay cached, see [`Sequence::truncate`].
    pub fn truncate(&mut self, pool: &mut BlockPool, len: usize) -> usize {
        self.queue.truncate(len.saturating_sub(self.sequence.len()));
        self.sequence.truncate(pool, len)
    }

    /// Drops every position that is not cached.
    pub fn drop_queue(&mut self) {
        self.queue.clear();
        self.prompt.truncate(self.sequence.len());
    }
}

/// Results of [`CausalLm::forward`].
pub struct Forward<T> {
    /// The rows that are sampled from, in their order.
    pub last: T,
    /// A row for each row of the batch, for later stages; `None` if none reads them.
    pub hidden: Option<T>,
}

/// A slot that samples in this step.
pub struct Sampler<'a> {
    /// The slot.
    pub slot: usize,
    /// Parameters of its response.
    pub params: &'a ResponseParams,
    /// Pieces sampled before.
    pub step: usize,
}

impl Sampler<'_> {
    /// Sampling parameters of one row. The random number depends on the response's seed and id, the step and `stream` alone;
    /// each sampling of a step has a stream of its own.
    pub fn sample_params(&self, sampling: &Sampling, stream: usize) -> SampleParams {
        SampleParams {
            slot: self.slot,
            repetition_penalty: sampling.repetition_penalty,
            temperature: sampling.temperature,
            top_k: sampling.top_k as usize,
            top_p: sampling.top_p,
            uniform: uniform(self.params.seed, self.params.response, self.step as u64, stream as u64),
        }
    }
}

/// What was sampled from a row.
pub enum Sampled<P> {
    /// A value was not finite.
    NotFinite,
    /// The model's stop token.
    Stop,
    /// More of the response.
    Piece(P),
}

/// A hidden row of a batch.
pub type HiddenRow<'a, T> = Option<(&'a Arc<T>, usize)>;

/// A causal language model, as the generic stage drives it.
pub trait CausalLm<O: Ops>: Send + Sized {
    /// What a position is computed from.
    type Row: Send;
    /// What the model keeps of a slot.
    type Slot: Default + Send;
    /// What is sampled from a row.
    type Piece;

    /// Name of the stage.
    fn name(&self) -> &'static str;
    /// What the stage takes.
    fn takes(&self) -> EdgeKind;
    /// What it gives.
    fn gives(&self) -> EdgeKind;
    /// Ids that it samples from; the repetition penalty's history has so many.
    fn vocabulary(&self) -> usize;
    /// Keys and values of every layer.
    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State>;
    /// Slots that one step can advance.
    fn max_slots(&self) -> usize {
        usize::MAX
    }
    /// Items that one step gives for a slot.
    fn max_items(&self) -> usize {
        1
    }

    /// The row of a prompt position; `None` in a stage that does not take prompts.
    fn prompt_row(&self, element: &Element<O::T>) -> Option<Self::Row>;
    /// Most pieces of a response.
    fn limit(&self, params: &ResponseParams) -> usize;
    /// Takes an item other than a prompt.
    fn accept(
        &mut self,
        slot: usize,
        item: Item<O::T>,
        state: &mut SlotState<O, Self>,
        pool: &mut BlockPool,
        out: &mut Outbox<O::T>,
    );
    /// All layers over packed rows. `at` are the rows that are sampled from.
    fn forward(
        &mut self,
        ops: &O,
        rows: Vec<Self::Row>,
        cache: &mut [O::State],
        batch: &O::Batch,
        at: &[usize],
    ) -> Forward<O::T>;
    /// Samples from each of the rows `last`.
    fn sample(
        &mut self,
        ops: &O,
        last: &O::T,
        samplers: &[Sampler<'_>],
        output_mask: &mut O::State,
    ) -> Vec<Sampled<Self::Piece>>;
    /// Gives a piece to the next stage, as at most [`CausalLm::max_items`] items. `hidden` is the row that it was sampled from.
    fn give(&self, slot: usize, piece: &Self::Piece, hidden: HiddenRow<'_, O::T>, out: &mut Outbox<O::T>);
    /// Continues a response after a piece: queues the row after it if it is known.
    fn follow(&mut self, state: &mut SlotState<O, Self>, piece: Self::Piece);
    /// Ends a response that sampled its stop or reached a limit, and says so to the next stage when that is due.
    fn ended(
        &mut self,
        slot: usize,
        end: End,
        state: &mut SlotState<O, Self>,
        pool: &mut BlockPool,
        out: &mut Outbox<O::T>,
    );
    /// Drops what a response left that failed.
    fn failed(&mut self, state: &mut SlotState<O, Self>, pool: &mut BlockPool);

    /// Leading prompt positions, of `positions`, of which the slot has every row that this stage reads; for a stage that takes no
    /// prompts.
    fn shares(&self, _donor: &SlotState<O, Self>, _positions: usize) -> usize {
        0
    }
    /// Makes `state` the model's own for the leading `positions` of `donor`'s prompt. Returns how many rows those are.
    fn share(&self, _state: &mut SlotState<O, Self>, _donor: &SlotState<O, Self>, _positions: usize) -> usize {
        0
    }

    /// Whether a later stage's state depends on this prompt position.
    fn reads(&self, _element: &Element<O::T>) -> bool {
        false
    }
    /// Sound that the slot's input will become; see [`Stage::ahead`].
    fn ahead(&self, _state: &SlotState<O, Self>) -> Duration {
        Duration::ZERO
    }
    /// See [`Stage::room`].
    fn room(&self, prompt: &[Element<O::T>], max_tokens: usize) -> Room;
}
