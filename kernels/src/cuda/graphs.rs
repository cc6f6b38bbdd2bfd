//! Capture of steps as CUDA graphs, and replay.
//!
//! The first launch of a key runs eagerly, operation by operation, then captures the same operations, which computes nothing. Every later
//! launch is one driver call: the upload of the row spec, all operations and the read-back are nodes of the graph. They use page-locked
//! memory that the graph owns.
//!
//! A graph replays with the addresses of its capture. Steps take their buffers from an arena of their own, so the operations of a key get
//! the same buffers each time, and a capture allocates nothing. A tensor that outlives its step would be overwritten by a replay, so such a
//! step panics. Graphs of one stream share these buffers: they run one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::CudaGraph;

use super::Cuda;
use super::memory::{Arena, PinnedBuffer};
use super::step::{LaunchedStep, PinnedOwner};
use crate::row_spec::RowSpec;
use crate::step_ops::{StepFn, StepKey};

/// Largest number of graphs of a stream; steps of further keys are launched eagerly.
const MAX_GRAPHS: usize = 128;

/// Captured graphs of a stream, and the buffers of its steps. Clones share them.
#[derive(Clone)]
pub struct Graphs {
    arena: Arena,
    known: Arc<Mutex<CapturedGraphs>>,
}

#[derive(Default)]
struct CapturedGraphs {
    graphs: HashMap<StepKey, Captured>,
    /// Number of eager launches.
    eager: u64,
}

struct Captured {
    graph: Graph,
    /// Words of its row spec.
    words: usize,
    /// Ids that it reads back.
    ids: usize,
    numbers: usize,
    /// Page-locked memory of the upload and the read-back; `None` until a launch is collected.
    pinned: Option<(PinnedBuffer, PinnedBuffer)>,
}

/// An executable graph.
pub struct Graph(pub(super) CudaGraph);

// SAFETY: a graph must not be used by two threads at once, and only the lock of `CapturedGraphs` gives access to it.
unsafe impl Send for Graph {}

impl Graphs {
    pub(super) fn new(arena: Arena) -> Self {
        Self { arena, known: Arc::default() }
    }

    /// Locks, also after a panic: a step that panicked leaves the graphs unchanged.
    fn lock(&self) -> MutexGuard<'_, CapturedGraphs> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of eager launches, the first of each key included.
    pub(super) fn eager(&self) -> u64 {
        self.lock().eager
    }

    /// Returns the page-locked memory of a collected launch to its graph.
    pub(super) fn give(&self, key: StepKey, pinned: (PinnedBuffer, PinnedBuffer)) {
        if let Some(captured) = self.lock().graphs.get_mut(&key) {
            captured.pinned = Some(pinned);
        }
    }

    /// Launches a step: replays its graph, or runs it eagerly and captures it.
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
