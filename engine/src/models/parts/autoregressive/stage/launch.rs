//! One step of the stage: its launch, and the use of its results. In between a slot may be freed, its prompt replaced
//! or its response aborted.

use repartee_engine_api::SessionError;
use repartee_kernels::row_spec::{BatchSection, SpecSection};
use repartee_kernels::{Ops, RowSpec, SequenceRows, SpecLayout};

use super::super::causal_lm::{BLOCK, CausalLm, Decoding, Sampler, StepContext, StepInput, StepShape};
use super::Autoregressive;
use super::launched::{Launched, SlotRowsInStep};
use crate::stage::{BatchEntry, EdgeKind, Outbox, StageItem};

/// Sections of the row spec that a step uses.
struct StepSections<P> {
    shape: StepShape,
    batch: BatchSection,
    chosen_from: SpecSection,
    begun: SpecSection,
    own: P,
}

impl<P> StepSections<P> {
    fn new<O: Ops, L: CausalLm<O, Sections = P>>(
        lm: &L,
        shape: StepShape,
        slots: usize,
        positions: usize,
    ) -> (SpecLayout, Self) {
        let mut layout = SpecLayout::default();
        let batch = layout.batch(shape.rows, shape.rows.min(slots), positions.div_ceil(BLOCK));
        let (chosen_from, begun) = (layout.list(shape.sampled), layout.list(shape.sampled));
        let own = lm.layout(shape, &mut layout);
        (layout, Self { shape, batch, chosen_from, begun, own })
    }

    fn launch<O: Ops, L: CausalLm<O, Sections = P>>(
        &self,
        ops: &O,
        lm: &mut L,
        spec: &RowSpec,
        (cache, output_mask): (&mut [O::State], &mut O::State),
    ) -> O::Ticket {
        ops.launch(self.shape.key(lm.name()), spec, &mut |ops, spec, outputs| {
            let last = (self.shape.sampled > 0).then(|| ops.index(spec, self.chosen_from));
            if last.is_some() {
                // Clear the penalty's history of a response, or of an utterance of one, that begins.
                ops.reset_at(output_mask, &ops.index(spec, self.begun));
            }
            let batch = &ops.batch_at(spec, self.batch);
            let last = last.as_ref();
            lm.forward(ops, &self.own, StepContext { spec, batch, last, cache, output_mask }, outputs);
        })
    }
}

impl<O: Ops, L: CausalLm<O>> Autoregressive<O, L> {
    /// Launches a step over the work's rows.
    pub(super) fn launch_rows(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.launched = None;
        let fits = self.take_rows(work, out);
        if !fits.is_empty() {
            self.launched = Some(self.compute(fits));
        }
    }

    /// Collects the launched step and emits its results.
    pub(super) fn collect_launched(&mut self, out: &mut Outbox) {
        let Some(Launched { ticket, fits, samplers, sampled }) = self.launched.take() else { return };
        self.ops.collect(ticket, &mut self.read_back);
        self.lm.computed(&self.read_back.numbers);
        if self.lm.input_kind() == EdgeKind::Prompt {
            self.pass_context(&fits, out);
            for fit in samplers.iter().map(|&i| &fits[i]).filter(|fit| self.is_current(fit)) {
                if let Some(Decoding { params, steps: 0, .. }) = &self.slots[fit.slot].decoding {
                    out.push((fit.slot, StageItem::Begin(params.clone())));
                }
            }
        }
        for (at, fit) in samplers.into_iter().map(|i| fits[i]).enumerate() {
            if self.is_current(&fit) {
                let ids = self.read_back.ids.iter().skip(at).step_by(sampled).copied().collect();
                let sampled = self.lm.sampled(ids, at, &mut self.slots[fit.slot]);
                self.sampled(fit.slot, sampled, out);
            }
        }
    }

    /// Takes rows out of the queues and allocates their positions; a slot without room fails.
    fn take_rows(&mut self, work: &[BatchEntry], out: &mut Outbox) -> Vec<SlotRowsInStep> {
        let mut fits = Vec::with_capacity(work.len());
        // A step that panicked leaves its rows here.
        self.rows.clear();
        for &BatchEntry { slot, rows } in work.iter().take(self.lm.max_slots()) {
            let rows = rows.min(self.slots[slot].queue.len());
            if rows == 0 {
                continue;
            }
            let from = self.slots[slot].sequence.len();
            let fits_in = self.append(slot, rows);
            let state = &mut self.slots[slot];
            if fits_in {
                self.rows.extend(state.queue.drain(..rows));
                let of_prompt = state.decoding.as_ref().is_none_or(|decoding| decoding.steps == 0);
                let context = if of_prompt { rows } else { 0 };
                self.idle.touch(slot);
                fits.push(SlotRowsInStep { slot, epoch: self.epochs[slot], from, rows, context });
            } else {
                let tokens = (state.sequence.len() + state.queue.len()) as u32;
                let limit = (self.pool.blocks() * BLOCK).min(self.positions) as u32;
                state.end();
                self.lm.failed(state, &mut self.pool);
                out.push((slot, StageItem::Fail(SessionError::ContextFull { tokens, limit })));
            }
        }
        fits
    }

