//! [`StepOps`] of the replay device: operations over a row spec, and recording and replay of steps.

use std::sync::{Arc, Mutex};

use super::{RecordedList, RecordedTensor, Recording, ReplayOps, Replayable, Tape, Values, lock, refuse};
use crate::row_spec::{BatchSection, RowSpec, SpecSection};
use crate::step_ops::{self, ReadBack, StepFn, StepKey, StepOps, StepOutputs, StreamLevel};

impl<O: Replayable> StepOps for ReplayOps<O> {
    type Spec = ();
    type Index = RecordedList;
    type Ticket = ReadBack;

    fn bucket(&self, rows: usize) -> usize {
        step_ops::bucket(rows)
    }

    fn upload(&self, _: &RowSpec) {
        refuse("an upload of its own")
    }

    fn index(&self, (): &(), at: SpecSection) -> RecordedList {
        self.index_of(move |ops, values| ops.index(values.spec(), at))
    }

    fn floats(&self, (): &(), at: SpecSection, columns: usize) -> RecordedTensor<O> {
        self.tensor_of(move |ops, values| ops.floats(values.spec(), at, columns))
    }

    fn batch_at(&self, (): &(), at: BatchSection) -> RecordedList {
        self.note(move |ops, values| ops.batch_at(values.spec(), at), |values| &mut values.batches)
    }

    fn read_index(&self, _: &RecordedList) -> Vec<u32> {
        refuse("reading back")
    }

    fn store(&self, state: &mut Self::State, at: &RecordedList, rows: &RecordedTensor<O>) {
        let (state, at, rows) = (Arc::clone(state), at.number, rows.read());
        self.note_effect(move |ops, values| ops.store(&mut lock(&state), values.index(at), values.tensor(rows)));
    }

    fn reset_at(&self, state: &mut Self::State, slots: &RecordedList) {
        let (state, slots) = (Arc::clone(state), slots.number);
        self.note_effect(move |ops, values| ops.reset_at(&mut lock(&state), values.index(slots)));
    }

