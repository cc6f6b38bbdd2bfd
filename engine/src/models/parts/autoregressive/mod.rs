//! The stage of a causal language model: prefix reuse, prefill and decode as one step, sampling, limits and stops, for many
//! slots at once. A [`CausalLm`] says what a position is made of and what becomes of a sampled row.
//!
//! A step is one launch: the host fills a row spec, the device does the same operations for every step of a [`StepShape`], and what was
//! chosen is read back.
//!
//! The stage that reads the prompt keeps the longest common prefix of a new prompt and the cached one; its sequence is
//! truncated there and the rest prefilled. That one rule serves every change of the history.

mod stage;

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::Sampling;
use repartee_kernels::{StepOutputs, RowSpec, SampleParams, SpecLayout, StepKey, StepOps, random::uniform};

pub use self::stage::Autoregressive;
use crate::elements::Element;
use crate::sequence::{BlockPool, Sequence};
#[cfg(doc)]
use crate::stage::Stage;
use crate::stage::{EdgeKind, StageEnd, StageItem, Outbox, ResponseParams, ContextBudget};

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
pub struct SlotState<O: StepOps, L: CausalLm<O>> {
    sequence: Sequence,
    /// Rows that are not cached yet, in order.
    queue: VecDeque<L::Row>,
    /// Positions of prompt and response, in the stage that reads the prompt; the first `sequence.len()` are cached.
    prompt: Vec<Element>,
    /// Leading positions of the prompt that no later stage reads.
    shareable: usize,
    /// Positions of the last prompt; those after it are of its response.
    prompted: usize,
    decoding: Option<Decoding>,
    /// Blocks that are to be copied, from and to.
    copies: Vec<(u32, u32)>,
    /// Whether a response began since the penalty's history was last cleared.
    fresh: bool,
    /// The model's own.
    pub own: L::Slot,
}

impl<O: StepOps, L: CausalLm<O>> Default for SlotState<O, L> {
    fn default() -> Self {
        Self {
            sequence: Sequence::default(),
            queue: VecDeque::new(),
            prompt: Vec::new(),
            shareable: 0,
            prompted: 0,
            decoding: None,
            copies: Vec::new(),
            fresh: false,
            own: L::Slot::default(),
        }
    }
}

impl<O: StepOps, L: CausalLm<O>> SlotState<O, L> {
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
    pub fn extend(&mut self, element: Element, row: L::Row) {
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

    /// Drops every position from `len` on, queued ones too. All others stay, also where another slot shares their blocks.
    pub fn truncate(&mut self, pool: &mut BlockPool, len: usize) {
        self.queue.truncate(len.saturating_sub(self.sequence.len()));
        let copied = self.sequence.truncate_exact(pool, len);
        self.copies.extend(
            copied.expect("a pool has blocks for all positions of all slots, and one that is shared is spared"),
        );
    }

    /// Drops every position that is not cached.
    pub fn drop_queue(&mut self) {
        self.queue.clear();
        self.prompt.truncate(self.sequence.len());
    }
}

/// What decides the shapes of a step; each number is padded to the device's bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepShape {
    /// Rows.
    pub rows: usize,
    /// Rows that are sampled from; 0 for a step that only prefills.
    pub sampled: usize,
    /// Rows that the model computes otherwise than the rest; see [`CausalLm::special`].
    pub special: usize,
}

impl StepShape {
    /// Neither the sampled nor the special rows are more than all rows.
    fn key(self, stage: &'static str) -> StepKey {
        StepKey { stage, rows: self.rows, variant: self.sampled * (self.rows + 1) + self.special }
    }
}

/// Rows of a step, out of which the model fills a row spec.
pub struct StepInput<'a, R> {
    /// The rows, those of a slot one under the other.
    pub rows: &'a [R],
    /// Slot and position of each.
    pub at: &'a [(usize, usize)],
    /// Slots that sample, in the order in which they do.
    pub samplers: &'a [Sampler<'a>],
}

/// A step on the device.
pub struct StepContext<'a, O: StepOps> {
    /// The uploaded row spec.
    pub spec: &'a O::Spec,
    /// The rows.
    pub batch: &'a O::Batch,
    /// Those that are sampled from; `None` if none is.
    pub last: Option<&'a O::Index>,
    /// [`CausalLm::cache`]
    pub cache: &'a mut [O::State],
    /// The repetition penalty's history.
    pub output_mask: &'a mut O::State,
}

/// A slot that samples in this step.
pub struct Sampler<'a> {
    /// The slot.
    pub slot: usize,
    /// The row that it samples from.
    pub row: usize,
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
pub enum SampleOutcome<P> {
    /// A value was not finite.
    NotFinite,
    /// The model's stop token.
    Stop,
    /// More of the response.
    Piece(P),
    /// Nothing: the response waits for its caller; see [`CausalLm::resumed`].
    Pending,
}

/// A causal language model, as the generic stage drives it.
pub trait CausalLm<O: StepOps>: Send + Sized {
    /// What a position is computed from.
    type Row: Send;
    /// What the model keeps of a slot.
    type Slot: Default + Send;
    /// What is sampled from a row.
    type Piece;
    /// Where the model's own numbers of a step lie.
    type Sections;

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
    fn prompt_row(&self, element: &Element) -> Option<Self::Row>;
    /// Most pieces of a response.
    fn limit(&self, params: &ResponseParams) -> usize;
    /// Takes an item other than a prompt.
    fn accept(
        &mut self,
        slot: usize,
        item: StageItem,
        state: &mut SlotState<O, Self>,
        pool: &mut BlockPool,
        out: &mut Outbox,
    );
    /// Rows that are computed otherwise than the rest: the shapes of the step depend on their number.
    fn special_rows(&self, _rows: &[Self::Row]) -> usize {
        0
    }
    /// Place for the model's own numbers of a step.
    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> Self::Sections;
    /// Fills the model's own places.
    fn fill(&mut self, step: &StepInput<'_, Self::Row>, places: &Self::Sections, spec: &mut RowSpec);
    /// The step: all layers, and what is chosen from the rows that are sampled from, each list with one id a row. A device may repeat
    /// its operations without calling it, so it changes nothing but the device's state.
    fn forward(&mut self, ops: &O, places: &Self::Sections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>);
    /// What was chosen for sampler `at`, a slot with the state `state`: one id of each list.
    fn sampled(&mut self, ids: Vec<u32>, at: usize, state: &mut SlotState<O, Self>) -> SampleOutcome<Self::Piece>;
    /// How a response goes on that waited, after an item was taken; `None` if it waits on, or did not wait.
    fn resume(&mut self, _state: &mut SlotState<O, Self>) -> Option<SampleOutcome<Self::Piece>> {
        None
    }
    /// Gives a piece to the next stage, as at most [`CausalLm::max_items`] items. It was sampled from the row of `position`.
    fn emit(&self, slot: usize, piece: &Self::Piece, position: usize, out: &mut Outbox);
    /// Continues a response after a piece: queues the row after it if it is known.
    fn continue_after(&mut self, state: &mut SlotState<O, Self>, piece: Self::Piece);
    /// Ends a response that sampled its stop or reached a limit, and says so to the next stage when that is due.
    fn ended(&mut self, slot: usize, end: StageEnd, state: &mut SlotState<O, Self>, pool: &mut BlockPool, out: &mut Outbox);
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
    fn reads(&self, _element: &Element) -> bool {
        false
    }
    /// Sound that the slot's input will become; see [`Stage::ahead`].
    fn ahead(&self, _state: &SlotState<O, Self>) -> Duration {
        Duration::ZERO
    }
    /// See [`Stage::room`].
    fn room(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget;
}
