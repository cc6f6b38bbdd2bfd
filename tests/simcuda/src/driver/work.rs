//! Stream work, and its execution.

use std::sync::Arc;

use super::graph::Graph;
use super::{Driver, HostRange};
use crate::fault::{Fault, FaultKind};
use crate::run::{self, Launch};

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

impl Driver {
    /// Runs any work but records and waits, which the queues handle.
    pub(super) fn execute(&mut self, work: &StreamWork) -> Result<(), Fault> {
        match work {
            StreamWork::Launch(launch) => run::run(launch, &mut self.memory),
            StreamWork::Upload { to, from: UploadSource::Bytes(bytes) } => {
                self.memory.write(*to, bytes).map_err(copying)
            }
            StreamWork::Upload { to, from: UploadSource::Pinned(range) } => {
                self.still_pinned(*range)?;
                self.memory.write(*to, &range.read()).map_err(copying)
            }
            StreamWork::Download { to, from, pinned } => {
                if *pinned {
                    self.still_pinned(*to)?;
                }
                let mut bytes = vec![0; to.length()];
                self.memory.read(*from, &mut bytes).map_err(copying)?;
                to.write(&bytes);
                Ok(())
            }
            StreamWork::Copy { to, from, length } => self.memory.copy(*to, *from, *length).map_err(copying),
            StreamWork::Fill { to, value, length } => self.memory.write(*to, &vec![*value; *length]).map_err(copying),
            StreamWork::Free(address) if self.memory.free(*address) => Ok(()),
            StreamWork::Free(address) => {
                Err(Fault::new(FaultKind::UseAfterFree, format!("{address:#x} is no allocation that can be freed")))
            }
            StreamWork::Graph(graph) => {
                for node in graph.order() {
                    self.execute(node).map_err(|fault| fault.at("replay of a graph"))?;
                }
                Ok(())
            }
            StreamWork::Record { .. } | StreamWork::Wait { .. } => Ok(()),
        }
    }

    fn still_pinned(&self, range: HostRange) -> Result<(), Fault> {
        if self.is_pinned(range) {
            return Ok(());
        }
        let text = format!("a copy needs page-locked memory at {:#x}, which is freed", range.address());
        Err(Fault::new(FaultKind::HostMemory, text))
    }
}

fn copying(fault: Fault) -> Fault {
    fault.at("a copy")
}
