//! The interface of a causal language model to its stage: [`CausalLm`], the state of a slot and the inputs of a step.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::Sampling;
use repartee_forms::Mask;
use repartee_kernels::{Ops, RowSpec, SampleParams, SequenceRows, SpecLayout, StepKey, StepOutputs, random::uniform};

use crate::elements::Element;
use crate::held_form::FormIds;
use crate::sequence::{BlockPool, Sequence};
#[cfg(doc)]
use crate::stage::Stage;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, StageEnd, StageItem};

/// Positions in a block of a KV cache.
pub const BLOCK: usize = 16;

/// A response that a language model is generating.
pub struct Decoding {
    /// Parameters of the response.
    pub params: ResponseParams,
    /// Number of pieces sampled so far.
    pub steps: usize,
    /// Most pieces of the response.
    pub(super) limit: usize,
}

impl Decoding {
    /// Number of pieces that may still come.
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.steps)
    }
}

/// Stage state of a slot.
pub struct SlotState<O: Ops, L: CausalLm<O>> {
    pub(super) sequence: Sequence,
    /// Rows not yet cached, in order.
    pub(super) queue: VecDeque<L::Row>,
    /// Positions of prompt and response, in the stage that reads the prompt; the first `sequence.len()` are cached.
    pub(super) prompt: Vec<Element>,
    /// Leading positions of the prompt that no later stage reads.
    pub(super) shareable: usize,
    /// Length of the last prompt; positions after it belong to its response.
    pub(super) prompted: usize,
    pub(super) decoding: Option<Decoding>,
    /// Blocks to copy, from and to.
    pub(super) copies: Vec<(u32, u32)>,
    /// True if a response began since the penalty's history was last cleared.
    pub(super) fresh: bool,
    /// State of the model itself.
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
            copies: Vec::new(),
            fresh: false,
            own: L::Slot::default(),
        }
    }
}

impl<O: Ops, L: CausalLm<O>> SlotState<O, L> {
    /// Number of cached positions.
    pub fn cached(&self) -> usize {
        self.sequence.len()
    }

    /// Positions of the last prompt, in the stage that reads the prompt.
    pub fn last_prompt(&self) -> &[Element] {
        &self.prompt[..self.prompted.min(self.prompt.len())]
    }

    /// Response being generated, if any.
    pub fn decoding(&self) -> Option<&Decoding> {
        self.decoding.as_ref()
    }

    /// Queues a row for computation.
    pub fn push(&mut self, row: L::Row) {
        self.queue.push_back(row);
    }

    /// Appends a position to the prompt, and queues its row.
    pub fn extend(&mut self, element: Element, row: L::Row) {
        self.prompt.push(element);
        self.queue.push_back(row);
    }

    /// Begins a response of at most `limit` pieces. Its first piece is sampled from the last row once the queue is
    /// empty.
    pub fn begin(&mut self, params: ResponseParams, limit: usize) {
        self.decoding = Some(Decoding { params, steps: 0, limit });
        self.fresh = true;
    }

    /// Ends the response and returns it; rows stay.
    pub fn end(&mut self) -> Option<Decoding> {
        self.decoding.take()
    }

    /// Drops every position from `len` on, queued ones included. All others stay, even if another slot shares their
    /// blocks.
    pub fn truncate(&mut self, pool: &mut BlockPool, len: usize) {
        self.queue.truncate(len.saturating_sub(self.sequence.len()));
        let copied = self.sequence.truncate_exact(pool, len);
        self.copies.extend(
            copied.expect("a pool has blocks for all positions of all slots, and one that is shared is spared"),
        );
    }

    /// Puts `element` in the place of the last cached position, which no later prompt then finds in the cache.
    pub fn replace_last(&mut self, element: Element) {
        let last = self.sequence.len().checked_sub(1).and_then(|last| self.prompt.get_mut(last));
        last.into_iter().for_each(|last| *last = element.clone());
    }

    /// Drops every position that is not cached.
    pub fn drop_queue(&mut self) {
        self.queue.clear();
        self.prompt.truncate(self.sequence.len());
    }
}

