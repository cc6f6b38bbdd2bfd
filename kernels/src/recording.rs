//! An [`Ops`] that records each operation with its shapes and delegates the work to another.
//!
//! Capture of a step as a graph needs shapes alone to decide the sequence of operations. A test records one step over different values and
//! compares. Read-backs are recorded too, because a model function must not do them.

mod step_ops;

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ops::{
    AttentionShape, KernelError, Ops, RawTensor, RouterShape, SampleParams, SequenceRows, StateSpec, WeightFormat,
    WeightLayout,
};
use crate::part::WeightPart;
use crate::step_ops::StepKey;

/// An [`Ops`] that records its calls; see the module's description. Clones share their notes.
#[derive(Debug, Clone, Default)]
pub struct RecordingOps<O> {
    inner: O,
    notes: Arc<Mutex<Vec<String>>>,
    noted: RecordingMode,
    /// True if steps are padded as on a device that replays them.
    padded: bool,
}

/// Subject of the notes.
#[derive(Debug, Clone, Copy, Default)]
enum RecordingMode {
    /// Operations with their shapes.
    #[default]
    Operations,
    /// Operations, and the address of each result.
    Places,
    /// Rise of this counter during each launch and its read-back.
    Counter(fn() -> u64),
}

impl<O: Ops> RecordingOps<O> {
    /// Records the operations of `inner`.
    pub fn new(inner: O) -> Self {
        Self { inner, notes: Arc::default(), noted: RecordingMode::default(), padded: false }
    }

    /// Records the operations of `inner` and the address of each result.
    pub fn with_addresses(inner: O) -> Self {
        Self { noted: RecordingMode::Places, ..Self::new(inner) }
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
        if matches!(self.noted, RecordingMode::Places) {
            self.note(|| format!("at {:#x}", self.inner.address(&x)));
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
    type Ids = O::Ids;
    type Weight = O::Weight;
    type State = O::State;
    type Batch = O::Batch;

    fn weight(&self, layout: WeightLayout, parts: &[RawTensor<'_>]) -> Result<O::Weight, KernelError> {
        self.inner.weight(layout, parts)
    }

    fn weight_in_format(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[RawTensor<'_>],
    ) -> Result<O::Weight, KernelError> {
        self.inner.weight_in_format(layout, format, parts)
    }

    fn weight_from_parts(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<O::Weight, KernelError> {
        self.inner.weight_from_parts(layout, format, parts)
    }

    fn with_own_buffers(&self) -> Self {
        let (inner, notes) = (self.inner.with_own_buffers(), Arc::clone(&self.notes));
        Self { inner, notes, ..*self }
    }

    fn state(&self, spec: StateSpec) -> O::State {
        self.inner.state(spec)
    }

    fn reset(&self, state: &mut O::State, slot: usize) {
        self.inner.reset(state, slot);
    }

    fn copy_block(&self, state: &mut O::State, from: u32, to: u32) {
        self.inner.copy_block(state, from, to);
    }

    fn batch(&self, sequences: &[SequenceRows<'_>]) -> O::Batch {
        self.note(|| format!("batch {:?}", sequences.iter().map(|s| s.rows).collect::<Vec<_>>()));
        self.inner.batch(sequences)
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> O::T {
        self.note(|| format!("tensor {} by {columns}", values.len()));
        self.note_result(self.inner.tensor(values, columns))
    }

    fn ids(&self, ids: &[u32]) -> O::Ids {
        self.note(|| format!("ids {}", ids.len()));
        self.inner.ids(ids)
    }

    fn read(&self, x: &O::T) -> Vec<f32> {
        self.op("read", x);
        self.inner.read(x)
    }

    fn read_ids(&self, ids: &O::Ids) -> Vec<u32> {
        self.note(|| "read ids".to_owned());
        self.inner.read_ids(ids)
    }

    fn rows(&self, x: &O::T) -> usize {
        self.inner.rows(x)
    }

    fn kv_number_bytes(&self) -> usize {
        self.inner.kv_number_bytes()
    }

    fn address(&self, x: &O::T) -> usize {
        self.inner.address(x)
    }

    fn copy(&self, x: &O::T) -> O::T {
        self.op("copy", x);
        self.note_result(self.inner.copy(x))
    }

    fn gather(&self, x: &O::T, at: &[usize]) -> O::T {
        self.op(format_args!("gather {}", at.len()), x);
        self.note_result(self.inner.gather(x, at))
    }

    fn concat(&self, parts: &[&O::T]) -> O::T {
        self.note(|| format!("concat {:?}", parts.iter().map(|part| self.inner.rows(part)).collect::<Vec<_>>()));
        self.note_result(self.inner.concat(parts))
    }

    fn embed(&self, table: &O::Weight, ids: &O::Ids) -> O::T {
        self.note(|| "embed".to_owned());
        self.note_result(self.inner.embed(table, ids))
    }

    fn linear(&self, x: &O::T, weight: &O::Weight, bias: Option<&O::Weight>) -> O::T {
        self.op("linear", x);
        self.note_result(self.inner.linear(x, weight, bias))
    }

    fn narrow(&self, x: &O::T, start: usize, length: usize) -> O::T {
        self.op(format_args!("narrow {start} {length}"), x);
        self.note_result(self.inner.narrow(x, start, length))
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

    fn rms_norm(&self, x: &O::T, weight: &O::Weight, eps: f32) -> O::T {
        self.op("rms norm", x);
        self.note_result(self.inner.rms_norm(x, weight, eps))
    }

    fn layer_norm(&self, x: &O::T, weight: &O::Weight, bias: &O::Weight, eps: f32) -> O::T {
        self.op("layer norm", x);
        self.note_result(self.inner.layer_norm(x, weight, bias, eps))
    }

    fn silu(&self, x: O::T) -> O::T {
        self.op("silu", &x);
        self.note_result(self.inner.silu(x))
    }

    fn silu_mul(&self, x: &O::T) -> O::T {
        self.op("silu mul", x);
        self.note_result(self.inner.silu_mul(x))
    }

    fn gelu(&self, x: O::T) -> O::T {
        self.op("gelu", &x);
        self.note_result(self.inner.gelu(x))
    }

    fn gelu_tanh(&self, x: O::T) -> O::T {
        self.op("gelu tanh", &x);
        self.note_result(self.inner.gelu_tanh(x))
    }

    fn snake(&self, x: O::T, alpha: &O::Weight, beta: &O::Weight) -> O::T {
        self.op("snake", &x);
        self.note_result(self.inner.snake(x, alpha, beta))
    }

    fn clamp(&self, x: O::T, low: f32, high: f32) -> O::T {
        self.op("clamp", &x);
        self.note_result(self.inner.clamp(x, low, high))
    }

    fn sigmoid_gate(&self, y: O::T, gate: &O::T) -> O::T {
        self.op("sigmoid gate", &y);
        self.note_result(self.inner.sigmoid_gate(y, gate))
    }

    fn rotary(&self, x: O::T, batch: &O::Batch, head_dim: usize, theta: f32) -> O::T {
        self.op("rotary", &x);
        self.note_result(self.inner.rotary(x, batch, head_dim, theta))
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

    fn reshape(&self, x: O::T, columns: usize) -> O::T {
        self.op(format_args!("reshape {columns}"), &x);
        self.note_result(self.inner.reshape(x, columns))
    }

    fn sample(
        &self,
        logits: &O::T,
        params: &[SampleParams],
        allowed_mask: Option<&O::Weight>,
        output_mask: Option<&mut O::State>,
    ) -> O::Ids {
        self.op("sample", logits);
        self.inner.sample(logits, params, allowed_mask, output_mask)
    }
}
