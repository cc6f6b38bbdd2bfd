//! Steps that are captured as graphs and replayed.
//!
//! The first launch of a key puts its operations on the stream one by one, then captures the same operations, which computes nothing. Every later
//! launch is one call of the driver: the upload of the row spec, all operations and the read-back are nodes of the graph, between page-locked
//! memory that is the graph's own.
//!
//! A graph has the addresses with which it was captured. Steps take their buffers from an arena that nothing else uses, so that the operations
//! of a key find the same ones each time and nothing is allocated within a capture; a step that keeps a tensor beyond its end would be
//! overwritten by a replay, and panics instead. Graphs of one stream share these buffers: they run one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::CudaGraph;

use super::Cuda;
use super::memory::{Arena, PinnedBuffer};
use super::step::{PinnedOwner, LaunchedStep};
use crate::row_spec::RowSpec;
use crate::step_ops::{StepFn, StepKey};

/// Graphs of a stream at most; steps of further keys are launched operation by operation.
const MAX_GRAPHS: usize = 128;

/// The graphs of a stream, and the buffers of its steps. Clones share them.
#[derive(Clone)]
pub struct Graphs {
    arena: Arena,
    known: Arc<Mutex<CapturedGraphs>>,
}

#[derive(Default)]
struct CapturedGraphs {
    graphs: HashMap<StepKey, Captured>,
    /// Launches that no graph served.
    eager: u64,
}

struct Captured {
    graph: Graph,
    /// Words of its row spec.
    words: usize,
    /// What it reads back.
    ids: usize,
    numbers: usize,
    /// What it copies from and to; `None` while a launch is not collected.
    pinned: Option<(PinnedBuffer, PinnedBuffer)>,
}

/// A graph that can be launched.
pub struct Graph(pub(super) CudaGraph);

// SAFETY: a graph may not be used by two threads at once: it is reached through the lock of `Known` alone.
unsafe impl Send for Graph {}

impl Graphs {
    pub(super) fn new(arena: Arena) -> Self {
        Self { arena, known: Arc::default() }
    }

    /// A step that panicked leaves graphs as they were.
    fn lock(&self) -> MutexGuard<'_, CapturedGraphs> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches that no graph served: the first of each key among them.
    pub(super) fn eager(&self) -> u64 {
        self.lock().eager
    }

    /// Takes back what a launch copied from and to, which was collected.
    pub(super) fn give(&self, key: StepKey, pinned: (PinnedBuffer, PinnedBuffer)) {
        if let Some(captured) = self.lock().graphs.get_mut(&key) {
            captured.pinned = Some(pinned);
        }
    }

    /// Launches a step.
    pub(super) fn launch(&self, ops: &Cuda, key: StepKey, spec: &RowSpec, step: StepFn<'_, Cuda>) -> LaunchedStep {
        let mut known = self.lock();
        let words = spec.words().len();
        let captured = known.graphs.get_mut(&key).filter(|captured| captured.words == words);
        if let Some(Captured { graph, pinned, ids, numbers, .. }) = captured
            && let Some((mut up, down)) = pinned.take()
        {
            up.words_mut()[..words].copy_from_slice(spec.words());
            ops.queue.replay(graph);
            let mut ticket = ops.ticket(PinnedOwner::Graph(self.clone(), key), (up, Some(down)), (*ids, *numbers));
            ticket.record_end();
            return ticket;
        }
        known.eager += 1;
        let ops = Cuda { arena: self.arena.clone(), ..ops.clone() };
        let ticket = ops.launch_eager(spec, step);
        self.check_returned();
        if !known.graphs.contains_key(&key) && known.graphs.len() < MAX_GRAPHS {
            known.graphs.insert(key, ops.capture(words, ticket.sizes(), step));
            self.check_returned();
        }
        ticket
    }

    fn check_returned(&self) {
        assert_eq!(
            self.arena.in_use(),
            0,
            "a step keeps tensors beyond its end, where the next one would overwrite them"
        );
    }
}

impl Cuda {
    /// Captures a step that was launched before, with a row spec of so many words, and gave out as many ids and numbers.
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
