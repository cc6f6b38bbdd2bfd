//! The thinker as a stage: prefills prompts and decodes text.
//!
//! The longest common prefix of a new prompt and the cached one stays cached; the sequence is truncated there and the rest
//! prefilled. That one rule serves every change of the history. Prefill and decode are the same step over rows that are not
//! cached yet.

use std::sync::Arc;

use repartee_engine_api::{Sampling, SessionError};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::{Ops, SequenceRows, StateSpec};

use super::{BLOCK, sample_params};
use crate::models::qwen3_omni_moe::thinker::Thinker;
use crate::sequence::{BlockPool, Sequence};
use crate::stage::{Element, End, Item, Outbox, ResponseParams, Slots, Stage, Work};

/// The thinker with the state of all slots.
pub struct ThinkerStage<O: Ops> {
    ops: O,
    thinker: Arc<Thinker<O>>,
    cache: Vec<O::State>,
    output_mask: O::State,
    pool: BlockPool,
    slots: Vec<Slot<O::T>>,
    stop: Vec<u32>,
    sampling: Sampling,
    context: usize,
}

struct Slot<T> {
    sequence: Sequence,
    /// Positions of the prompt and the text; the first `sequence.len()` of them are cached.
    target: Vec<Element<T>>,
    response: Option<Decoding>,
}

struct Decoding {
    params: ResponseParams,
    /// Tokens decoded so far.
    tokens: usize,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { sequence: Sequence::default(), target: Vec::new(), response: None }
    }
}

impl<O: Ops> ThinkerStage<O> {
    /// A stage for `slots` slots with a whole context each.
    pub fn new(
        ops: O,
        thinker: Arc<Thinker<O>>,
        slots: Slots,
        stop: Vec<u32>,
        sampling: Sampling,
        vocabulary: usize,
    ) -> Self {
        let (count, context) = (slots.total(), slots.context);
        let blocks = count * context.div_ceil(BLOCK);
        Self {
            cache: thinker.model.cache(&ops, blocks, BLOCK),
            output_mask: ops.state(StateSpec::TokenMask { slots: count, vocabulary }),
            pool: BlockPool::new(blocks, BLOCK),
            slots: (0..count).map(|_| Slot::default()).collect(),
            ops,
            thinker,
            stop,
            sampling,
            context,
        }
    }

    /// Embeddings of the positions that `work` covers, packed.
    fn embed(&self, work: &[Work]) -> O::T {
        let mut ids = Vec::new();
        // Audio rows: their places in the batch, and the rows of each window.
        let mut at = Vec::new();
        let mut audio: Vec<(&Arc<_>, Vec<usize>)> = Vec::new();
        for &Work { slot, rows } in work {
            let slot = &self.slots[slot];
            let from = slot.sequence.len() - rows;
            for element in &slot.target[from..from + rows] {
                match element {
                    Element::Token { id, .. } => ids.push(*id),
                    Element::Audio { window, row } => {
                        at.push(ids.len());
                        ids.push(NO_ID);
                        match audio.last_mut() {
                            Some((last, rows)) if Arc::ptr_eq(last, window) => rows.push(*row),
                            _ => audio.push((window, vec![*row])),
                        }
                    }
                }
            }
        }
        let parts: Vec<O::T> = audio.iter().map(|(window, rows)| self.ops.gather(&window.rows, rows)).collect();
        let audio = (!parts.is_empty()).then(|| self.ops.concat(&parts.iter().collect::<Vec<_>>()));
        self.thinker.embed(&self.ops, &self.ops.ids(&ids), &at, audio.as_ref())
    }

    /// Forks the cached prefix of another slot's prompt, up to the first user message: instructions that many sessions have in
    /// common. The talker reads only user rows, so it misses nothing.
    fn share_prefix(&mut self, slot: usize, elements: &[Element<O::T>]) {
        let own = |element: &&Element<O::T>| matches!(element, Element::Token { user: false, .. });
        // The last position is always computed: the first token is sampled from its row.
        let common = elements.iter().take_while(own).count().min(elements.len().saturating_sub(1)) / BLOCK * BLOCK;
        if common <= self.slots[slot].sequence.len() {
            return;
        }
        let cached = |other: &Slot<O::T>| {
            let cached = &other.target[..other.sequence.len().min(common)];
            cached.iter().zip(elements).take_while(|(a, b)| a == b).count() / BLOCK * BLOCK
        };
        let donors = self.slots.iter().enumerate().filter(|(other, _)| *other != slot);
        let best = donors.map(|(other, state)| (cached(state), other)).max();
        if let Some((len, donor)) = best
            && len > self.slots[slot].sequence.len()
        {
            let fork = self.slots[donor].sequence.fork(&mut self.pool, len);
            std::mem::replace(&mut self.slots[slot].sequence, fork).release(&mut self.pool);
        }
    }

