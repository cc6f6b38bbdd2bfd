//! An [`Ops`] that records each operation with its shapes and delegates the work to another.
//!
//! Capture of a step as a graph needs shapes alone to decide the sequence of operations. A test records one step over different values and
//! compares. Read-backs are recorded too, because a model function must not do them.

use std::fmt::{self, Display};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use repartee_kernels::row_spec::{BatchSection, SpecSection};
use repartee_kernels::step::bucket;
use repartee_kernels::{
    Activation, AttentionShape, CheckedParts, KernelError, Ops, ReadBack, RouterShape, RowSpec, SegmentShape,
    StateSpec, StepFn, StepKey, StepOutputs, StreamLevel,
};

/// An [`Ops`] that records its calls; see the module's description. Clones share their notes.
pub struct RecordingOps<O: Ops> {
    inner: O,
    notes: Arc<Mutex<Vec<String>>>,
    noted: RecordingMode<O::T>,
    /// True if steps are padded as on a device that replays them.
    padded: bool,
}

impl<O: Ops + Clone> Clone for RecordingOps<O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), notes: Arc::clone(&self.notes), ..*self }
    }
}

impl<O: Ops> fmt::Debug for RecordingOps<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordingOps")
    }
}

/// Subject of the notes.
enum RecordingMode<T> {
    /// Operations with their shapes.
    Operations,
    /// Operations, and the address of each result, by this function.
    Places(fn(&T) -> usize),
    /// Rise of this counter during each launch and its read-back.
    Counter(fn() -> u64),
}

impl<T> Clone for RecordingMode<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RecordingMode<T> {}

impl<O: Ops> RecordingOps<O> {
    /// Records the operations of `inner`.
    pub fn new(inner: O) -> Self {
        Self { inner, notes: Arc::default(), noted: RecordingMode::Operations, padded: false }
    }

    /// Records the operations of `inner` and the address of each result.
    pub fn with_addresses(inner: O, address: fn(&O::T) -> usize) -> Self {
        Self { noted: RecordingMode::Places(address), ..Self::new(inner) }
    }

    /// Records by how much `counter` rises during each launch and its read-back, a count of allocations for instance, and no operations.
    /// The recorder's own work is not counted.
    pub fn with_counter(inner: O, counter: fn() -> u64) -> Self {
        Self { noted: RecordingMode::Counter(counter), ..Self::new(inner) }
    }

    /// Pads steps as a device does that replays them.
    #[must_use]
    pub fn padded(self) -> Self {
        Self { padded: true, ..self }
    }

    /// Returns and clears the notes.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes())
    }

    fn notes(&self) -> MutexGuard<'_, Vec<String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: impl FnOnce() -> String) {
        if !matches!(self.noted, RecordingMode::Counter(_)) {
            self.notes().push(what());
        }
    }

    /// Notes the address of a result.
    fn note_result(&self, x: O::T) -> O::T {
        if let RecordingMode::Places(address) = self.noted {
            self.note(|| format!("at {:#x}", address(&x)));
        }
        x
    }

    /// Notes an operation by its name and the rows of its first operand.
    fn op(&self, name: impl Display, x: &O::T) {
        self.note(|| format!("{name} {}", self.inner.rows(x)));
    }

    /// Notes the counter's rise during `run`.
    fn counted<R>(&self, what: &str, key: Option<StepKey>, run: impl FnOnce() -> R) -> R {
        let RecordingMode::Counter(counter) = self.noted else { return run() };
        let before = counter();
        let result = run();
        let rise = counter() - before;
        self.notes().push(format!("{what} {key:?}: {rise}"));
        result
    }
}

impl<O: Ops> Ops for RecordingOps<O> {
    type T = O::T;
    type Weight = O::Weight;
    type State = O::State;
    type Batch = O::Batch;
    type Spec = O::Spec;
    type Index = O::Index;
    type Ticket = O::Ticket;

    fn with_own_buffers(&self) -> Self {
        Self { inner: self.inner.with_own_buffers(), notes: Arc::clone(&self.notes), ..*self }
    }

    fn eager_steps(&self) -> Option<u64> {
        self.inner.eager_steps()
    }

    fn kv_number_bytes(&self) -> usize {
        self.inner.kv_number_bytes()
    }

    fn bucket(&self, rows: usize) -> usize {
        if self.padded { bucket(rows) } else { self.inner.bucket(rows) }
    }

    fn weight(&self, parts: &CheckedParts<'_>) -> Result<O::Weight, KernelError> {
        self.inner.weight(parts)
    }

