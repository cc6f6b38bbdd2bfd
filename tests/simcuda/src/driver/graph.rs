//! Graphs: captured work that can be launched repeatedly.

use std::sync::Arc;

use super::code::{CuResult, Failure};
use super::objects::{Graph, StreamWork};
use super::state::Driver;

impl Driver {
    fn graph(&self, handle: u64) -> Result<Arc<Graph>, Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no graph {handle:#x}"));
        self.graphs.get(&handle).cloned().ok_or_else(missing)
    }

    /// Creates an executable graph; returns its handle.
    pub fn instantiate(&mut self, handle: u64) -> Result<u64, Failure> {
        let graph = self.graph(handle)?;
        let handle = self.handle();
        self.executables.insert(handle, graph);
        Ok(handle)
    }

    /// Enqueues a graph's work on a stream.
    pub fn launch_graph(&mut self, handle: u64, stream: u64) -> Result<(), Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no graph {handle:#x} to launch"));
        let graph = self.executables.get(&handle).cloned().ok_or_else(missing)?;
        self.submit(stream, StreamWork::Graph(graph))
    }

    /// Destroys a graph.
    pub fn destroy_graph(&mut self, handle: u64) -> Result<(), Failure> {
        self.graph(handle)?;
        self.graphs.remove(&handle);
        Ok(())
    }

    /// Destroys an executable graph; its enqueued launches stay.
    pub fn destroy_executable(&mut self, handle: u64) -> Result<(), Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no graph {handle:#x} to launch"));
        self.executables.remove(&handle).map(drop).ok_or_else(missing)
    }
}
