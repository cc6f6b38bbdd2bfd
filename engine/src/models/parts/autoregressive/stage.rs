//! The stage itself: batches of rows, the reuse of prefixes, and what becomes of samples.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, SequenceRows, StateSpec};

use super::{BLOCK, CausalLm, Decoding, Forward, HiddenRow, Sampled, Sampler, SlotState};
use crate::elements::Element;
use crate::sequence::{BlockPool, Sequence};
use crate::stage::{EdgeKind, End, Item, Need, Outbox, ResponseParams, Room, RowKind, Stage, Work};

/// Rows of one slot in one step.
const MAX_ROWS: usize = 256;
/// Prefixes that are kept of slots that were freed.
const MAX_RETIRED: usize = 8;

/// A language model with the state of all slots.
pub struct Autoregressive<O: Ops, L: CausalLm<O>> {
    ops: O,
    lm: L,
    cache: Vec<O::State>,
    output_mask: O::State,
    pool: BlockPool,
    slots: Vec<SlotState<O, L>>,
    /// Prefixes of slots that were freed, the newest last.
    retired: VecDeque<Retired<O::T>>,
    /// Positions of one slot.
    positions: usize,
}

/// A cached prefix without a slot.
struct Retired<T> {
    elements: Vec<Element<T>>,
    sequence: Sequence,
}

impl<O: Ops, L: CausalLm<O>> Autoregressive<O, L> {
    /// A stage for `slots` slots of `positions` positions each.
    pub fn new(ops: O, lm: L, slots: usize, positions: usize) -> Self {
        let blocks = slots * positions.div_ceil(BLOCK);
        Self {
            cache: lm.cache(&ops, blocks),
            output_mask: ops.state(StateSpec::TokenMask { slots, vocabulary: lm.vocabulary() }),
            pool: BlockPool::new(blocks, BLOCK),
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            retired: VecDeque::new(),
            ops,
            lm,
            positions,
        }
    }

