//! Operations of the replay device. Those that take numbers from the host panic.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use repartee_kernels::row_spec::{BatchSection, SpecSection};
use repartee_kernels::step::bucket;
use repartee_kernels::{
    Activation, AttentionShape, CheckedParts, KernelError, Ops, ReadBack, RouterShape, RowSpec, SegmentShape,
    StateSpec, StepFn, StepKey, StepOutputs, StreamLevel,
};

use super::device::{RecordedList, RecordedTensor, Recording, ReplayOps, Replayable, Tape, Values, lock, refuse};

impl<O: Replayable> Ops for ReplayOps<O> {
    type T = RecordedTensor<O>;
    type Weight = Arc<O::Weight>;
    type State = Arc<Mutex<O::State>>;
    type Batch = RecordedList;
    type Spec = ();
    type Index = RecordedList;
    type Ticket = O::Ticket;

    /// Steps run one at a time, so separate buffers gain nothing.
    fn with_own_buffers(&self) -> Self {
        self.clone()
    }

    fn eager_steps(&self) -> Option<u64> {
        self.inner.eager_steps()
    }

    fn kv_number_bytes(&self) -> usize {
        self.inner.kv_number_bytes()
    }

    fn bucket(&self, rows: usize) -> usize {
        bucket(rows)
    }

    fn weight(&self, parts: &CheckedParts<'_>) -> Result<Self::Weight, KernelError> {
        self.inner.weight(parts).map(Arc::new)
    }

    fn state(&self, spec: StateSpec) -> Self::State {
        Arc::new(Mutex::new(self.inner.state(spec)))
    }

    fn copy_block(&self, state: &mut Self::State, from: u32, to: u32) {
        self.inner.copy_block(&mut lock(state), from, to);
    }

    fn discard(&self, state: &mut Self::State, range: Range<usize>, parts: usize) -> usize {
        self.inner.discard(&mut lock(state), range, parts)
    }

    fn shrink(&self) -> bool {
        self.inner.shrink()
    }

    fn tensor(&self, _: Vec<f32>, _: usize) -> RecordedTensor<O> {
        refuse("a tensor of the host")
    }

    fn read(&self, _: &RecordedTensor<O>) -> Vec<f32> {
        refuse("reading back")
    }