/// Numbers that determine the shapes of a step, each padded to the device's bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepShape {
    /// Number of rows.
    pub rows: usize,
    /// Number of rows to sample from; 0 for a step that only prefills.
    pub sampled: usize,
    /// Rows that the model computes differently from the rest; see [`CausalLm::special_rows`].
    pub special: usize,
    /// Rows to sample from whose text is held to a form.
    pub held: usize,
}

impl StepShape {
    /// Key of the shape. Sampled, special and held rows never outnumber all rows, so it is unique.
    pub(super) fn key(self, stage: &'static str) -> StepKey {
        StepKey {
            stage,
            rows: self.rows,
            variant: (self.held * (self.rows + 1) + self.sampled) * (self.rows + 1) + self.special,
        }
    }
}

/// Rows of a step, from which the model fills a row spec.
pub struct StepInput<'a, R> {
    /// Rows of all slots; those of a slot are consecutive.
    pub rows: &'a [R],
    /// Slot and position of each row.
    pub at: &'a [(usize, usize)],
    /// Cache blocks, first position and number of rows of each slot, in the order of the rows.
    pub sequences: &'a [SequenceRows<'a>],
    /// Slots that sample, in sampling order.
    pub samplers: &'a [Sampler<'a>],
}

/// Inputs of a step on the device.
pub struct StepContext<'a, O: Ops> {
    /// The uploaded row spec.
    pub spec: &'a O::Spec,
    /// Batch of all rows.
    pub batch: &'a O::Batch,
    /// Indices of the rows to sample from; `None` if there are none.
    pub last: Option<&'a O::Index>,
    /// KV cache from [`CausalLm::cache`].
    pub cache: &'a mut [O::State],
    /// Ids already sampled, for the repetition penalty.
    pub output_mask: &'a mut O::State,
}

/// A slot that samples in this step.
pub struct Sampler<'a> {
    /// Index of the slot.
    pub slot: usize,
    /// Row that it samples from.
    pub row: usize,
    /// Parameters of its response.
    pub params: &'a ResponseParams,
    /// Number of pieces sampled before.
    pub step: usize,
    /// Ids that may be sampled, of a text that is held to a form.
    pub held: Option<&'a Mask>,
}

impl Sampler<'_> {
    /// Sampling parameters of one row. The random number depends only on the response's seed and id, the step and
    /// `stream`; each sampling of a step has a stream of its own.
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

/// Result of sampling a row.
pub enum SampleOutcome<P> {
    /// A value was not finite.
    NotFinite,
    /// The model's stop token was sampled.
    Stop,
    /// The response has all the tokens that it may have, and would go on.
    Full,
    /// The next piece of the response.
    Piece(P),
    /// The last piece of the response, which ends with it.
    Last(P),
    /// No piece: the response waits for its caller; see [`CausalLm::resume`].
    Pending,
}

/// A causal language model that the generic stage drives.
pub trait CausalLm<O: Ops>: Send + Sized {
    /// Input of one position.
    type Row: Send;
    /// Model state of a slot.
    type Slot: Default + Send;
    /// Value sampled from a row.
    type Piece;
    /// The model's sections of the row spec.
    type Sections;

    /// Name of the stage.
    fn name(&self) -> &'static str;
    /// Edge kind of the stage's input.
    fn input_kind(&self) -> EdgeKind;
    /// Edge kind of the stage's output.
    fn output_kind(&self) -> EdgeKind;
    /// Number of ids to sample from; the repetition penalty's history has one entry for each.
    fn vocabulary(&self) -> usize;
    /// Creates the KV cache of every layer.
    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State>;
    /// True if a sequence continues from the end of a full block, or from its own end, alone: part of the cache is kept once
    /// a block. Such a model never truncates a sequence by [`SlotState::truncate`].
    fn continues_from_blocks(&self) -> bool {
        false
    }
    /// Most slots that one step can advance.
    fn max_slots(&self) -> usize {
        usize::MAX
    }
    /// Most items that one step emits for a slot.
    fn max_items(&self) -> usize {
        1
    }