    /// Takes a new prompt.
    fn prompt(
        &mut self,
        slot: usize,
        elements: Vec<Element<O::T>>,
        read: &[bool],
        response: Option<ResponseParams>,
        out: &mut Outbox<O::T>,
    ) {
        let state = &mut self.slots[slot];
        let cached = state.sequence.len();
        let common = state.prompt[..cached].iter().zip(&elements).take_while(|(a, b)| a == b).count();
        // Later stages got the rows of prompts alone.
        let unread = read.iter().take(common).skip(state.prompted).take_while(|read| !**read).count();
        let common = common.min(state.prompted + unread);
        // The last position is computed again for a response: the first token is sampled from its row.
        let keep = if response.is_some() { common.min(elements.len().saturating_sub(1)) } else { common };
        if keep < cached {
            let kept = state.sequence.truncate(&mut self.pool, keep);
            out.push((slot, Item::Rewind { to: kept }));
        }
        let shareable = read.iter().take_while(|read| !**read).count();
        self.share_prefix(slot, &elements, shareable);
        let state = &mut self.slots[slot];
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

    /// Forks the cached prefix of another prompt, of a slot or of one that was freed: instructions that many sessions have in
    /// common.
    fn share_prefix(&mut self, slot: usize, elements: &[Element<O::T>], shareable: usize) {
        // The last position is always computed: the first token is sampled from its row.
        let common = shareable.min(elements.len().saturating_sub(1)) / BLOCK * BLOCK;
        if common <= self.slots[slot].sequence.len() {
            return;
        }
        let cached = |prompt: &[Element<O::T>], sequence: &Sequence| {
            let cached = &prompt[..sequence.len().min(common)];
            cached.iter().zip(elements).take_while(|(a, b)| a == b).count() / BLOCK * BLOCK
        };
        let others = self.slots.iter().enumerate().filter(|(other, _)| *other != slot);
        let others = others.map(|(_, state)| (&state.prompt[..], &state.sequence));
        let retired = self.retired.iter().map(|retired| (&retired.elements[..], &retired.sequence));
        let donors = others.chain(retired).map(|(prompt, sequence)| (cached(prompt, sequence), sequence));
        if let Some((len, donor)) = donors.max_by_key(|(len, _)| *len)
            && len > self.slots[slot].sequence.len()
        {
            let fork = donor.fork(&mut self.pool, len);
            std::mem::replace(&mut self.slots[slot].sequence, fork).release(&mut self.pool);
        }
    }

    /// Makes room for `rows` more positions of a slot; retired prefixes give way.
    fn append(&mut self, slot: usize, rows: usize) -> bool {
        let sequence = &mut self.slots[slot].sequence;
        while sequence.append(&mut self.pool, rows).is_err() {
            let Some(mut oldest) = self.retired.pop_front() else { return false };
            oldest.sequence.release(&mut self.pool);
        }
        true
    }

    /// Takes rows out of the queues and makes room for them; a slot without room fails.
    fn take_rows(&mut self, work: &[Work], out: &mut Outbox<O::T>) -> (Vec<Work>, Vec<L::Row>) {
        let (mut fits, mut taken) = (Vec::with_capacity(work.len()), Vec::new());
        for &Work { slot, rows } in work.iter().take(self.lm.max_slots()) {
            let rows = rows.min(self.slots[slot].queue.len());
            let fits_in = self.append(slot, rows);
            let state = &mut self.slots[slot];
            if fits_in {
                taken.extend(state.queue.drain(..rows));
                fits.push(Work { slot, rows });
            } else {
                let tokens = (state.sequence.len() + state.queue.len()) as u32;
                let limit = (self.pool.blocks() * BLOCK) as u32;
                state.end();
                self.lm.failed(state, &mut self.pool);
                out.push((slot, Item::Fail(SessionError::ContextFull { tokens, limit })));
            }
        }
        (fits, taken)
    }

    /// Passes on the prompt positions that a step prefilled. Returns the hidden rows of the batch.
    fn pass_context(&self, fits: &[Work], hidden: O::T, out: &mut Outbox<O::T>) -> Arc<O::T> {
        let hidden = Arc::new(hidden);
        let mut row = 0;
        for &Work { slot, rows } in fits {
            let state = &self.slots[slot];
            let end = state.sequence.len();
            if state.decoding.as_ref().is_none_or(|decoding| decoding.steps == 0) {
                let elements = state.prompt[end - rows..end].to_vec();
                let mine: Vec<usize> = (row..row + rows).collect();
                let hidden =
                    if fits.len() == 1 { Arc::clone(&hidden) } else { Arc::new(self.ops.gather(&hidden, &mine)) };
                out.push((slot, Item::Context { from: end - rows, elements, hidden }));
            }
            row += rows;
        }
        hidden
    }

    /// Clears the penalty's history for a response that began, or a part of one that begins anew.
    fn refresh(&mut self, slot: usize) {
        if std::mem::take(&mut self.slots[slot].fresh) {
            self.ops.reset(&mut self.output_mask, slot);
        }
    }

    /// Takes what was sampled for a slot.
    fn sampled(
        &mut self,
        slot: usize,
        sampled: Sampled<L::Piece>,
        hidden: HiddenRow<'_, O::T>,
        out: &mut Outbox<O::T>,
    ) {
        let state = &mut self.slots[slot];
        let Some(decoding) = &mut state.decoding else { return };
        match sampled {
            Sampled::NotFinite => {
                state.end();
                self.lm.failed(state, &mut self.pool);
                out.push((slot, Item::Fail(SessionError::NotFinite { stage: self.lm.name() })));
            }
            Sampled::Stop => {
                state.end();
                self.lm.ended(slot, End::Stop, state, &mut self.pool, out);
            }
            Sampled::Piece(piece) => {
                decoding.steps += 1;
                let full = decoding.steps >= decoding.limit || state.sequence.len() >= self.positions;
                self.lm.give(slot, &piece, hidden, out);
                if full {
                    state.end();
                    self.lm.ended(slot, End::Length, state, &mut self.pool, out);
                } else {
                    self.lm.follow(state, piece);
                }
            }
        }
        self.refresh(slot);
    }
}

impl<O: Ops + Send, L: CausalLm<O>> Stage<O::T> for Autoregressive<O, L>
where
    O::T: Send + Sync,
    O::State: Send,
{
    fn name(&self) -> &'static str {
        self.lm.name()
    }

    fn takes(&self) -> EdgeKind {
        self.lm.takes()
    }

    fn gives(&self) -> EdgeKind {
        self.lm.gives()
    }

    fn accept(&mut self, slot: usize, item: Item<O::T>, out: &mut Outbox<O::T>) {
        match item {
            Item::Prompt { elements, read, response } => self.prompt(slot, elements, &read, response, out),
            item => self.lm.accept(slot, item, &mut self.slots[slot], &mut self.pool, out),
        }
        self.refresh(slot);
    }

    fn need(&self, slot: usize) -> Need {
        let state = &self.slots[slot];
        let decodes = state.decoding.as_ref().is_some_and(|decoding| decoding.steps > 0);
        Need::rows(state.queue.len(), if decodes { RowKind::Decode } else { RowKind::Prefill })
    }

