//! Operations over a row spec, and recording and repeating of whole steps.

use std::sync::{Arc, Mutex};

use super::{Numbered, Recording, ReplayOps, Replayable, Tape, Value, Values, lock, outside};
use crate::row_spec::{BatchSection, RowSpec, Section};
use crate::step_ops::{self, Outputs, ReadBack, Step, StepKey, StepOps, Streams};

impl<O: Replayable> StepOps for ReplayOps<O> {
    type Spec = ();
    type Index = Numbered;
    type Ticket = ReadBack;

    fn bucket(&self, rows: usize) -> usize {
        step_ops::bucket(rows)
    }

    fn upload(&self, _: &RowSpec) {
        outside("an upload of its own")
    }

    fn index(&self, (): &(), at: Section) -> Numbered {
        self.index_of(move |ops, values| ops.index(values.spec(), at))
    }

    fn floats(&self, (): &(), at: Section, columns: usize) -> Value<O> {
        self.tensor_of(move |ops, values| ops.floats(values.spec(), at, columns))
    }

    fn batch_at(&self, (): &(), at: BatchSection) -> Numbered {
        self.note(move |ops, values| ops.batch_at(values.spec(), at), |values| &mut values.batches)
    }

    fn read_index(&self, _: &Numbered) -> Vec<u32> {
        outside("reading back")
    }

    fn store(&self, state: &mut Self::State, at: &Numbered, rows: &Value<O>) {
        let (state, at, rows) = (Arc::clone(state), at.number, rows.read());
        self.act(move |ops, values| ops.store(&mut lock(&state), values.index(at), values.tensor(rows)));
    }

    fn reset_at(&self, state: &mut Self::State, slots: &Numbered) {
        let (state, slots) = (Arc::clone(state), slots.number);
        self.act(move |ops, values| ops.reset_at(&mut lock(&state), values.index(slots)));
    }

    fn sample_at(
        &self,
        logits: &Value<O>,
        params: &Numbered,
        allowed_mask: Option<&Self::Weight>,
        output_mask: Option<&mut Self::State>,
    ) -> Numbered {
        let (logits, params) = (logits.read(), params.number);
        let (allowed_mask, output_mask) = (allowed_mask.cloned(), output_mask.map(|mask| Arc::clone(mask)));
        self.index_of(move |ops, values| {
            let mut output_mask = output_mask.as_deref().map(lock);
            let (logits, params) = (values.tensor(logits), values.index(params));
            ops.sample_at(logits, params, allowed_mask.as_deref(), output_mask.as_deref_mut())
        })
    }

    fn gather_at(&self, x: &Value<O>, at: &Numbered) -> Value<O> {
        let (x, at) = (x.read(), at.number);
        self.tensor_of(move |ops, values| ops.gather_at(values.tensor(x), values.index(at)))
    }

    fn scatter_at(&self, x: Value<O>, at: &Numbered, rows: &Value<O>) -> Value<O> {
        let (x, at, rows) = (x.give(), at.number, rows.read());
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.scatter_at(x, values.index(at), values.tensor(rows))
        })
    }

    fn embed_at(&self, table: &Arc<O::Weight>, ids: &Numbered) -> Value<O> {
        let (table, ids) = (Arc::clone(table), ids.number);
        self.tensor_of(move |ops, values| ops.embed_at(&table, values.index(ids)))
    }

    fn load(&self, state: &Arc<Mutex<O::State>>, at: &Numbered) -> Value<O> {
        let (state, at) = (Arc::clone(state), at.number);
        self.tensor_of(move |ops, values| ops.load(&lock(&state), values.index(at)))
    }

    fn overlay(&self, x: Value<O>, state: &Arc<Mutex<O::State>>, at: &Numbered) -> Value<O> {
        let (x, state, at) = (x.give(), Arc::clone(state), at.number);
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.overlay(x, &lock(&state), values.index(at))
        })
    }

    fn segment_attention_at(
        &self,
        q: &Value<O>,
        k: &Value<O>,
        v: &Value<O>,
        segments: &Numbered,
        heads: usize,
    ) -> Value<O> {
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
        x: &Value<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        segments: &Numbered,
    ) -> Value<O> {
        let (x, weight, bias, segments) = (x.read(), Arc::clone(weight), Arc::clone(bias), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_conv1d_at(values.tensor(x), &weight, &bias, values.index(segments))
        })
    }

    fn segment_snake_at(
        &self,
        x: &Value<O>,
        alpha: &Arc<O::Weight>,
        beta: &Arc<O::Weight>,
        filter: &Arc<O::Weight>,
        segments: &Numbered,
    ) -> Value<O> {
        let (alpha, beta, filter) = (Arc::clone(alpha), Arc::clone(beta), Arc::clone(filter));
        let (x, segments) = (x.read(), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_snake_at(values.tensor(x), &alpha, &beta, &filter, values.index(segments))
        })
    }

    fn conv1d_at(
        &self,
        x: &Value<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        tail: &mut Arc<Mutex<O::State>>,
        streams: &Streams<Numbered>,
    ) -> Value<O> {
        let (x, weight, bias, tail, streams) =
            (x.read(), Arc::clone(weight), Arc::clone(bias), Arc::clone(tail), streams.clone());
        self.tensor_of(move |ops, values| {
            let streams = streams.over(values.index(streams.chunks.number).clone());
            ops.conv1d_at(values.tensor(x), &weight, &bias, &mut lock(&tail), &streams)
        })
    }

    fn conv_transpose1d_at(
        &self,
        x: &Value<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        tail: &mut Arc<Mutex<O::State>>,
        streams: &Streams<Numbered>,
    ) -> Value<O> {
        let (x, weight, bias, tail, streams) =
            (x.read(), Arc::clone(weight), Arc::clone(bias), Arc::clone(tail), streams.clone());
        self.tensor_of(move |ops, values| {
            let streams = streams.over(values.index(streams.chunks.number).clone());
            ops.conv_transpose1d_at(values.tensor(x), &weight, &bias, &mut lock(&tail), &streams)
        })
    }

    fn launch(&self, key: StepKey, spec: &RowSpec, step: Step<'_, Self>) -> ReadBack {
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
        let mut outputs = Outputs::default();
        step(self, &(), &mut outputs);
        let ids: Vec<usize> = outputs.ids.iter().map(|index| index.number).collect();
        let rows: Vec<usize> = outputs.rows.into_iter().map(Value::give).collect();
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