    /// Takes the next sampled token of a slot.
    fn decoded(&mut self, slot: usize, id: u32, out: &mut Outbox<O::T>) {
        let Slot { target, response, .. } = &mut self.slots[slot];
        let Some(decoding) = response else { return };
        if id == NO_ID {
            *response = None;
            out.push((slot, Item::Fail(SessionError::NotFinite { stage: "thinker" })));
            return;
        }
        if self.stop.contains(&id) {
            *response = None;
            out.push((slot, Item::End(End::Stop)));
            return;
        }
        decoding.tokens += 1;
        out.push((slot, Item::Token(id)));
        if decoding.tokens >= decoding.params.max_tokens as usize || target.len() >= self.context {
            *response = None;
            out.push((slot, Item::End(End::Length)));
            return;
        }
        target.push(Element::Token { id, user: false });
    }
}

impl<O: Ops + Send> Stage<O::T> for ThinkerStage<O>
where
    O::T: Send + Sync,
    O::Weight: Send + Sync,
    O::State: Send,
{
    fn name(&self) -> &'static str {
        "thinker"
    }

    fn accept(&mut self, slot: usize, item: Item<O::T>, out: &mut Outbox<O::T>) {
        let state = &mut self.slots[slot];
        match item {
            Item::Prompt { elements, response } => {
                let cached = state.sequence.len();
                let common = state.target[..cached].iter().zip(&elements).take_while(|(a, b)| a == b).count();
                // The last position is computed again for a response: the first token is sampled from its row.
                let keep = if response.is_some() { common.min(elements.len().saturating_sub(1)) } else { common };
                if keep < cached {
                    let kept = state.sequence.truncate(&mut self.pool, keep);
                    out.push((slot, Item::Rewind { to: kept }));
                }
                self.share_prefix(slot, &elements);
                let state = &mut self.slots[slot];
                state.target = elements;
                state.response = response.map(|params| Decoding { params, tokens: 0 });
                if state.response.is_some() {
                    self.ops.reset(&mut self.output_mask, slot);
                }
            }
            Item::Abort => {
                state.response = None;
                // The last token was sampled but not cached.
                state.target.truncate(state.sequence.len());
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }

    fn ready(&self, slot: usize) -> usize {
        let slot = &self.slots[slot];
        slot.target.len() - slot.sequence.len()
    }

    fn max_rows(&self) -> usize {
        256
    }

    fn step(&mut self, work: &[Work], out: &mut Outbox<O::T>) {
        let mut fits = Vec::with_capacity(work.len());
        for &Work { slot, rows } in work {
            let state = &mut self.slots[slot];
            match state.sequence.append(&mut self.pool, rows) {
                Ok(()) => fits.push(Work { slot, rows }),
                Err(_) => {
                    let tokens = state.target.len() as u32;
                    let limit = (self.pool.blocks() * BLOCK) as u32;
                    state.target.truncate(state.sequence.len());
                    state.response = None;
                    out.push((slot, Item::Fail(SessionError::ContextFull { tokens, limit })));
                }
            }
        }
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
        let x = self.embed(&fits);
        let (x, hidden) = self.thinker.forward(&self.ops, x, &mut self.cache, &batch);
        let hidden = Arc::new(hidden);

        // Slots with a response whose prompt is complete sample their next token from their last row.
        let (mut at, mut rows_params, mut decoders) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = 0;
        for &Work { slot, rows } in &fits {
            let state = &self.slots[slot];
            let end = state.sequence.len();
            let prefills = state.response.as_ref().is_none_or(|decoding| decoding.tokens == 0);
            if prefills {
                let elements = state.target[end - rows..end].to_vec();
                let mine: Vec<usize> = (row..row + rows).collect();
                let hidden =
                    if fits.len() == 1 { Arc::clone(&hidden) } else { Arc::new(self.ops.gather(&hidden, &mine)) };
                out.push((slot, Item::Context { from: end - rows, elements, hidden }));
            }
            row += rows;
            if let Some(Decoding { params, tokens }) = &state.response
                && end == state.target.len()
            {
                at.push(row - 1);
                let sampling = params.sampling.as_ref().unwrap_or(&self.sampling);
                rows_params.push(sample_params(slot, sampling, params, *tokens, 0));
                decoders.push(slot);
                if *tokens == 0 {
                    out.push((slot, Item::Begin(params.clone())));
                }
            }
        }
        if decoders.is_empty() {
            return;
        }
        let logits = self.thinker.logits(&self.ops, &x, &at);
        let ids = self.thinker.sample(&self.ops, &logits, &rows_params, &mut self.output_mask);
        for (slot, id) in decoders.into_iter().zip(self.ops.read_ids(&ids)) {
            self.decoded(slot, id, out);
        }
    }

    fn free(&mut self, slot: usize) {
        let mut state = std::mem::take(&mut self.slots[slot]);
        state.sequence.release(&mut self.pool);
    }

    fn held(&self, slot: usize) -> usize {
        self.slots[slot].sequence.len()
    }

    fn blocks(&self) -> usize {
        self.pool.blocks() - self.pool.free()
    }
}
