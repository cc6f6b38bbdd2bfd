//! The generic stage: prompts, prefix reuse, and handling of samples.

mod launch;
mod launched;
mod retired;

use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, ReadBack, RowSpec, StateSpec};

use self::launched::Launched;
use self::retired::RetiredPrefixes;
use super::causal_lm::{BLOCK, CausalLm, SampleOutcome, SlotState};
use crate::device::Device;
use crate::elements::Element;
use crate::held_form::FormIds;
use crate::models::parts::idle_slots::IdleSlots;
use crate::sequence::{BlockPool, Sequence};
use crate::stage::{
    BatchEntry, CacheUse, ContextBudget, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageEnd,
    StageItem,
};

/// Most rows of one slot in one step.
const MAX_ROWS: usize = 256;
/// Most blocks whose memory is given back at once: some hundred microseconds.
const MAX_GIVEN_BACK: usize = 8;

/// A language model with the state of all slots.
pub struct Autoregressive<O: Ops, L: CausalLm<O>> {
    ops: O,
    lm: L,
    cache: Vec<O::State>,
    output_mask: O::State,
    pool: BlockPool,
    slots: Vec<SlotState<O, L>>,
    retired: RetiredPrefixes,
    /// Slots with memory of their own besides the pool's.
    idle: IdleSlots,
    /// Bytes given back to the system since the start.
    given_back: u64,
    /// Positions of one slot.
    positions: usize,
    /// Block for the rows of the padding.
    scratch: u32,
    /// Positions of all prompts, and those that were cached.
    prompted: u64,
    reused: u64,
    /// For each slot, a counter of events that invalidate a launched step.
    epochs: Vec<u64>,
    launched: Option<Launched<O::Ticket>>,
    /// Rows of the step being launched.
    rows: Vec<L::Row>,
    spec: RowSpec,
    read_back: ReadBack,
}

impl<O: Ops, L: CausalLm<O>> Autoregressive<O, L> {
    /// Creates the stage for `slots` slots of `positions` positions each.
    pub fn new(ops: O, lm: L, slots: usize, positions: usize) -> Self {
        let blocks = slots * positions.div_ceil(BLOCK);
        Self {
            // One more block, for the padding.
            cache: lm.cache(&ops, blocks + 1),
            scratch: blocks as u32,
            prompted: 0,
            reused: 0,
            epochs: vec![0; slots],
            launched: None,
            rows: Vec::new(),
            spec: RowSpec::default(),
            read_back: ReadBack::default(),
            output_mask: ops.state(StateSpec::TokenMask { slots, vocabulary: lm.vocabulary() }),
            pool: BlockPool::new(blocks, BLOCK),
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            retired: RetiredPrefixes::default(),
            idle: IdleSlots::new(slots),
            given_back: 0,
            ops,
            lm,
            positions,
        }
    }

    /// Takes a new prompt.
    fn prompt(
        &mut self,
        slot: usize,
        elements: Vec<Element>,
        read: &[bool],
        response: Option<ResponseParams>,
        out: &mut Outbox,
    ) {
        let state = &mut self.slots[slot];
        let cached = state.sequence.len();
        let common = state.prompt[..cached].iter().zip(&elements).take_while(|(a, b)| a == b).count();
        // Later stages got the rows of prompts alone.
        let unread = read.iter().take(common).skip(state.prompted).take_while(|read| !**read).count();
        let common = common.min(state.prompted + unread);
        // A response needs the last position computed again: its row gives the first token.
        let keep = if response.is_some() { common.min(elements.len().saturating_sub(1)) } else { common };
        if keep < cached {
            let keep = self.continued_from(keep);
            let state = &mut self.slots[slot];
            let kept = state.sequence.truncate(&mut self.pool, keep);
            self.shrink_launched_context(slot, kept);
            out.push((slot, StageItem::Rewind { to: kept }));
        }
        let shareable = read.iter().take_while(|read| !**read).count();
        self.share_prefix(slot, &elements, shareable);
        let state = &mut self.slots[slot];
        self.prompted += elements.len() as u64;
        self.reused += state.sequence.len().min(elements.len()) as u64;
        state.queue =
            elements[state.sequence.len()..].iter().filter_map(|element| self.lm.prompt_row(element)).collect();
        state.prompted = elements.len();
        state.prompt = elements;
        state.shareable = shareable;
        state.decoding = None;
        if let Some(params) = response {
            let limit = self.lm.limit(&params);
            state.begin(params, limit);
        }
    }

