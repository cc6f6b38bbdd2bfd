//! The thinker as a stage: keeps each session's cached prompt equal to the one it is told, and writes answers.
//!
//! A new prompt is compared with what is cached: the longest common prefix stays, the rest is forgotten and read again. That one rule
//! serves every change of history. Reading a prompt and writing an answer are the same step: rows that are not cached yet.

use std::sync::Arc;

use repartee_engine_api::{Sampling, SessionError};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::{Ops, SequenceRows, StateSpec};

use super::{BLOCK, sample_params};
use crate::models::qwen3_omni_moe::thinker::Thinker;
use crate::sequence::{BlockPool, Sequence};
use crate::stage::{Answer, Element, End, Item, Lanes, Outbox, Stage, Work};

/// See the module's description.
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
    /// What should be cached; the first `sequence.len()` positions are.
    target: Vec<Element<T>>,
    answer: Option<Writing>,
}

struct Writing {
    answer: Answer,
    /// Tokens written so far.
    written: usize,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { sequence: Sequence::default(), target: Vec::new(), answer: None }
    }
}

impl<O: Ops> ThinkerStage<O> {
    /// A stage for so many lanes, with a whole context for each.
    pub fn new(
        ops: O,
        thinker: Arc<Thinker<O>>,
        lanes: Lanes,
        stop: Vec<u32>,
        sampling: Sampling,
        vocabulary: usize,
    ) -> Self {
        let (slots, context) = (lanes.total(), lanes.context);
        let blocks = slots * context.div_ceil(BLOCK);
        Self {
            cache: thinker.model.cache(&ops, blocks, BLOCK),
            output_mask: ops.state(StateSpec::TokenMask { slots, vocabulary }),
            pool: BlockPool::new(blocks, BLOCK),
            slots: (0..slots).map(|_| Slot::default()).collect(),
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
        // Rows of sound: where they go, and which rows of which windows they are.
        let mut at = Vec::new();
        let mut sound: Vec<(&Arc<_>, Vec<usize>)> = Vec::new();
        for &Work { slot, rows } in work {
            let slot = &self.slots[slot];
            let from = slot.sequence.len() - rows;
            for element in &slot.target[from..from + rows] {
                match element {
                    Element::Token { id, .. } => ids.push(*id),
                    Element::Audio { window, row } => {
                        at.push(ids.len());
                        ids.push(NO_ID);
                        match sound.last_mut() {
                            Some((last, rows)) if Arc::ptr_eq(last, window) => rows.push(*row),
                            _ => sound.push((window, vec![*row])),
                        }
                    }
                }
            }
        }
        let parts: Vec<O::T> = sound.iter().map(|(window, rows)| self.ops.gather(&window.rows, rows)).collect();
        let sound = (!parts.is_empty()).then(|| self.ops.concat(&parts.iter().collect::<Vec<_>>()));
        self.thinker.embed(&self.ops, &self.ops.ids(&ids), &at, sound.as_ref())
    }

    /// Takes over what another session has cached of this prompt's beginning, as far as that is nobody's turn yet: the
    /// instructions that many sessions have in common. The talker reads only users' rows, so it misses nothing.
    fn share_prefix(&mut self, slot: usize, elements: &[Element<O::T>]) {
        let own = |element: &&Element<O::T>| matches!(element, Element::Token { user: false, .. });
        // An answer needs the row of its prompt's last position, which is therefore read.
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

    /// Takes a session's next token.
    fn write(&mut self, slot: usize, id: u32, out: &mut Outbox<O::T>) {
        let Slot { target, answer, .. } = &mut self.slots[slot];
        let Some(writing) = answer else { return };
        if id == NO_ID {
            *answer = None;
            out.push((slot, Item::Fail(SessionError::NotFinite { stage: "thinker" })));
            return;
        }
        if self.stop.contains(&id) {
            *answer = None;
            out.push((slot, Item::End(End::Stop)));
            return;
        }
        writing.written += 1;
        out.push((slot, Item::Token(id)));
        if writing.written >= writing.answer.max_tokens as usize || target.len() >= self.context {
            *answer = None;
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
            Item::Prompt { elements, answer } => {
                let cached = state.sequence.len();
                let common = state.target[..cached].iter().zip(&elements).take_while(|(a, b)| a == b).count();
                // The last position is read again before an answer: its row is what the first token is chosen from.
                let keep = if answer.is_some() { common.min(elements.len().saturating_sub(1)) } else { common };
                if keep < cached {
                    let kept = state.sequence.truncate(&mut self.pool, keep);
                    out.push((slot, Item::Rewind { to: kept }));
                }
                self.share_prefix(slot, &elements);
                let state = &mut self.slots[slot];
                state.target = elements;
                state.answer = answer.map(|answer| Writing { answer, written: 0 });
                if state.answer.is_some() {
                    self.ops.reset(&mut self.output_mask, slot);
                }
            }
            Item::Abort => {
                state.answer = None;
                // What was chosen but not read yet is nobody's.
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
                    state.answer = None;
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

        // Sessions whose prompt is complete and that write an answer choose their next token from their last row.
        let (mut at, mut params, mut writers) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = 0;
        for &Work { slot, rows } in &fits {
            let state = &self.slots[slot];
            let end = state.sequence.len();
            let reads_prompt = state.answer.as_ref().is_none_or(|writing| writing.written == 0);
            if reads_prompt {
                let elements = state.target[end - rows..end].to_vec();
                let mine: Vec<usize> = (row..row + rows).collect();
                let hidden =
                    if fits.len() == 1 { Arc::clone(&hidden) } else { Arc::new(self.ops.gather(&hidden, &mine)) };
                out.push((slot, Item::Context { from: end - rows, elements, hidden }));
            }
            row += rows;
            if let Some(Writing { answer, written }) = &state.answer
                && end == state.target.len()
            {
                at.push(row - 1);
                params.push(sample_params(
                    slot,
                    answer.sampling.as_ref().unwrap_or(&self.sampling),
                    answer,
                    *written,
                    0,
                ));
                writers.push(slot);
                if *written == 0 {
                    out.push((slot, Item::Begin(answer.clone())));
                }
            }
        }
        if writers.is_empty() {
            return;
        }
        let logits = self.thinker.logits(&self.ops, &x, &at);
        let ids = self.thinker.sample(&self.ops, &logits, &params, &mut self.output_mask);
        for (slot, id) in writers.into_iter().zip(self.ops.read_ids(&ids)) {
            self.write(slot, id, out);
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
