//! Requests of a cluster: a new call goes to a node with a free slot, a request for a call to the node that owns it.
//!
//! - `membership`: joining and leaving, and the load that this node tells
//! - `routing`: the node of each request
//! - `destination`: which node a request belongs to
//! - `ask`: questions of one node to another
//! - `forward`: requests to another node, and tunnels of websockets
//! - `keys`: ephemeral keys that every node checks
//! - `key_use`: limits of keys over all nodes
//! - `voices`: recorded voices of all nodes
//! - `metrics`: the cluster for Prometheus
//! - `nodes`: the list of nodes
//! - `hops`: requests that another node has forwarded

mod ask;
mod destination;
mod forward;
pub(super) mod hops;
pub(super) mod key_use;
pub(super) mod keys;
pub(super) mod membership;
pub(super) mod metrics;
pub(super) mod nodes;
pub(super) mod routing;
pub(super) mod voices;
