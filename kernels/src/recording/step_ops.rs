//! [`StepOps`] of the recorder: operations over a row spec, and whole steps.

use super::RecordingOps;
use crate::row_spec::{BatchSection, RowSpec, SpecSection};
use crate::step_ops::{self, ReadBack, StepFn, StepKey, StepOps, StepOutputs, StreamLevel};

impl<O: StepOps> StepOps for RecordingOps<O> {
    type Spec = O::Spec;
    type Index = O::Index;
    type Ticket = O::Ticket;

    fn bucket(&self, rows: usize) -> usize {
        if self.padded { step_ops::bucket(rows) } else { self.inner.bucket(rows) }
    }

    fn eager_steps(&self) -> Option<u64> {
        self.inner.eager_steps()
    }

    fn upload(&self, spec: &RowSpec) -> O::Spec {
        self.note(|| format!("upload {}", spec.words().len()));
        self.inner.upload(spec)
    }

    fn index(&self, spec: &O::Spec, at: SpecSection) -> O::Index {
        self.note(|| format!("index {at:?}"));
        self.inner.index(spec, at)
    }

    fn floats(&self, spec: &O::Spec, at: SpecSection, columns: usize) -> O::T {
        self.note(|| format!("floats {at:?} by {columns}"));
        self.note_result(self.inner.floats(spec, at, columns))
    }

    fn batch_at(&self, spec: &O::Spec, at: BatchSection) -> O::Batch {
        self.note(|| format!("batch {at:?}"));
        self.inner.batch_at(spec, at)
    }

    fn read_index(&self, index: &O::Index) -> Vec<u32> {
        self.note(|| "read index".to_owned());
        self.inner.read_index(index)
    }

    fn gather_at(&self, x: &O::T, at: &O::Index) -> O::T {
        self.op("gather", x);
        self.note_result(self.inner.gather_at(x, at))
    }

    fn scatter_at(&self, x: O::T, at: &O::Index, rows: &O::T) -> O::T {
        self.op("scatter", &x);
        self.note_result(self.inner.scatter_at(x, at, rows))
    }

    fn embed_at(&self, table: &O::Weight, ids: &O::Index) -> O::T {
        self.note(|| "embed".to_owned());
        self.note_result(self.inner.embed_at(table, ids))
    }

    fn store(&self, state: &mut O::State, at: &O::Index, rows: &O::T) {
        self.op("store", rows);
        self.inner.store(state, at, rows);
    }

    fn load(&self, state: &O::State, at: &O::Index) -> O::T {
        self.note(|| "load".to_owned());
        self.note_result(self.inner.load(state, at))
    }

    fn overlay(&self, x: O::T, state: &O::State, at: &O::Index) -> O::T {
        self.op("overlay", &x);
        self.note_result(self.inner.overlay(x, state, at))
    }

    fn segment_attention_at(&self, q: &O::T, k: &O::T, v: &O::T, segments: &O::Index, heads: usize) -> O::T {
        self.op("segment attention", q);
        self.note_result(self.inner.segment_attention_at(q, k, v, segments, heads))
    }

    fn segment_conv1d_at(&self, x: &O::T, weight: &O::Weight, bias: &O::Weight, segments: &O::Index) -> O::T {
        self.op("segment conv1d", x);
        self.note_result(self.inner.segment_conv1d_at(x, weight, bias, segments))
    }

    fn segment_snake_at(
        &self,
        x: &O::T,
        alpha: &O::Weight,
        beta: &O::Weight,
        filter: &O::Weight,
        segments: &O::Index,
    ) -> O::T {
        self.op("segment snake", x);
        self.note_result(self.inner.segment_snake_at(x, alpha, beta, filter, segments))
    }

    fn conv1d_at(
        &self,
        x: &O::T,
        weight: &O::Weight,
        bias: &O::Weight,
        tail: &mut O::State,
        streams: &StreamLevel<O::Index>,
    ) -> O::T {
        self.op(format_args!("conv1d {} {}", streams.scale, streams.skip), x);
        self.note_result(self.inner.conv1d_at(x, weight, bias, tail, streams))
    }

    fn conv_transpose1d_at(
        &self,
        x: &O::T,
        weight: &O::Weight,
        bias: &O::Weight,
        tail: &mut O::State,
        streams: &StreamLevel<O::Index>,
    ) -> O::T {
        self.op(format_args!("transposed conv1d {} {}", streams.scale, streams.skip), x);
        self.note_result(self.inner.conv_transpose1d_at(x, weight, bias, tail, streams))
    }

    fn sample_at(
        &self,
        logits: &O::T,
        params: &O::Index,
        allowed_mask: Option<&O::Weight>,
        output_mask: Option<&mut O::State>,
    ) -> O::Index {
        self.op("sample", logits);
        self.inner.sample_at(logits, params, allowed_mask, output_mask)
    }

    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> O::Ticket {
        self.note(|| format!("launch {key:?}, {} numbers", spec.words().len()));
        let mut launch = || {
            self.inner.launch(key, spec, &mut |_, spec, outputs| {
                // Reuses the lists, so that nothing is allocated for more of them.
                let (ids, rows) = (std::mem::take(&mut outputs.ids), std::mem::take(&mut outputs.rows));
                let mut mine = StepOutputs { ids, rows };
                step(self, spec, &mut mine);
                (outputs.ids, outputs.rows) = (mine.ids, mine.rows);
            })
        };
        self.counted("launch", Some(key), &mut launch)
    }

    fn collect(&self, ticket: O::Ticket, back: &mut ReadBack) {
        self.counted("collect", None, || self.inner.collect(ticket, back));
        self.note(|| format!("collect {} ids and {} numbers", back.ids.len(), back.numbers.len()));
    }

    fn reset_at(&self, state: &mut O::State, slots: &O::Index) {
        self.note(|| "reset".to_owned());
        self.inner.reset_at(state, slots);
    }
}