    fn rows(&self, x: &RecordedTensor<O>) -> usize {
        self.look(|ops, values| ops.rows(values.tensor(x.read())))
    }

    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> O::Ticket {
        let _one = lock(&self.launching);
        let uploaded = self.inner.upload(spec);
        let mut shared = lock(&self.shared);
        if let Some(mut tape) = shared.tapes.remove(&key) {
            drop(shared);
            tape.values.spec = Some(uploaded);
            tape.operations.iter().for_each(|operation| operation(&self.inner, &mut tape.values));
            let ticket = self.read_back(key, spec, &mut tape.values, (&tape.ids, &tape.rows));
            lock(&self.shared).tapes.insert(key, tape);
            return ticket;
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
        let ticket = self.read_back(key, spec, &mut values, (&ids, &rows));
        lock(&self.shared).tapes.insert(key, Tape { values, operations, ids, rows });
        ticket
    }

    fn collect(&self, ticket: O::Ticket, back: &mut ReadBack) {
        self.inner.collect(ticket, back);
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

    fn copy(&self, x: &RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.copy(values.tensor(x)))
    }

    fn concat(&self, parts: &[&RecordedTensor<O>]) -> RecordedTensor<O> {
        let parts: Vec<usize> = parts.iter().map(|part| part.read()).collect();
        self.tensor_of(move |ops, values| {
            ops.concat(&parts.iter().map(|&part| values.tensor(part)).collect::<Vec<_>>())
        })
    }

    fn concat_columns(&self, parts: &[&RecordedTensor<O>]) -> RecordedTensor<O> {
        let parts: Vec<usize> = parts.iter().map(|part| part.read()).collect();
        self.tensor_of(move |ops, values| {
            ops.concat_columns(&parts.iter().map(|&part| values.tensor(part)).collect::<Vec<_>>())
        })
    }

    fn narrow(&self, x: &RecordedTensor<O>, start: usize, length: usize) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.narrow(values.tensor(x), start, length))
    }

    fn reshape(&self, x: RecordedTensor<O>, columns: usize) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.reshape(x, columns)
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

    fn hold_at(&self, x: RecordedTensor<O>, at: &RecordedList, bits: &RecordedList) -> RecordedTensor<O> {
        let (x, at, bits) = (x.give(), at.number, bits.number);
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.hold_at(x, values.index(at), values.index(bits))
        })
    }

    fn embed_at(&self, table: &Arc<O::Weight>, ids: &RecordedList) -> RecordedTensor<O> {
        let (table, ids) = (Arc::clone(table), ids.number);
        self.tensor_of(move |ops, values| ops.embed_at(&table, values.index(ids)))
    }

    fn store(&self, state: &mut Self::State, at: &RecordedList, rows: &RecordedTensor<O>) {
        let (state, at, rows) = (Arc::clone(state), at.number, rows.read());
        self.note_effect(move |ops, values| ops.store(&mut lock(&state), values.index(at), values.tensor(rows)));
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

    fn linear(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: Option<&Arc<O::Weight>>,
    ) -> RecordedTensor<O> {
        let (x, weight, bias) = (x.read(), Arc::clone(weight), bias.cloned());
        self.tensor_of(move |ops, values| ops.linear(values.tensor(x), &weight, bias.as_deref()))
    }

    fn add(&self, x: RecordedTensor<O>, y: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (x, y) = (x.give(), y.read());
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.add(x, values.tensor(y))
        })
    }

    fn mul(&self, x: RecordedTensor<O>, y: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (x, y) = (x.give(), y.read());
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.mul(x, values.tensor(y))
        })
    }

    fn scale(&self, x: RecordedTensor<O>, by: &Arc<O::Weight>) -> RecordedTensor<O> {
        let (x, by) = (x.give(), Arc::clone(by));
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.scale(x, &by)
        })
    }

    fn scale_all(&self, x: RecordedTensor<O>, by: f32) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.scale_all(x, by)
        })
    }

    fn clamp(&self, x: RecordedTensor<O>, low: f32, high: f32) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.clamp(x, low, high)
        })
    }

    fn rms_norm(&self, x: &RecordedTensor<O>, weight: &Arc<O::Weight>, eps: f32) -> RecordedTensor<O> {
        let (x, weight) = (x.read(), Arc::clone(weight));
        self.tensor_of(move |ops, values| ops.rms_norm(values.tensor(x), &weight, eps))
    }

    fn layer_norm(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        eps: f32,
    ) -> RecordedTensor<O> {
        let (x, weight, bias) = (x.read(), Arc::clone(weight), Arc::clone(bias));
        self.tensor_of(move |ops, values| ops.layer_norm(values.tensor(x), &weight, &bias, eps))
    }

    fn segment_norm_at(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        eps: f32,
        segments: &RecordedList,
    ) -> RecordedTensor<O> {
        let (x, weight, bias, segments) = (x.read(), Arc::clone(weight), Arc::clone(bias), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_norm_at(values.tensor(x), &weight, &bias, eps, values.index(segments))
        })
    }

    fn segment_instance_norm_at(
        &self,
        x: &RecordedTensor<O>,
        style: &RecordedTensor<O>,
        eps: f32,
        segments: &RecordedList,
    ) -> RecordedTensor<O> {
        let (x, style, segments) = (x.read(), style.read(), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_instance_norm_at(values.tensor(x), values.tensor(style), eps, values.index(segments))
        })
    }

    fn activation(&self, x: RecordedTensor<O>, function: Activation) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.activation(x, function)
        })
    }

    fn silu_mul(&self, x: &RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.silu_mul(values.tensor(x)))
    }

    fn sigmoid_mul(&self, x: &RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.sigmoid_mul(values.tensor(x)))
    }

    fn sigmoid_gate(&self, y: RecordedTensor<O>, gate: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (y, gate) = (y.give(), gate.read());
        self.tensor_of(move |ops, values| {
            let y = values.take(y);
            ops.sigmoid_gate(y, values.tensor(gate))
        })
    }

    fn snake(&self, x: RecordedTensor<O>, frequency: &Arc<O::Weight>, magnitude: &Arc<O::Weight>) -> RecordedTensor<O> {
        let (x, frequency, magnitude) = (x.give(), Arc::clone(frequency), Arc::clone(magnitude));
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.snake(x, &frequency, &magnitude)
        })
    }

    fn rotary(&self, x: RecordedTensor<O>, batch: &RecordedList, frequencies: &Arc<O::Weight>) -> RecordedTensor<O> {
        let (x, batch, frequencies) = (x.give(), batch.number, Arc::clone(frequencies));
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.rotary(x, values.batch(batch), &frequencies)
        })
    }

    fn attention(
        &self,
        q: &RecordedTensor<O>,
        k: &RecordedTensor<O>,
        v: &RecordedTensor<O>,
        cache: &mut Arc<Mutex<O::State>>,
        batch: &RecordedList,
        shape: AttentionShape,
    ) -> RecordedTensor<O> {
        let (q, k, v, cache, batch) = (q.read(), k.read(), v.read(), Arc::clone(cache), batch.number);
        self.tensor_of(move |ops, values| {
            ops.attention(
                values.tensor(q),
                values.tensor(k),
                values.tensor(v),
                &mut lock(&cache),
                values.batch(batch),
                shape,
            )
        })
    }

    fn store_keys(
        &self,
        k: &RecordedTensor<O>,
        v: &RecordedTensor<O>,
        cache: &mut Arc<Mutex<O::State>>,
        batch: &RecordedList,
    ) {
        let (k, v, cache, batch) = (k.read(), v.read(), Arc::clone(cache), batch.number);
        self.note_effect(move |ops, values| {
            ops.store_keys(values.tensor(k), values.tensor(v), &mut lock(&cache), values.batch(batch));
        });
    }

    fn stored_attention(
        &self,
        q: &RecordedTensor<O>,
        cache: &mut Arc<Mutex<O::State>>,
        batch: &RecordedList,
        shape: AttentionShape,
    ) -> RecordedTensor<O> {
        let (q, cache, batch) = (q.read(), Arc::clone(cache), batch.number);
        self.tensor_of(move |ops, values| {
            ops.stored_attention(values.tensor(q), &mut lock(&cache), values.batch(batch), shape)
        })
    }

    fn segment_attention_at(
        &self,
        q: &RecordedTensor<O>,
        k: &RecordedTensor<O>,
        v: &RecordedTensor<O>,
        segments: &RecordedList,
        shape: SegmentShape,
    ) -> RecordedTensor<O> {
        let (q, k, v, segments) = (q.read(), k.read(), v.read(), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_attention_at(
                values.tensor(q),
                values.tensor(k),
                values.tensor(v),
                values.index(segments),
                shape,
            )
        })
    }

    fn segment_lstm_at(
        &self,
        x: &RecordedTensor<O>,
        hidden: &Arc<O::Weight>,
        segments: &RecordedList,
        reverse: bool,
    ) -> RecordedTensor<O> {
        let (x, hidden, segments) = (x.read(), Arc::clone(hidden), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_lstm_at(values.tensor(x), &hidden, values.index(segments), reverse)
        })
    }

    fn experts(
        &self,
        x: &RecordedTensor<O>,
        router: &Arc<O::Weight>,
        gate_up: &Arc<O::Weight>,
        down: &Arc<O::Weight>,
        spec: RouterShape,
    ) -> RecordedTensor<O> {
        let (x, router, gate_up, down) = (x.read(), Arc::clone(router), Arc::clone(gate_up), Arc::clone(down));
        self.tensor_of(move |ops, values| ops.experts(values.tensor(x), &router, &gate_up, &down, spec))
    }

    fn conv2d(
        &self,
        x: &RecordedTensor<O>,
        images: usize,
        height: usize,
        width: usize,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
    ) -> RecordedTensor<O> {
        let (x, weight, bias) = (x.read(), Arc::clone(weight), Arc::clone(bias));
        self.tensor_of(move |ops, values| ops.conv2d(values.tensor(x), images, height, width, &weight, &bias))
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

    fn segment_conv1d_rows(
        &self,
        out: Option<RecordedTensor<O>>,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        rows: Range<usize>,
    ) -> RecordedTensor<O> {
        let (out, x, weight, bias) = (out.map(RecordedTensor::give), x.read(), Arc::clone(weight), Arc::clone(bias));
        self.tensor_of(move |ops, values| {
            let out = out.map(|out| values.take(out));
            ops.segment_conv1d_rows(out, values.tensor(x), &weight, &bias, rows.clone())
        })
    }

    fn segment_snake_at(
        &self,
        x: &RecordedTensor<O>,
        frequency: &Arc<O::Weight>,
        magnitude: &Arc<O::Weight>,
        filter: &Arc<O::Weight>,
        segments: &RecordedList,
    ) -> RecordedTensor<O> {
        let (frequency, magnitude, filter) = (Arc::clone(frequency), Arc::clone(magnitude), Arc::clone(filter));
        let (x, segments) = (x.read(), segments.number);
        self.tensor_of(move |ops, values| {
            ops.segment_snake_at(values.tensor(x), &frequency, &magnitude, &filter, values.index(segments))
        })
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

    fn reset_at(&self, state: &mut Self::State, slots: &RecordedList) {
        let (state, slots) = (Arc::clone(state), slots.number);
        self.note_effect(move |ops, values| ops.reset_at(&mut lock(&state), values.index(slots)));
    }
}
