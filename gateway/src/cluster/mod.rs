//! Membership of a cluster: a task that keeps the table of nodes, and the bus that carries its messages.
//!
//! - `bus`: the trait of a bus, and one within this process
//! - `nats`: a bus over NATS, between processes
//! - `directory`: the table, shared by the requests, and the task that feeds it
//! - `membership`: the table and the signatures, for the requests
//! - `metrics`: metrics of the cluster, registered once
//! - `pool`: connections to other nodes
//! - `session_cache`: sessions of ephemeral keys that other nodes have issued

pub mod bus;
pub mod directory;
pub mod membership;
pub mod metrics;
pub mod nats;
pub mod pool;
pub mod session_cache;

use std::net::SocketAddr;

use repartee_cluster::ClusterSecrets;

use self::bus::Bus;
use self::nats::{NatsBus, NatsServers};
use crate::config::{ClusterConfig, ConfigError, Secret};

/// Environment variable of tests: the node writes messages as the version before does.
pub const PREVIOUS_BEATS: &str = "REPARTEE_TEST_PREVIOUS_BEATS";

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
    /// True for messages as the version before writes them, so that tests can roll from it to this one.
    pub has_previous_beats: bool,
}

impl ClusterMember {
    /// Member over NATS that these settings of a server at `address` describe; `None` if they name no servers of NATS. Fails if
    /// the secrets cannot be used, which [`Config::check`](crate::config::Config::check) tells before.
    pub fn from_config(config: &ClusterConfig, address: SocketAddr) -> Result<Option<Self>, ConfigError> {
        if !config.is_set() {
            return Ok(None);
        }
        let expose = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
        let (signs, accepted) = (expose(&config.secret).unwrap_or_default(), expose(&config.accepted_secret));
        let secrets = ClusterSecrets::new(&signs, accepted.as_deref())
            .map_err(|error| ConfigError::Value { path: "cluster.secret", problem: error.to_string() })?;
        let name = config.name.clone().unwrap_or_else(|| default_name(address));
        let servers = NatsServers {
            urls: config.nats.clone(),
            login: config.nats_user.clone().zip(expose(&config.nats_password)),
            certificates: config.nats_certificates.clone(),
        };
        Ok(Some(Self {
            bus: Box::new(NatsBus::new(servers, &name, &config.cell)),
            name,
            cell: config.cell.clone(),
            zone: config.zone.clone(),
            advertised: config.advertised.clone(),
            secrets,
            has_previous_beats: std::env::var_os(PREVIOUS_BEATS).is_some(),
        }))
    }
}

/// Name of a node that listens on `address`: the machine's name with the port, or the address if that is unknown.
fn default_name(address: SocketAddr) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine: String = machine.trim().chars().filter(char::is_ascii_graphic).take(48).collect();
    if machine.is_empty() { address.to_string() } else { format!("{machine}-{}", address.port()) }
}

impl std::fmt::Debug for ClusterMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterMember").field("name", &self.name).field("cell", &self.cell).finish_non_exhaustive()
    }
}