    /// Number of the first `positions` positions from which a sequence that drops others can continue.
    fn continued_from(&self, positions: usize) -> usize {
        if self.lm.continues_from_blocks() { positions / BLOCK * BLOCK } else { positions }
    }

    /// Forks the longest cached prefix among other slots and retired prefixes, such as instructions that many sessions
    /// share.
    fn share_prefix(&mut self, slot: usize, elements: &[Element], shareable: usize) {
        // The last position is always computed: its row gives the first token.
        let common = shareable.min(elements.len().saturating_sub(1)) / BLOCK * BLOCK;
        if common <= self.slots[slot].sequence.len() {
            return;
        }
        let cached = |prompt: &[Element], sequence: &Sequence| {
            let cached = &prompt[..sequence.len().min(common)];
            cached.iter().zip(elements).take_while(|(a, b)| a == b).count() / BLOCK * BLOCK
        };
        let others = self.slots.iter().enumerate().filter(|(other, _)| *other != slot);
        let others = others.map(|(_, state)| (cached(&state.prompt, &state.sequence), &state.sequence));
        let other = others.max_by_key(|(len, _)| *len);
        let retired = self.retired.longest(cached);
        let of_other = other.map_or(0, |(len, _)| len);
        let (len, donor) = match (retired, other) {
            (Some((number, len)), _) if len >= of_other => (len, self.retired.used(number)),
            (_, Some(other)) => other,
            _ => return,
        };
        if len > self.slots[slot].sequence.len() {
            let fork = donor.fork(&mut self.pool, len);
            std::mem::replace(&mut self.slots[slot].sequence, fork).release(&mut self.pool);
        }
    }

    /// Copies the blocks that the slot's truncations left to copy.
    fn copy_blocks(&mut self, slot: usize) {
        for (from, to) in self.slots[slot].copies.drain(..) {
            for cache in &mut self.cache {
                self.ops.copy_block(cache, from, to);
            }
        }
    }

    /// Allocates `rows` more positions for a slot; evicts retired prefixes if needed. False if there is no room.
    fn append(&mut self, slot: usize, rows: usize) -> bool {
        let sequence = &mut self.slots[slot].sequence;
        if sequence.len() + rows > self.positions {
            return false;
        }
        while sequence.append(&mut self.pool, rows).is_err() {
            if !self.retired.drop_oldest(&mut self.pool) {
                return false;
            }
        }
        true
    }

    /// Handles the sample from the row of a slot's last position.
    fn sampled(&mut self, slot: usize, sampled: SampleOutcome<L::Piece>, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        let Some(decoding) = &mut state.decoding else { return };
        match sampled {
            SampleOutcome::NotFinite => {
                state.end();
                self.lm.failed(state, &mut self.pool);
                out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: self.lm.name() })));
            }
            SampleOutcome::Stop => {
                state.end();
                self.lm.ended(slot, StageEnd::Stop, state, &mut self.pool, out);
            }
            SampleOutcome::Full => {
                state.end();
                self.lm.ended(slot, StageEnd::Length, state, &mut self.pool, out);
            }
            SampleOutcome::Last(piece) => {
                self.lm.emit(slot, &piece, state.sequence.len().saturating_sub(1), out);
                state.end();
                self.lm.ended(slot, StageEnd::Stop, state, &mut self.pool, out);
            }
            SampleOutcome::Piece(piece) => {
                decoding.steps += 1;
                let full = decoding.steps >= decoding.limit || state.sequence.len() >= self.positions;
                self.lm.emit(slot, &piece, state.sequence.len().saturating_sub(1), out);
                if full {
                    state.end();
                    self.lm.ended(slot, StageEnd::Length, state, &mut self.pool, out);
                } else {
                    self.lm.continue_after(state, piece);
                }
            }
            SampleOutcome::Pending => {}
        }
        self.copy_blocks(slot);
    }
}