    /// Passes on the prompt positions that a step prefilled.
    fn pass_context(&self, fits: &[SlotRowsInStep], out: &mut Outbox) {
        for &SlotRowsInStep { slot, from, context, .. } in fits.iter().filter(|fit| fit.context > 0) {
            let elements = self.slots[slot].prompt[from..from + context].to_vec();
            out.push((slot, StageItem::Context { from, elements }));
        }
    }

    /// Limits a launched step's prompt positions of a slot to the first `len`.
    pub(super) fn shrink_launched_context(&mut self, slot: usize, len: usize) {
        let fits = self.launched.iter_mut().flat_map(|launched| &mut launched.fits);
        for fit in fits.filter(|fit| fit.slot == slot) {
            fit.context = fit.context.min(len.saturating_sub(fit.from));
        }
    }

    /// True if a slot's sample is still wanted.
    fn is_current(&self, fit: &SlotRowsInStep) -> bool {
        self.epochs[fit.slot] == fit.epoch
    }

    /// Launches a step over the rows taken from these slots.
    fn compute(&mut self, fits: Vec<SlotRowsInStep>) -> Launched<O::Ticket> {
        let Self { ops, lm, cache, output_mask, slots, rows, spec, .. } = self;
        let mut at = Vec::with_capacity(rows.len());
        let (mut last, mut fresh, mut sampling, mut held) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (i, &SlotRowsInStep { slot, from, rows, .. }) in fits.iter().enumerate() {
            let state = &mut slots[slot];
            at.extend((from..from + rows).map(|position| (slot, position)));
            // A slot with a response and an empty queue samples from its last row.
            if state.queue.is_empty() && state.decoding.is_some() {
                last.push((slot, at.len() - 1));
                lm.hold(state);
                held += usize::from(lm.held(state).is_some());
                sampling.push(i);
                fresh.extend(std::mem::take(&mut state.fresh).then_some(slot as u32));
            }
        }
        let padded = |rows: usize| if rows == 0 { 0 } else { ops.bucket(rows) };
        let shape = StepShape {
            rows: padded(at.len()),
            sampled: padded(last.len()),
            special: padded(lm.special_rows(rows)),
            held: padded(held),
        };
        let (layout, sections) = StepSections::new(lm, shape, slots.len(), self.positions);
        layout.clear_spec(spec);
        let sequence = |&SlotRowsInStep { slot, from, rows, .. }: &SlotRowsInStep| {
            let table = slots[slot].sequence.table();
            SequenceRows { table, position: from, rows }
        };
        let sequences: Vec<_> = fits.iter().map(sequence).collect();
        spec.set_batch(sections.batch, &sequences, self.scratch);
        spec.set_each(sections.chosen_from, last.iter().map(|&(_, row)| row as u32));
        spec.set(sections.begun, &fresh);
        let sampler = |&(slot, row): &(usize, usize)| {
            let Decoding { params, steps, .. } = slots[slot].decoding.as_ref()?;
            Some(Sampler { slot, row, params, step: *steps, held: lm.held(&slots[slot]) })
        };
        let samplers: Vec<_> = last.iter().filter_map(sampler).collect();
        lm.fill(&StepInput { rows, at: &at, sequences: &sequences, samplers: &samplers }, &sections.own, spec);
        let ticket = sections.launch(ops, lm, spec, (cache, output_mask));
        rows.clear();
        Launched { ticket, fits, samplers: sampling, sampled: shape.sampled }
    }

    /// Launches every decode shape once, with padding only: one row for each slot of a bucket, all of which sample.
    pub(super) fn launch_shapes(&mut self) {
        let Self { ops, lm, cache, output_mask, slots, spec, read_back: back, .. } = self;
        if ops.eager_steps().is_none() {
            return;
        }
        let most = ops.bucket(slots.len().min(lm.max_slots()));
        let mut rows = 0;
        while rows < most {
            rows = ops.bucket(rows + 1);
            let shape = StepShape { rows, sampled: rows, special: 0, held: 0 };
            let (layout, sections) = StepSections::new(lm, shape, slots.len(), self.positions);
            layout.clear_spec(spec);
            spec.set_batch(sections.batch, &[], self.scratch);
            spec.set(sections.chosen_from, &[]);
            spec.set(sections.begun, &[]);
            let empty = StepInput { rows: &[], at: &[], sequences: &[], samplers: &[] };
            lm.fill(&empty, &sections.own, spec);
            let ticket = sections.launch(ops, lm, spec, (cache, output_mask));
            ops.collect(ticket, back);
        }
    }
}
