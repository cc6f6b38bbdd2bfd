//! What can be put on a stream, and how it is carried out.

use std::sync::Arc;

use super::graph::Graph;
use super::{Driver, HostRange};
use crate::fault::{Fault, FaultKind};
use crate::run::{self, Launch};

/// Where an upload comes from.
#[derive(Clone, Debug)]
pub enum UploadSource {
    /// Bytes that were read when the copy was asked for.
    Bytes(Vec<u8>),
    /// Page-locked memory, read when the copy's turn has come.
    Pinned(HostRange),
}

/// One piece of work.
#[derive(Clone, Debug)]
pub enum StreamWork {
    /// A kernel.
    Launch(Launch),
    /// Host to device.
    Upload {
        /// Device address.
        to: u64,
        /// Where the bytes are.
        from: UploadSource,
    },
    /// Device to host.
    Download {
        /// Host memory.
        to: HostRange,
        /// Device address.
        from: u64,
        /// Whether the host memory is page-locked.
        pinned: bool,
    },
    /// Device to device.
    Copy {
        /// Device address.
        to: u64,
        /// Device address.
        from: u64,
        /// Bytes.
        length: usize,
    },
    /// One byte's value, many times.
    Fill {
        /// Device address.
        to: u64,
        /// The value.
        value: u8,
        /// Bytes.
        length: usize,
    },
    /// Frees an allocation.
    Free(u64),
    /// Completes an event's record with this number.
    Record {
        /// The event.
        event: u64,
        /// Which of its records.
        number: u64,
    },
    /// Waits for an event's record with this number, which was put on the stream `home`.
    Wait {
        /// The event.
        event: u64,
        /// Which of its records.
        number: u64,
        /// The stream of the record.
        home: u64,
    },
    /// A graph's nodes.
    Graph(Arc<Graph>),
}

impl Driver {
    /// Carries out anything but a record or a wait, which belong to the queues.
    pub(super) fn execute(&mut self, work: &StreamWork) -> Result<(), Fault> {
        match work {
            StreamWork::Launch(launch) => run::run(launch, &mut self.memory),
            StreamWork::Upload { to, from: UploadSource::Bytes(bytes) } => self.memory.write(*to, bytes).map_err(copying),
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
