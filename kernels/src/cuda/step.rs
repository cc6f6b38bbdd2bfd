//! Whole steps: eager launches, capture, replay, and read-back.

use std::sync::Arc;

use cudarc::driver::CudaEvent;

use super::arena::{Buffer, EventPool, HostPool};
use super::device::Cuda;
use super::graphs::{Captured, Graphs, MAX_GRAPHS};
use super::memory::PinnedBuffer;
use super::stream::DeviceStream;
use super::tensor::{CudaIndex, Tensor};
use crate::ops::{StepFn, StepOutputs};
use crate::row_spec::RowSpec;
use crate::step::{ReadBack, StepKey};

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

    /// Waits for this step, then fills `back` with its outputs.
    pub(super) fn collect(mut self, back: &mut ReadBack) {
        back.clear();
        let ids = self.ids;
        self.finish(|words| {
            let (ids, numbers) = words.split_at(ids);
            back.ids.extend_from_slice(ids);
            back.numbers.extend(numbers.iter().map(|&bits| f32::from_bits(bits)));
        });
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

    /// Launches a step: replays its graph, or runs it eagerly and captures it.
    pub(super) fn launch_captured(
        &self,
        graphs: &Graphs,
        key: StepKey,
        spec: &RowSpec,
        step: StepFn<'_, Self>,
    ) -> LaunchedStep {
        let mut known = graphs.lock();
        let words = spec.words().len();
        let captured = known.graphs.get_mut(&key).filter(|captured| captured.words == words);
        if let Some(Captured { graph, pinned, ids, numbers, .. }) = captured
            && let Some((mut up, down)) = pinned.take()
        {
            up.words_mut()[..words].copy_from_slice(spec.words());
            self.queue.replay(graph);
            let mut ticket = self.ticket(PinnedOwner::Graph(graphs.clone(), key), (up, Some(down)), (*ids, *numbers));
            ticket.record_end();
            return ticket;
        }
        known.eager += 1;
        let own = Self { arena: graphs.arena.clone(), ..self.clone() };
        let ticket = own.launch_eager(spec, step);
        graphs.check_returned();
        if !known.graphs.contains_key(&key) && known.graphs.len() < MAX_GRAPHS {
            known.graphs.insert(key, own.capture(words, ticket.sizes(), step));
            graphs.check_returned();
        }
        ticket
    }

    /// Captures a step that was launched before, with a row spec of `words` words and `ids` and `numbers` outputs.
    fn capture(&self, words: usize, (ids, numbers): (usize, usize), step: StepFn<'_, Self>) -> Captured {
        let device = self.queue.device();
        let (up, mut down) = (PinnedBuffer::new(device, words), PinnedBuffer::new(device, ids + numbers));
        let capture = self.queue.begin_capture();
        let (sizes, all) = self.enqueue_step(&up, words, step);
        assert_eq!(sizes, (ids, numbers), "a step of one key gives out as much each time");
        self.queue.download(&mut down, all.at(), ids + numbers);
        drop(all);
        Captured { graph: capture.end(), words, ids, numbers, pinned: Some((up, down)) }
    }
}
