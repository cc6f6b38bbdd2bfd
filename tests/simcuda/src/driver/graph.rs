//! Graphs: captured work that can be launched repeatedly.

use std::sync::Arc;

use super::{CuResult, Driver, Failure, StreamWork};

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
