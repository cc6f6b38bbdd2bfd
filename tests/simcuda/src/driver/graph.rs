//! Graphs: captured work that can be replayed.

use std::sync::Arc;

use super::{CuResult, Driver, Failure, StreamWork};

/// One piece of work and the nodes that it comes behind.
#[derive(Clone, Debug)]
pub struct Node {
    /// The work, with the addresses that it was captured with.
    pub work: StreamWork,
    /// Nodes that come before it.
    pub dependencies: Vec<usize>,
}

/// A captured graph.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// A graph of nodes, each behind earlier ones.
    pub fn new(nodes: Vec<Node>) -> Self {
        Self { nodes }
    }

    /// Which nodes come before some, or are among them.
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

    /// The work in an order that the nodes allow: always the youngest one that is possible, so that a wait which is missing
    /// shows.
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

    /// Makes a graph that can be launched.
    pub fn instantiate(&mut self, handle: u64) -> Result<u64, Failure> {
        let graph = self.graph(handle)?;
        let handle = self.handle();
        self.executables.insert(handle, graph);
        Ok(handle)
    }

    /// Puts a graph's work on a stream.
    pub fn launch_graph(&mut self, handle: u64, stream: u64) -> Result<(), Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no graph {handle:#x} to launch"));
        let graph = self.executables.get(&handle).cloned().ok_or_else(missing)?;
        self.submit(stream, StreamWork::Graph(graph))
    }

    /// Forgets a graph.
    pub fn destroy_graph(&mut self, handle: u64) -> Result<(), Failure> {
        self.graph(handle)?;
        self.graphs.remove(&handle);
        Ok(())
    }

    /// Forgets a graph that can be launched; launches that are on a stream stay.
    pub fn destroy_executable(&mut self, handle: u64) -> Result<(), Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no graph {handle:#x} to launch"));
        self.executables.remove(&handle).map(drop).ok_or_else(missing)
    }
}
