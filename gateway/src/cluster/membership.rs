//! Part of this node in a cluster, shared by all requests.

use std::sync::Arc;

use repartee_cluster::{HopSigner, KeySigner};

use super::directory::Directory;
use super::metrics::ClusterMetrics;
use super::pool::ConnectionPool;
use super::session_cache::SessionCache;

/// This node's part in a cluster.
#[derive(Debug)]
pub struct Membership {
    /// Table of nodes.
    pub directory: Arc<Directory>,
    /// Signer of forwarded requests.
    pub hops: HopSigner,
    /// Signer of ephemeral keys.
    pub keys: KeySigner,
    /// Connections to other nodes that wait for a request.
    pub connections: ConnectionPool,
    /// Sessions of keys that other nodes have issued.
    pub sessions: SessionCache,
    /// Metrics of the cluster.
    pub metrics: ClusterMetrics,
}
