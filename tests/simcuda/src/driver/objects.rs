//! Objects behind handles: streams, events, kernels, captures and graphs, and the work that they hold.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::host::HostRange;
use crate::kernel::Kernel;
use crate::run::Launch;

/// Handle of the default stream, as in CUDA.
pub const DEFAULT_STREAM: u64 = 0;

/// Source of an upload.
#[derive(Clone, Debug)]
pub enum UploadSource {
    /// Bytes that were read at the call.
    Bytes(Vec<u8>),
    /// Page-locked memory, read when the copy runs.
    Pinned(HostRange),
}

/// One piece of stream work.
#[derive(Clone, Debug)]
pub enum StreamWork {
    /// Launch of a kernel.
    Launch(Launch),
    /// Copy from host to device.
    Upload {
        /// Device address of the destination.
        to: u64,
        /// Bytes, or their host memory.
        from: UploadSource,
    },
    /// Copy from device to host.
    Download {
        /// Host memory of the destination.
        to: HostRange,
        /// Device address of the source.
        from: u64,
        /// True if the host memory is page-locked.
        pinned: bool,
    },
    /// Copy from device to device.
    Copy {
        /// Device address of the destination.
        to: u64,
        /// Device address of the source.
        from: u64,
        /// Length in bytes.
        length: usize,
    },
    /// Fill with one byte's value.
    Fill {
        /// Device address of the destination.
        to: u64,
        /// Value of each byte.
        value: u8,
        /// Length in bytes.
        length: usize,
    },
    /// Frees the allocation at this address.
    Free(u64),
    /// Completes an event's record with this number.
    Record {
        /// Handle of the event.
        event: u64,
        /// Number of the record.
        number: u64,
    },
    /// Waits for an event's record with this number, which is enqueued on the stream `home`.
    Wait {
        /// Handle of the event.
        event: u64,
        /// Number of the record.
        number: u64,
        /// Stream of the record.
        home: u64,
    },
    /// Launch of a graph.
    Graph(Arc<Graph>),
}

/// One piece of work and its dependencies.
#[derive(Clone, Debug)]
pub struct Node {
    /// Work, with the addresses of its capture.
    pub work: StreamWork,
    /// Indices of nodes that come before it.
    pub dependencies: Vec<usize>,
}

/// A captured graph.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// Creates a graph; each node depends on earlier ones only.
    pub fn new(nodes: Vec<Node>) -> Self {
        Self { nodes }
    }

    /// Marks `some` nodes and all that they depend on.
    pub fn before(&self, some: &[usize]) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        some.iter().for_each(|node| found[*node] = true);
        for index in (0..self.nodes.len()).rev() {
            if found[index] {
                self.nodes[index].dependencies.iter().for_each(|before| found[*before] = true);
            }
        }
        found
    }

    /// Returns the work in an order that the dependencies allow, always the latest ready node first, so that a missing dependency shows.
    pub fn order(&self) -> impl Iterator<Item = &StreamWork> {
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        let mut done = vec![false; self.nodes.len()];
        std::iter::from_fn(move || {
            let ready = |index: &usize| self.nodes[*index].dependencies.iter().all(|before| done[*before]);
            let at = left.iter().rposition(ready)?;
            let index = left.remove(at);
            done[index] = true;
            Some(&self.nodes[index].work)
        })
    }
}

/// Scope of a capture's restrictions, as `CUstreamCaptureMode` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Restricts all threads.
    Global,
    /// Restricts the thread that began it.
    ThreadLocal,
    /// Restricts calls on captured streams only.
    Relaxed,
}

/// A capture in progress.
#[derive(Debug)]
pub struct Capture {
    pub(super) origin: u64,
    pub(super) mode: CaptureMode,
    pub(super) thread: u64,
    /// Reason of its invalidation.
    pub(super) invalidated: Option<String>,
    pub(super) nodes: Vec<Node>,
    /// Dependencies of each stream's next node.
    pub(super) tips: BTreeMap<u64, Vec<usize>>,
}

/// A stream: its queue and its capture.
#[derive(Debug, Default)]
pub struct Stream {
    /// Work that nothing has waited for.
    pub queue: VecDeque<StreamWork>,
    /// True if it is ordered with the default stream.
    pub blocking: bool,
    /// Capture that it takes part in.
    pub capture: Option<u64>,
}

/// An event and its records.
#[derive(Debug, Default)]
pub struct Event {
    /// Number of the last record; 0 if there is none.
    pub number: u64,
    /// Number of the last completed record.
    pub done: u64,
    /// Stream of the last record.
    pub home: u64,
    /// Capture of its last record, and the nodes that it depends on.
    pub captured: Option<(u64, Vec<usize>)>,
}

/// A kernel behind a handle.
pub struct Function {
    pub(super) kernel: Arc<Kernel>,
    /// Bytes of dynamic shared memory that were requested in advance.
    pub(super) most_dynamic: usize,
}
