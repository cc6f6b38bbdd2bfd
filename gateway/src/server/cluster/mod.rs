//! Requests of a cluster: a new call goes to a node with a free slot, a request for a call to the node that owns it.
//!
//! - `membership`: joining and leaving, and the load that this node tells
//! - `routing`: the node of each request
//! - `forward`: requests to another node, and tunnels of websockets
//! - `keys`: ephemeral keys that every node checks
//! - `metrics`: the cluster for Prometheus
//! - `nodes`: the list of nodes
//! - `hops`: requests that another node has forwarded

mod forward;
pub(super) mod hops;
pub(super) mod keys;
pub(super) mod membership;
pub(super) mod metrics;
pub(super) mod nodes;
pub(super) mod routing;
