//! Part of this node in a cluster, shared by all requests.

use std::sync::Arc;

use prometheus::IntCounterVec;
use repartee_cluster::{HopSigner, KeySigner};

use super::directory::Directory;
use super::pool::ConnectionPool;

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
    /// Number of requests to other nodes by `outcome`: `answered`, `full` or `failed`.
    pub forwards: IntCounterVec,
}