    fn state(&self, spec: StateSpec) -> O::State {
        self.inner.state(spec)
    }

    fn copy_block(&self, state: &mut O::State, from: u32, to: u32) {
        self.inner.copy_block(state, from, to);
    }

    fn discard(&self, state: &mut O::State, range: Range<usize>, parts: usize) -> usize {
        self.inner.discard(state, range, parts)
    }

    fn shrink(&self) -> bool {
        self.inner.shrink()
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> O::T {
        self.note(|| format!("tensor {} by {columns}", values.len()));
        self.note_result(self.inner.tensor(values, columns))
    }

    fn read(&self, x: &O::T) -> Vec<f32> {
        self.op("read", x);
        self.inner.read(x)
    }

    fn rows(&self, x: &O::T) -> usize {
        self.inner.rows(x)
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

    fn copy(&self, x: &O::T) -> O::T {
        self.op("copy", x);
        self.note_result(self.inner.copy(x))
    }

    fn concat(&self, parts: &[&O::T]) -> O::T {
        self.note(|| format!("concat {:?}", parts.iter().map(|part| self.inner.rows(part)).collect::<Vec<_>>()));
        self.note_result(self.inner.concat(parts))
    }

    fn concat_columns(&self, parts: &[&O::T]) -> O::T {
        self.note(|| {
            format!("concat columns {:?}", parts.iter().map(|part| self.inner.rows(part)).collect::<Vec<_>>())
        });
        self.note_result(self.inner.concat_columns(parts))
    }

    fn narrow(&self, x: &O::T, start: usize, length: usize) -> O::T {
        self.op(format_args!("narrow {start} {length}"), x);
        self.note_result(self.inner.narrow(x, start, length))
    }

    fn reshape(&self, x: O::T, columns: usize) -> O::T {
        self.op(format_args!("reshape {columns}"), &x);
        self.note_result(self.inner.reshape(x, columns))
    }

    fn gather_at(&self, x: &O::T, at: &O::Index) -> O::T {
        self.op("gather", x);
        self.note_result(self.inner.gather_at(x, at))
    }

    fn scatter_at(&self, x: O::T, at: &O::Index, rows: &O::T) -> O::T {
        self.op("scatter", &x);
        self.note_result(self.inner.scatter_at(x, at, rows))
    }

    fn hold_at(&self, x: O::T, at: &O::Index, bits: &O::Index) -> O::T {
        self.op("hold", &x);
        self.note_result(self.inner.hold_at(x, at, bits))
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

    fn linear(&self, x: &O::T, weight: &O::Weight, bias: Option<&O::Weight>) -> O::T {
        self.op("linear", x);
        self.note_result(self.inner.linear(x, weight, bias))
    }

    fn add(&self, x: O::T, y: &O::T) -> O::T {
        self.op("add", &x);
        self.note_result(self.inner.add(x, y))
    }

    fn mul(&self, x: O::T, y: &O::T) -> O::T {
        self.op("mul", &x);
        self.note_result(self.inner.mul(x, y))
    }

    fn scale(&self, x: O::T, by: &O::Weight) -> O::T {
        self.op("scale", &x);
        self.note_result(self.inner.scale(x, by))
    }

    fn scale_all(&self, x: O::T, by: f32) -> O::T {
        self.op("scale all", &x);
        self.note_result(self.inner.scale_all(x, by))
    }

    fn clamp(&self, x: O::T, low: f32, high: f32) -> O::T {
        self.op("clamp", &x);
        self.note_result(self.inner.clamp(x, low, high))
    }

    fn rms_norm(&self, x: &O::T, weight: &O::Weight, eps: f32) -> O::T {
        self.op("rms norm", x);
        self.note_result(self.inner.rms_norm(x, weight, eps))
    }

    fn layer_norm(&self, x: &O::T, weight: &O::Weight, bias: &O::Weight, eps: f32) -> O::T {
        self.op("layer norm", x);
        self.note_result(self.inner.layer_norm(x, weight, bias, eps))
    }

    fn segment_norm_at(&self, x: &O::T, weight: &O::Weight, bias: &O::Weight, eps: f32, segments: &O::Index) -> O::T {
        self.op("segment norm", x);
        self.note_result(self.inner.segment_norm_at(x, weight, bias, eps, segments))
    }

    fn activation(&self, x: O::T, function: Activation) -> O::T {
        self.op(format_args!("{function:?}"), &x);
        self.note_result(self.inner.activation(x, function))
    }

    fn silu_mul(&self, x: &O::T) -> O::T {
        self.op("silu mul", x);
        self.note_result(self.inner.silu_mul(x))
    }

    fn sigmoid_mul(&self, x: &O::T) -> O::T {
        self.op("sigmoid mul", x);
        self.note_result(self.inner.sigmoid_mul(x))
    }

    fn sigmoid_gate(&self, y: O::T, gate: &O::T) -> O::T {
        self.op("sigmoid gate", &y);
        self.note_result(self.inner.sigmoid_gate(y, gate))
    }

    fn snake(&self, x: O::T, frequency: &O::Weight, magnitude: &O::Weight) -> O::T {
        self.op("snake", &x);
        self.note_result(self.inner.snake(x, frequency, magnitude))
    }

    fn rotary(&self, x: O::T, batch: &O::Batch, frequencies: &O::Weight) -> O::T {
        self.op("rotary", &x);
        self.note_result(self.inner.rotary(x, batch, frequencies))
    }

    fn attention(
        &self,
        q: &O::T,
        k: &O::T,
        v: &O::T,
        cache: &mut O::State,
        batch: &O::Batch,
        shape: AttentionShape,
    ) -> O::T {
        self.op("attention", q);
        self.note_result(self.inner.attention(q, k, v, cache, batch, shape))
    }

    fn store_keys(&self, k: &O::T, v: &O::T, cache: &mut O::State, batch: &O::Batch) {
        self.op("store keys", k);
        self.inner.store_keys(k, v, cache, batch);
    }

    fn stored_attention(&self, q: &O::T, cache: &mut O::State, batch: &O::Batch, shape: AttentionShape) -> O::T {
        self.op("stored attention", q);
        self.note_result(self.inner.stored_attention(q, cache, batch, shape))
    }

    fn segment_instance_norm_at(&self, x: &O::T, style: &O::T, eps: f32, segments: &O::Index) -> O::T {
        self.op("segment instance norm", x);
        self.note_result(self.inner.segment_instance_norm_at(x, style, eps, segments))
    }

    fn segment_lstm_at(&self, x: &O::T, hidden: &O::Weight, segments: &O::Index, reverse: bool) -> O::T {
        self.op(format_args!("segment lstm, reverse {reverse}"), x);
        self.note_result(self.inner.segment_lstm_at(x, hidden, segments, reverse))
    }

    fn segment_attention_at(&self, q: &O::T, k: &O::T, v: &O::T, segments: &O::Index, shape: SegmentShape) -> O::T {
        self.op("segment attention", q);
        self.note_result(self.inner.segment_attention_at(q, k, v, segments, shape))
    }

    fn experts(&self, x: &O::T, router: &O::Weight, gate_up: &O::Weight, down: &O::Weight, spec: RouterShape) -> O::T {
        self.op("experts", x);
        self.note_result(self.inner.experts(x, router, gate_up, down, spec))
    }

    fn conv2d(
        &self,
        x: &O::T,
        images: usize,
        height: usize,
        width: usize,
        weight: &O::Weight,
        bias: &O::Weight,
    ) -> O::T {
        self.op(format_args!("conv2d {images} of {height} by {width}"), x);
        self.note_result(self.inner.conv2d(x, images, height, width, weight, bias))
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

    fn segment_conv1d_at(&self, x: &O::T, weight: &O::Weight, bias: &O::Weight, segments: &O::Index) -> O::T {
        self.op("segment conv1d", x);
        self.note_result(self.inner.segment_conv1d_at(x, weight, bias, segments))
    }

    fn segment_conv1d_rows(
        &self,
        out: Option<O::T>,
        x: &O::T,
        weight: &O::Weight,
        bias: &O::Weight,
        rows: Range<usize>,
    ) -> O::T {
        self.op(format_args!("segment conv1d rows {rows:?}"), x);
        self.note_result(self.inner.segment_conv1d_rows(out, x, weight, bias, rows))
    }

    fn segment_snake_at(
        &self,
        x: &O::T,
        frequency: &O::Weight,
        magnitude: &O::Weight,
        filter: &O::Weight,
        segments: &O::Index,
    ) -> O::T {
        self.op("segment snake", x);
        self.note_result(self.inner.segment_snake_at(x, frequency, magnitude, filter, segments))
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

    fn reset_at(&self, state: &mut O::State, slots: &O::Index) {
        self.note(|| "reset".to_owned());
        self.inner.reset_at(state, slots);
    }
}
