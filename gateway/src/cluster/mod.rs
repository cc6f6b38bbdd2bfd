//! Membership of a cluster: a task that keeps the table of nodes, and the bus that carries its messages.
//!
//! - `bus`: the trait of a bus, and one within this process
//! - `directory`: the table, shared by the requests, and the task that feeds it
//! - `membership`: the table and the signatures, for the requests

pub mod bus;
pub mod directory;
pub mod membership;

use repartee_cluster::ClusterSecrets;

use self::bus::Bus;

/// Membership that a server asks for.
pub struct ClusterMember {
    /// Name of this node, which no other node has.
    pub name: String,
    /// Name of the set of nodes that share calls.
    pub cell: String,
    /// Zone that the node stands in; empty for none.
    pub zone: String,
    /// Host and port at which other nodes reach this one; `None` for the address that it listens on.
    pub advertised: Option<String>,
    /// Secrets that the nodes share.
    pub secrets: ClusterSecrets,
    /// Connection to the other nodes.
    pub bus: Box<dyn Bus>,
}

impl std::fmt::Debug for ClusterMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterMember").field("name", &self.name).field("cell", &self.cell).finish_non_exhaustive()
    }
}