    fn ahead(&self, slot: usize) -> Duration {
        self.lm.ahead(&self.slots[slot])
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn max_items(&self) -> usize {
        self.lm.max_items()
    }

    fn step(&mut self, work: &[Work], out: &mut Outbox<O::T>) {
        let (fits, rows) = self.take_rows(work, out);
        if fits.is_empty() {
            return;
        }
        let sequences: Vec<_> = fits
            .iter()
            .map(|&Work { slot, rows }| {
                let sequence = &self.slots[slot].sequence;
                SequenceRows { table: sequence.table(), position: sequence.len() - rows, rows }
            })
            .collect();
        let batch = self.ops.batch(&sequences);
        // Slots with a response whose rows are all cached sample from their last row.
        let (mut at, mut samplers) = (Vec::new(), Vec::new());
        let mut row = 0;
        for &Work { slot, rows } in &fits {
            row += rows;
            let state = &self.slots[slot];
            if state.queue.is_empty() && state.decoding.is_some() {
                at.push(row - 1);
                samplers.push(slot);
            }
        }
        let Forward { last, hidden } = self.lm.forward(&self.ops, rows, &mut self.cache, &batch, &at);
        let hidden = hidden.map(|hidden| self.pass_context(&fits, hidden, out));
        if samplers.is_empty() {
            return;
        }
        let sampling = samplers.iter().filter_map(|&slot| {
            let Decoding { params, steps, .. } = self.slots[slot].decoding.as_ref()?;
            if *steps == 0 && self.lm.takes() == EdgeKind::Prompt {
                out.push((slot, Item::Begin(params.clone())));
            }
            Some(Sampler { slot, params, step: *steps })
        });
        let sampling: Vec<_> = sampling.collect();
        let sampled = self.lm.sample(&self.ops, &last, &sampling, &mut self.output_mask);
        for ((slot, row), sampled) in samplers.into_iter().zip(at).zip(sampled) {
            self.sampled(slot, sampled, hidden.as_ref().map(|hidden| (hidden, row)), out);
        }
    }

    fn free(&mut self, slot: usize) {
        let mut state = std::mem::take(&mut self.slots[slot]);
        state.sequence.release(&mut self.pool);
    }

    fn held(&self, slot: usize) -> usize {
        self.slots[slot].sequence.len()
    }

    /// Blocks that only retired prefixes hold are not counted: they are free for the asking.
    fn blocks(&self) -> usize {
        let mut retired: BTreeMap<u32, u32> = BTreeMap::new();
        for block in self.retired.iter().flat_map(|retired| retired.sequence.table()) {
            *retired.entry(*block).or_default() += 1;
        }
        let idle = retired.into_iter().filter(|&(block, holders)| self.pool.holders(block) == holders).count();
        self.pool.blocks() - self.pool.free() - idle
    }

    fn shares(&self, donor: usize, prompt: &[Element<O::T>]) -> usize {
        let donor = &self.slots[donor];
        if self.lm.takes() != EdgeKind::Prompt {
            return self.lm.shares(donor, prompt.len());
        }
        let cached = &donor.prompt[..donor.sequence.len()];
        cached.iter().zip(prompt).take_while(|(a, b)| a == b).count()
    }

    fn share(&mut self, slot: usize, donor: usize, prompt: &[Element<O::T>]) -> bool {
        let mut state = SlotState::default();
        let given = &self.slots[donor];
        let rows = if self.lm.takes() == EdgeKind::Prompt {
            state.prompt = prompt.to_vec();
            state.prompted = given.prompted.min(prompt.len());
            prompt.len()
        } else {
            self.lm.share(&mut state, given, prompt.len())
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

    fn retire(&mut self, slot: usize) {
        let state = &self.slots[slot];
        let len = state.shareable.min(state.sequence.len()).min(state.prompt.len()) / BLOCK * BLOCK;
        let elements = &state.prompt[..len];
        if len == 0 || self.retired.iter().any(|retired| retired.elements == elements) {
            return;
        }
        let sequence = state.sequence.fork(&mut self.pool, len);
        self.retired.push_back(Retired { elements: elements.to_vec(), sequence });
        if self.retired.len() > MAX_RETIRED
            && let Some(mut oldest) = self.retired.pop_front()
        {
            oldest.sequence.release(&mut self.pool);
        }
    }

    fn reads(&self, element: &Element<O::T>) -> bool {
        self.lm.reads(element)
    }

    fn room(&self, prompt: &[Element<O::T>], max_tokens: usize) -> Option<Room> {
        Some(self.lm.room(prompt, max_tokens))
    }
}
