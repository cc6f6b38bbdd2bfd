//! Part of this node in a cluster, shared by all requests.

use std::collections::HashMap;
use std::sync::Arc;

use repartee_cluster::{HopSigner, KeySigner, NodeTag};
use tokio::sync::Mutex;

use super::directory::Directory;
use super::metrics::ClusterMetrics;
use super::pool::ConnectionPool;
use super::session_cache::SessionCache;
use crate::auth::KeyId;

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
    /// Run of each node whose voices this one has taken, and the changes that its list had, by its name.
    pub copied: Mutex<HashMap<String, (NodeTag, u32)>>,
    /// Metrics of the cluster.
    pub metrics: ClusterMetrics,
}

impl Membership {
    /// Slots of the other nodes, and the calls that a key has there.
    pub fn elsewhere(&self, key: Option<KeyId>) -> (usize, u32) {
        self.directory.with(|table, now| {
            let slots = usize::try_from(table.slots_elsewhere(now)).unwrap_or(usize::MAX);
            (slots, table.calls_elsewhere(key_number(key), now))
        })
    }
}

/// Key as beats tell it; 0 for requests without one.
pub fn key_number(key: Option<KeyId>) -> u64 {
    key.map_or(0, u64::from)
}