    fn sample_at(
        &self,
        logits: &RecordedTensor<O>,
        params: &RecordedList,
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> RecordedList {
        let (logits, params) = (logits.read(), params.number);
        let (allowed_mask, output_mask) = (allowed_mask.cloned(), output_mask.map(|mask| Arc::clone(mask)));
        self.index_of(move |ops, values| {
            let mut output_mask = output_mask.as_deref().map(lock);
            let (logits, params) = (values.tensor(logits), values.index(params));
            ops.sample_at(logits, params, allowed_mask.as_deref(), output_mask.as_deref_mut())
        })
    }

    fn gather_at(&self, x: &RecordedTensor<O>, at: &RecordedList) -> RecordedTensor<O> {
        let (x, at) = (x.read(), at.number);
        self.tensor_of(move |ops, values| ops.gather_at(values.tensor(x), values.index(at)))
    }

    fn scatter_at(&self, x: RecordedTensor<O>, at: &RecordedList, rows: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (x, at, rows) = (x.give(), at.number, rows.read());
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.scatter_at(x, values.index(at), values.tensor(rows))
        })
    }

    fn embed_at(&self, table: &Arc<O::Weight>, ids: &RecordedList) -> RecordedTensor<O> {
        let (table, ids) = (Arc::clone(table), ids.number);
        self.tensor_of(move |ops, values| ops.embed_at(&table, values.index(ids)))
    }

    fn load(&self, state: &Arc<Mutex<O::State>>, at: &RecordedList) -> RecordedTensor<O> {
        let (state, at) = (Arc::clone(state), at.number);
        self.tensor_of(move |ops, values| ops.load(&lock(&state), values.index(at)))
    }

    fn overlay(&self, x: RecordedTensor<O>, state: &Arc<Mutex<O::State>>, at: &RecordedList) -> RecordedTensor<O> {
        let (x, state, at) = (x.give(), Arc::clone(state), at.number);
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.overlay(x, &lock(&state), values.index(at))
        })
    }

    fn segment_attention_at(
        &self,
        q: &RecordedTensor<O>,
        k: &RecordedTensor<O>,
        v: &RecordedTensor<O>,
        segments: &RecordedList,
        heads: usize,
    ) -> RecordedTensor<O> {
        let (q, k, v, segments) = (q.read(), k.read(), v.read(), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_attention_at(
                values.tensor(q),
                values.tensor(k),
                values.tensor(v),
                values.index(segments),
                heads,
            )
        })
    }

    fn segment_conv1d_at(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        segments: &RecordedList,
    ) -> RecordedTensor<O> {
        let (x, weight, bias, segments) = (x.read(), Arc::clone(weight), Arc::clone(bias), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_conv1d_at(values.tensor(x), &weight, &bias, values.index(segments))
        })
    }

    fn segment_snake_at(
        &self,
        x: &RecordedTensor<O>,
        alpha: &Arc<O::Weight>,
        beta: &Arc<O::Weight>,
        filter: &Arc<O::Weight>,
        segments: &RecordedList,
    ) -> RecordedTensor<O> {
        let (alpha, beta, filter) = (Arc::clone(alpha), Arc::clone(beta), Arc::clone(filter));
        let (x, segments) = (x.read(), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_snake_at(values.tensor(x), &alpha, &beta, &filter, values.index(segments))
        })
    }

    fn conv1d_at(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        tail: &mut Arc<Mutex<O::State>>,
        streams: &StreamLevel<RecordedList>,
    ) -> RecordedTensor<O> {
        let (x, weight, bias, tail, streams) =
            (x.read(), Arc::clone(weight), Arc::clone(bias), Arc::clone(tail), streams.clone());
        self.tensor_of(move |ops, values| {
            let streams = streams.over(values.index(streams.chunks.number).clone());
            ops.conv1d_at(values.tensor(x), &weight, &bias, &mut lock(&tail), &streams)
        })
    }

    fn conv_transpose1d_at(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        tail: &mut Arc<Mutex<O::State>>,
        streams: &StreamLevel<RecordedList>,
    ) -> RecordedTensor<O> {
        let (x, weight, bias, tail, streams) =
            (x.read(), Arc::clone(weight), Arc::clone(bias), Arc::clone(tail), streams.clone());
        self.tensor_of(move |ops, values| {
            let streams = streams.over(values.index(streams.chunks.number).clone());
            ops.conv_transpose1d_at(values.tensor(x), &weight, &bias, &mut lock(&tail), &streams)
        })
    }

    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> ReadBack {
        let _one = lock(&self.launching);
        let uploaded = self.inner.upload(spec);
        let mut shared = lock(&self.shared);
        if let Some(mut tape) = shared.tapes.remove(&key) {
            drop(shared);
            tape.values.spec = Some(uploaded);
            tape.operations.iter().for_each(|operation| operation(&self.inner, &mut tape.values));
            let back = self.read_back(&mut tape.values, &tape.ids, &tape.rows);
            lock(&self.shared).tapes.insert(key, tape);
            return back;
        }
        shared.recorded += 1;
        let mut values = Values::new();
        values.spec = Some(uploaded);
        shared.recording = Some(Recording { step: shared.recorded, values, operations: Vec::new() });
        drop(shared);
        let mut outputs = StepOutputs::default();
        step(self, &(), &mut outputs);
        let ids: Vec<usize> = outputs.ids.iter().map(|index| index.number).collect();
        let rows: Vec<usize> = outputs.rows.into_iter().map(RecordedTensor::give).collect();
        let recording = lock(&self.shared).recording.take();
        let Recording { mut values, operations, .. } = recording.expect("a step launches no other");
        let back = self.read_back(&mut values, &ids, &rows);
        lock(&self.shared).tapes.insert(key, Tape { values, operations, ids, rows });
        back
    }

    fn collect(&self, ticket: ReadBack, back: &mut ReadBack) {
        *back = ticket;
    }
}
