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

use super::arena::Arena;
use super::memory::PinnedBuffer;
use super::stream::Graph;
use crate::step::StepKey;

/// Largest number of graphs of a stream; steps of further keys are launched eagerly.
pub(super) const MAX_GRAPHS: usize = 128;

/// Captured graphs of a stream, and the buffers of its steps. Clones share them.
#[derive(Clone)]
pub struct Graphs {
    pub(super) arena: Arena,
    known: Arc<Mutex<CapturedGraphs>>,
}

#[derive(Default)]
pub(super) struct CapturedGraphs {
    pub(super) graphs: HashMap<StepKey, Captured>,
    /// Number of eager launches.
    pub(super) eager: u64,
}

pub(super) struct Captured {
    pub(super) graph: Graph,
    /// Words of its row spec.
    pub(super) words: usize,
    /// Ids that it reads back.
    pub(super) ids: usize,
    pub(super) numbers: usize,
    /// Page-locked memory of the upload and the read-back; `None` until a launch is collected.
    pub(super) pinned: Option<(PinnedBuffer, PinnedBuffer)>,
}

impl Graphs {
    pub(super) fn new(arena: Arena) -> Self {
        Self { arena, known: Arc::default() }
    }

    /// Locks, also after a panic: a step that panicked leaves the graphs unchanged.
    pub(super) fn lock(&self) -> MutexGuard<'_, CapturedGraphs> {
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

    pub(super) fn check_returned(&self) {
        assert_eq!(
            self.arena.in_use(),
            0,
            "a step keeps tensors beyond its end, where the next one would overwrite them"
        );
    }
}