    /// Row of a prompt position; `None` in a stage that takes no prompts.
    fn prompt_row(&self, element: &Element) -> Option<Self::Row>;
    /// Most pieces of a response.
    fn limit(&self, params: &ResponseParams) -> usize;
    /// Maximum codec frames of an utterance; `None` if the model makes none.
    fn most_frames(&self) -> Option<usize> {
        None
    }
    /// Takes an item other than a prompt; a model that reads prompts alone takes aborts.
    fn accept(
        &mut self,
        slot: usize,
        item: StageItem,
        state: &mut SlotState<O, Self>,
        _pool: &mut BlockPool,
        out: &mut Outbox,
    ) {
        if matches!(item, StageItem::Abort) {
            state.end();
            state.drop_queue();
            out.push((slot, StageItem::Abort));
        }
    }
    /// Number of rows computed differently from the rest; the shapes of the step depend on it.
    fn special_rows(&self, _rows: &[Self::Row]) -> usize {
        0
    }
    /// Ids of a model whose text can be held to a form; see [`Stage::form_ids`].
    fn form_ids(&self) -> Option<FormIds> {
        None
    }
    /// Prepares a slot that samples from its last row in the step: finds the ids that it may sample, if its text is held to a
    /// form.
    fn hold(&mut self, _state: &mut SlotState<O, Self>) {}
    /// The ids found.
    fn held<'a>(&self, _state: &'a SlotState<O, Self>) -> Option<&'a Mask> {
        None
    }
    /// Reserves the model's own sections of the row spec.
    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> Self::Sections;
    /// Fills the model's own sections.
    fn fill(&mut self, step: &StepInput<'_, Self::Row>, sections: &Self::Sections, spec: &mut RowSpec);
    /// Runs the step: all layers, then sampling from the rows of `last`, each list with one id a row. A device may
    /// replay its operations without calling it, so it must change nothing but device state.
    fn forward(&mut self, ops: &O, sections: &Self::Sections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>);
    /// Takes the numbers of the tensors that [`CausalLm::forward`] put into its outputs, before the samplers are interpreted.
    fn computed(&mut self, _numbers: &[f32]) {}
    /// Interprets the ids sampled for sampler `at`, one id of each list, given its slot's state.
    fn sampled(&mut self, ids: Vec<u32>, at: usize, state: &mut SlotState<O, Self>) -> SampleOutcome<Self::Piece>;
    /// Continues a response that waits, after an item was taken; `None` if it still waits, or did not wait.
    fn resume(&mut self, _state: &mut SlotState<O, Self>) -> Option<SampleOutcome<Self::Piece>> {
        None
    }
    /// Emits a piece to the next stage, as at most [`CausalLm::max_items`] items. It was sampled from the row of
    /// `position`.
    fn emit(&self, slot: usize, piece: &Self::Piece, position: usize, out: &mut Outbox);
    /// Continues a response after a piece: queues the next row if it is known.
    fn continue_after(&mut self, state: &mut SlotState<O, Self>, piece: Self::Piece);
    /// Ends a response that sampled its stop or reached a limit, and tells the next stage when that is due.
    fn ended(
        &mut self,
        slot: usize,
        end: StageEnd,
        state: &mut SlotState<O, Self>,
        pool: &mut BlockPool,
        out: &mut Outbox,
    );
    /// Drops the state of a failed response.
    fn failed(&mut self, state: &mut SlotState<O, Self>, pool: &mut BlockPool);
    /// Gives the device memory of a free slot back, other than the KV cache. Returns its bytes.
    fn discard_slot(&mut self, _ops: &O, _slot: usize) -> usize {
        0
    }

    /// Number of leading prompt positions, at most `positions`, for which the donor has every row that this stage
    /// reads. Used by stages that take no prompts.
    fn shareable_prefix(&self, _donor: &SlotState<O, Self>, _positions: usize) -> usize {
        0
    }
    /// Copies the model's own state for the leading `positions` of `donor`'s prompt. Returns their number of rows.
    fn share_prefix(&self, _state: &mut SlotState<O, Self>, _donor: &SlotState<O, Self>, _positions: usize) -> usize {
        0
    }

    /// True if a later stage's state depends on this prompt position.
    fn reads(&self, _element: &Element) -> bool {
        false
    }
    /// Sound that the slot's input will become; see [`Stage::buffered_audio`].
    fn buffered_audio(&self, _state: &SlotState<O, Self>) -> Duration {
        Duration::ZERO
    }
    /// Prompt budget; see [`Stage::context_budget`].
    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget;
}