impl<O: Device, L: CausalLm<O>> Stage for Autoregressive<O, L> {
    fn name(&self) -> &'static str {
        self.lm.name()
    }

    fn input_kind(&self) -> EdgeKind {
        self.lm.input_kind()
    }

    fn output_kind(&self) -> EdgeKind {
        self.lm.output_kind()
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        if matches!(item, StageItem::Prompt { .. } | StageItem::Rewind { .. } | StageItem::Begin(_) | StageItem::Abort)
        {
            self.epochs[slot] += 1;
        }
        match item {
            StageItem::Prompt { elements, read, response } => self.prompt(slot, elements, &read, response, out),
            item => {
                let state = &mut self.slots[slot];
                self.lm.accept(slot, item, state, &mut self.pool, out);
                let resumed = self.lm.resume(state);
                self.copy_blocks(slot);
                if let Some(sampled) = resumed {
                    self.sampled(slot, sampled, out);
                }
            }
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let state = &self.slots[slot];
        let decodes = state.decoding.as_ref().is_some_and(|decoding| decoding.steps > 0);
        RunnableRows::rows(state.queue.len(), if decodes { RowKind::Decode } else { RowKind::Prefill })
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        self.lm.buffered_audio(&self.slots[slot])
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn max_items(&self) -> usize {
        self.lm.max_items()
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.launch_rows(work, out);
    }

    fn collect(&mut self, out: &mut Outbox) {
        self.collect_launched(out);
    }

    fn prepare(&mut self) {
        self.launch_shapes();
    }

    fn eager_steps(&self) -> Option<u64> {
        self.ops.eager_steps()
    }

    fn free(&mut self, slot: usize) {
        self.epochs[slot] += 1;
        self.shrink_launched_context(slot, 0);
        let mut state = std::mem::take(&mut self.slots[slot]);
        state.sequence.release(&mut self.pool);
    }

    fn held(&self, slot: usize) -> usize {
        self.slots[slot].sequence.len()
    }

    /// Blocks held by retired prefixes alone are not counted: they are evicted on demand.
    fn blocks(&self) -> usize {
        self.pool.blocks() - self.pool.free() - self.retired.blocks(&self.pool)
    }

    fn cache_use(&self) -> CacheUse {
        CacheUse {
            capacity: self.pool.blocks(),
            resident: self.pool.resident(),
            given_back: self.given_back,
            prompted: self.prompted,
            reused: self.reused,
        }
    }

    fn shareable_prefix(&self, donor: usize, prompt: &[Element]) -> usize {
        let donor = &self.slots[donor];
        if self.lm.input_kind() != EdgeKind::Prompt {
            return self.lm.shareable_prefix(donor, prompt.len());
        }
        let cached = &donor.prompt[..donor.sequence.len()];
        cached.iter().zip(prompt).take_while(|(a, b)| a == b).count()
    }

    fn share_prefix(&mut self, slot: usize, donor: usize, prompt: &[Element]) -> bool {
        let mut state = SlotState::default();
        let given = &self.slots[donor];
        let rows = if self.lm.input_kind() == EdgeKind::Prompt {
            let rows = self.continued_from(prompt.len());
            state.prompt = prompt[..rows].to_vec();
            state.prompted = given.prompted.min(rows);
            rows
        } else {
            self.lm.share_prefix(&mut state, given, prompt.len())
        };
        let Ok((sequence, copied)) = given.sequence.fork_exact(&mut self.pool, rows) else { return false };
        for cache in &mut self.cache {
            if let Some((from, to)) = copied {
                self.ops.copy_block(cache, from, to);
            }
        }
        state.sequence = sequence;
        std::mem::replace(&mut self.slots[slot], state).sequence.release(&mut self.pool);
        true
    }

    fn keep_prefix(&mut self, slot: usize) {
        let state = &self.slots[slot];
        let len = state.shareable.min(state.sequence.len()).min(state.prompt.len()) / BLOCK * BLOCK;
        if len > 0 {
            self.retired.keep(&state.prompt[..len], &state.sequence, &mut self.pool);
        }
    }

    fn end_idle_period(&mut self) -> bool {
        let ages = self.retired.end_period(&mut self.pool);
        let slots = self.idle.end_period(|slot| self.slots[slot].sequence.len() > 0);
        self.pool.end_period() | slots | ages | self.ops.shrink()
    }

    fn give_back_idle(&mut self) -> bool {
        let bytes: usize = if let Some(slot) = self.idle.take() {
            self.lm.discard_slot(&self.ops, slot)
        } else if let Some(blocks) = self.pool.take_idle(MAX_GIVEN_BACK) {
            // One more block than in the pool, for the padding.
            let parts = self.pool.blocks() + 1;
            self.cache.iter_mut().map(|cache| self.ops.discard(cache, blocks.clone(), parts)).sum()
        } else {
            return false;
        };
        self.given_back += bytes as u64;
        true
    }

    fn reads(&self, element: &Element) -> bool {
        self.lm.reads(element)
    }

    fn form_ids(&self) -> Option<FormIds> {
        self.lm.form_ids()
    }

    fn most_frames(&self) -> Option<usize> {
        self.lm.most_frames()
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> Option<ContextBudget> {
        Some(self.lm.context_budget(prompt, max_tokens))
    }
}
