//! [`StepOps`]: operations over an uploaded row spec, and whole steps.

use std::sync::Arc;

use cudarc::driver::CudaEvent;

use super::Cuda;
use super::device::DeviceStream;
use super::graphs::Graphs;
use super::memory::{Buffer, EventPool, HostPool, PinnedBuffer};
use super::tensor::{CudaBatch, CudaIndex, CudaState, Tensor};
use super::weight::Weight;
use crate::ops::NO_ID;
use crate::row_spec::{BatchSection, NO_ROW, RowSpec, SpecSection};
use crate::step_ops::{self, ReadBack, StepFn, StepKey, StepOps, StepOutputs, StreamLevel};

/// A launched step. It keeps its page-locked memory until it was waited for.
pub struct LaunchedStep {
    queue: Arc<DeviceStream>,
    events: EventPool,
    /// Event behind its read-back; `None` while it is being launched, and after the wait.
    done: Option<CudaEvent>,
    home: PinnedOwner,
    /// Page-locked memory of the upload and the read-back; `None` once returned.
    pinned: Option<(PinnedBuffer, Option<PinnedBuffer>)>,
    ids: usize,
    numbers: usize,
}

/// Owner of a launch's page-locked memory.
pub(super) enum PinnedOwner {
    /// Pool of all eager steps.
    Pool(HostPool),
    /// Graph of this key.
    Graph(Graphs, StepKey),
}

impl PinnedOwner {
    fn give(&self, up: PinnedBuffer, down: Option<PinnedBuffer>) {
        match (self, down) {
            (Self::Pool(pool), down) => {
                pool.give(up);
                down.into_iter().for_each(|down| pool.give(down));
            }
            (Self::Graph(graphs, key), Some(down)) => graphs.give(*key, (up, down)),
            // A graph always reads something back.
            (Self::Graph(..), None) => {}
        }
    }
}

impl LaunchedStep {
    /// Number of ids and numbers that are read back.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.ids, self.numbers)
    }

    /// Records the step's end on the stream.
    pub(super) fn record_end(&mut self) {
        let event = self.events.take(self.queue.device());
        self.queue.record(&event);
        self.done = Some(event);
    }

    /// Waits for this step only, not for later launches; calls `read` on its outputs and returns the page-locked memory.
    fn finish(&mut self, read: impl FnOnce(&[u32])) {
        if let Some((up, down)) = self.pinned.take() {
            match self.done.take() {
                Some(event) => {
                    self.queue.device().wait(&event);
                    self.events.give(event);
                }
                // Its launch did not complete.
                None => self.queue.synchronize(),
            }
            if let Some(down) = &down {
                read(&down.words()[..self.ids + self.numbers]);
            }
            self.home.give(up, down);
        }
    }
}

impl Drop for LaunchedStep {
    fn drop(&mut self) {
        // A step that panicked or was never collected: its copies may be in progress. On a broken device none is, and a second panic would
        // abort the process.
        if self.pinned.is_some() && !std::thread::panicking() {
            self.finish(|_| {});
        } else if let Some(pinned) = self.pinned.take() {
            self.queue.synchronize_ignoring_errors();
            drop(pinned);
        }
    }
}

impl StepOps for Cuda {
    type Spec = CudaIndex;
    type Index = CudaIndex;
    type Ticket = LaunchedStep;

    fn bucket(&self, rows: usize) -> usize {
        step_ops::bucket(rows)
    }

    fn upload(&self, spec: &RowSpec) -> CudaIndex {
        let words = self.uninit_words(spec.words().len());
        self.queue.write(words.at(), spec.words());
        CudaIndex::new(words, spec.words().len())
    }

    fn index(&self, spec: &CudaIndex, at: SpecSection) -> CudaIndex {
        let range = at.range();
        assert!(range.end <= spec.len, "a list of another layout");
        CudaIndex { words: spec.words.clone(), start: range.start, len: range.len() }
    }

    fn floats(&self, spec: &CudaIndex, at: SpecSection, columns: usize) -> Tensor {
        let from = self.index(spec, at);
        let rows = from.len.checked_div(columns).unwrap_or(0);
        assert_eq!(rows * columns, from.len, "values do not fill whole rows");
        let out = self.uninit_tensor(rows, columns);
        self.queue.copy(out.at(), from.at(), size_of::<f32>() * from.len);
        out
    }

    fn batch_at(&self, spec: &CudaIndex, at: BatchSection) -> CudaBatch {
        let words = self.index(spec, at.words());
        CudaBatch { sequences: words.len / at.stride(), stride: at.stride(), words }
    }

    fn read_index(&self, index: &CudaIndex) -> Vec<u32> {
        let mut numbers = vec![0; index.len];
        self.queue.read(index.at(), &mut numbers);
        numbers
    }

    fn gather_at(&self, x: &Tensor, at: &CudaIndex) -> Tensor {
        self.gathered(x.at(), false, x.columns, at)
    }

    fn scatter_at(&self, x: Tensor, at: &CudaIndex, rows: &Tensor) -> Tensor {
        assert_eq!(x.columns, rows.columns, "widths differ");
        self.scatter(x.at(), x.columns, at, rows);
        x
    }

    fn embed_at(&self, table: &Weight, ids: &CudaIndex) -> Tensor {
        // One value marks both "no row" and "no id".
        const { assert!(NO_ROW == NO_ID) };
        let table = table.table();
        self.gathered(table.memory.at, table.kind.is_bf16(), table.columns, ids)
    }

    fn store(&self, state: &mut CudaState, at: &CudaIndex, rows: &Tensor) {
        let (to, columns) = state.rows();
        assert_eq!(columns, rows.columns, "widths differ");
        self.scatter(to, columns, at, rows);
    }

