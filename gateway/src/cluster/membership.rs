//! Part of this node in a cluster, shared by all requests.

use std::sync::Arc;

use repartee_cluster::HopSigner;

use super::directory::Directory;

/// This node's part in a cluster.
#[derive(Debug)]
pub struct Membership {
    /// Table of nodes.
    pub directory: Arc<Directory>,
    /// Signer of forwarded requests.
    pub hops: HopSigner,
}
