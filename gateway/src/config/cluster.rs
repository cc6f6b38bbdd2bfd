//! Settings of a node that shares calls with others.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// Settings of a cluster. Without servers of NATS the server is alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// URLs of the servers of NATS that carry the nodes' messages, such as `nats://127.0.0.1:4222`.
    pub nats: Vec<String>,
    /// User at these servers.
    pub nats_user: Option<String>,
    /// Password of that user.
    pub nats_password: Option<Secret>,
    /// PEM file of certificates to trust beside the system's.
    pub nats_certificates: Option<PathBuf>,
    /// Secret that all nodes share; it signs their messages and requests.
    pub secret: Option<Secret>,
    /// Another secret that is accepted too, while the nodes change theirs.
    pub accepted_secret: Option<Secret>,
    /// Name of this node, which no other node has; `None` for the machine's name with the port.
    pub name: Option<String>,
    /// Name of the set of nodes that share calls.
    pub cell: String,
    /// Zone that the node stands in; calls stay in it while they can. Empty for none.
    pub zone: String,
    /// Host and port at which other nodes reach this one; `None` for the address that it listens on.
    pub advertised: Option<String>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            nats: Vec::new(),
            nats_user: None,
            nats_password: None,
            nats_certificates: None,
            secret: None,
            accepted_secret: None,
            name: None,
            cell: "main".to_owned(),
            zone: String::new(),
            advertised: None,
        }
    }
}

impl ClusterConfig {
    /// True if the server is to be a node of a cluster.
    pub fn is_set(&self) -> bool {
        !self.nats.is_empty()
    }
}
