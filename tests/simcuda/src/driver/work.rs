//! Stream work, and its execution.

use super::host::HostRange;
use super::objects::{StreamWork, UploadSource};
use super::state::Driver;
use crate::fault::{Fault, FaultKind};
use crate::run;

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