    fn load(&self, state: &CudaState, at: &CudaIndex) -> Tensor {
        let (from, columns) = state.rows();
        self.gathered(from, false, columns, at)
    }

    fn overlay(&self, x: Tensor, state: &CudaState, at: &CudaIndex) -> Tensor {
        let (from, columns) = state.rows();
        assert_eq!(columns, x.columns, "widths differ");
        let count = at.len.min(x.rows) * columns;
        self.each(&self.queue.kernels().overlay_rows_f32, count, &[from, at.at(), x.at(), columns as u64]);
        x
    }

    fn segment_attention_at(&self, q: &Tensor, k: &Tensor, v: &Tensor, segments: &CudaIndex, heads: usize) -> Tensor {
        self.within_segments(q, k, v, segments, heads)
    }

    fn segment_conv1d_at(&self, x: &Tensor, weight: &Weight, bias: &Weight, segments: &CudaIndex) -> Tensor {
        self.centred(x, weight, bias, segments)
    }

    fn segment_snake_at(
        &self,
        x: &Tensor,
        alpha: &Weight,
        beta: &Weight,
        filter: &Weight,
        segments: &CudaIndex,
    ) -> Tensor {
        self.resampled_snake(x, (alpha, beta), filter, segments)
    }

    fn conv1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut CudaState,
        streams: &StreamLevel<CudaIndex>,
    ) -> Tensor {
        self.causal(x, weight, bias, tail, streams)
    }

    fn conv_transpose1d_at(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut CudaState,
        streams: &StreamLevel<CudaIndex>,
    ) -> Tensor {
        self.transposed(x, weight, bias, tail, streams)
    }

    fn sample_at(
        &self,
        logits: &Tensor,
        params: &CudaIndex,
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut CudaState>,
    ) -> CudaIndex {
        self.sample_ids(logits, params, allowed_mask, output_mask)
    }

    fn launch(&self, key: StepKey, spec: &RowSpec, step: StepFn<'_, Self>) -> LaunchedStep {
        match &self.graphs {
            Some(graphs) => graphs.launch(self, key, spec, step),
            None => self.launch_eager(spec, step),
        }
    }

    fn eager_steps(&self) -> Option<u64> {
        self.graphs.as_ref().map(Graphs::eager)
    }

    fn collect(&self, mut ticket: LaunchedStep, back: &mut ReadBack) {
        back.clear();
        let ids = ticket.ids;
        ticket.finish(|words| {
            let (ids, numbers) = words.split_at(ids);
            back.ids.extend_from_slice(ids);
            back.numbers.extend(numbers.iter().map(|&bits| f32::from_bits(bits)));
        });
    }

    fn reset_at(&self, state: &mut CudaState, slots: &CudaIndex) {
        let (flags, vocabulary) = state.mask();
        self.each(&self.queue.kernels().clear_rows_u8, slots.len * vocabulary, &[flags, slots.at(), vocabulary as u64]);
    }
}

impl Cuda {
    pub(super) fn ticket(
        &self,
        home: PinnedOwner,
        pinned: (PinnedBuffer, Option<PinnedBuffer>),
        (ids, numbers): (usize, usize),
    ) -> LaunchedStep {
        let (queue, events) = (Arc::clone(&self.queue), self.events.clone());
        LaunchedStep { queue, events, done: None, home, pinned: Some(pinned), ids, numbers }
    }

    /// Launches a step eagerly, operation by operation.
    pub(super) fn launch_eager(&self, spec: &RowSpec, step: StepFn<'_, Self>) -> LaunchedStep {
        let (device, words) = (self.queue.device(), spec.words().len());
        let mut up = self.host.take(device, words);
        up.words_mut()[..words].copy_from_slice(spec.words());
        let mut ticket = self.ticket(PinnedOwner::Pool(self.host.clone()), (up, None), (0, 0));
        if let Some((up, place)) = &mut ticket.pinned {
            let (sizes, all) = self.enqueue_step(up, words, step);
            (ticket.ids, ticket.numbers) = sizes;
            let mut down = self.host.take(device, sizes.0 + sizes.1);
            self.queue.download(&mut down, all.at(), sizes.0 + sizes.1);
            *place = Some(down);
        }
        ticket.record_end();
        ticket
    }

    /// Enqueues the upload of a row spec of `words` words and a step's operations, and concatenates its outputs, so that one copy reads
    /// them back. Returns the number of ids and of numbers, and the outputs.
    pub(super) fn enqueue_step(
        &self,
        up: &PinnedBuffer,
        words: usize,
        step: StepFn<'_, Self>,
    ) -> ((usize, usize), Buffer) {
        let spec = self.uninit_words(words);
        self.queue.upload(spec.at(), up, words);
        let mut outputs = StepOutputs::default();
        step(self, &CudaIndex::new(spec, words), &mut outputs);
        let sizes =
            (outputs.ids.iter().map(|index| index.len).sum(), outputs.rows.iter().map(Tensor::len).sum::<usize>());
        let ids = outputs.ids.iter().map(|index| (index.at(), index.len));
        let parts = ids.chain(outputs.rows.iter().map(|rows| (rows.at(), rows.len())));
        let all = self.uninit_words(sizes.0 + sizes.1);
        let mut at = all.at();
        for (from, len) in parts {
            self.queue.copy(at, from, len * size_of::<u32>());
            at += (len * size_of::<u32>()) as u64;
        }
        (sizes, all)
    }

    /// Copies row `i` of `rows` to row `at[i]` of the rows at address `to`.
    fn scatter(&self, to: u64, columns: usize, at: &CudaIndex, rows: &Tensor) {
        let count = at.len.min(rows.rows) * columns;
        self.each(&self.queue.kernels().scatter_rows_f32, count, &[rows.at(), at.at(), to, columns as u64]);
    }
}
