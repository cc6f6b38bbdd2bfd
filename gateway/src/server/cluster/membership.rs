//! Joining and leaving a cluster, and the load that this node tells.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use repartee_cluster::{
    BeatCodec, HopSigner, KeySigner, KeySpent, KeyUse, NodeHome, NodeLoad, NodePhase, NodeRecord, Table, TableInput,
};
use thiserror::Error;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::super::app::AppState;
use super::super::readiness::ServerPhase;
use super::{key_use, voices};
use crate::cluster::ClusterMember;
use crate::cluster::directory::{Directory, LocalNode};
use crate::cluster::membership::Membership;
use crate::cluster::metrics::ClusterMetrics;
use crate::cluster::pool::ConnectionPool;
use crate::cluster::session_cache::SessionCache;

/// Error of joining a cluster.
#[derive(Debug, Error)]
pub(in crate::server) enum JoinError {
    /// The node's tag is none: a bug.
    #[error("the tag of this process is no tag of a node: {0}")]
    Tag(#[from] repartee_cluster::TagError),
    /// The record of this node cannot be sent.
    #[error("cluster: {0}")]
    Record(#[from] repartee_cluster::RecordError),
    /// The metrics cannot be set up: a bug.
    #[error("cannot set up the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// This node for its directory. Weak, because the directory is part of it.
struct ServedNode(Weak<AppState>);

impl LocalNode for ServedNode {
    fn load(&self) -> NodeLoad {
        self.0.upgrade().map_or(NodeLoad::default(), |app| load(&app))
    }

    fn keys(&self) -> Vec<KeyUse> {
        self.0.upgrade().map_or(Vec::new(), |app| key_use::present(&app))
    }

    fn calls_per_key(&self) -> u32 {
        self.0.upgrade().map_or(0, |app| key_use::limit(&app))
    }

    fn voices(&self) -> u32 {
        self.0.upgrade().map_or(0, |app| app.voices.changes())
    }

    fn charge(&self, spent: &[KeySpent]) {
        if let Some(app) = self.0.upgrade() {
            key_use::charge(&app, spent);
        }
    }
}

/// Joins a cluster; returns the task of the directory. `count` is told the number of nodes.
pub(in crate::server) fn join(
    app: &Arc<AppState>,
    address: SocketAddr,
    member: ClusterMember,
    count: watch::Sender<usize>,
) -> Result<JoinHandle<()>, JoinError> {
    let ClusterMember { name, cell, zone, advertised, secrets, bus, has_previous_beats } = member;
    app.voices.set_home(NodeHome::of_name(&name).to_string());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let own = NodeRecord {
        tag: app.ids.tag().parse()?,
        name,
        incarnation: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        address: advertised.unwrap_or_else(|| address.to_string()),
        zone,
        model: app.engine.info().name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        phase: NodePhase::Serving,
        load: load(app),
        keys: Vec::new(),
        voices: 0,
    };
    own.check()?;
    let codec = BeatCodec::new(&secrets, &cell);
    let table = Table::new(own, codec, app.config.limits.call, Instant::now());
    let table = if has_previous_beats { table.with_previous_beats() } else { table };
    let directory = Directory::new(table, count, Box::new(ServedNode(Arc::downgrade(app))));
    // It is set once, because a server runs once.
    let (hops, keys) = (HopSigner::new(&secrets), KeySigner::new(&secrets));
    let metrics = ClusterMetrics::new()?;
    let _ = app.cluster.set(Membership {
        directory: directory.clone(),
        hops,
        keys,
        connections: ConnectionPool::default(),
        sessions: SessionCache::default(),
        copied: Mutex::default(),
        metrics,
    });
    tokio::spawn(voices::keep_copies(Arc::downgrade(app)));
    Ok(tokio::spawn(directory.run(bus)))
}

/// Tells the others that this node takes no new calls.
pub(in crate::server) fn drain(app: &AppState) {
    if let Some(cluster) = app.cluster.get() {
        cluster.directory.input(TableInput::Drain);
    }
}

/// Tells the others that this node ends; `joined` is the task of its directory.
pub(in crate::server) async fn leave(app: &AppState, joined: Option<JoinHandle<()>>) {
    if let (Some(cluster), Some(joined)) = (app.cluster.get(), joined) {
        cluster.directory.leave(joined).await;
    }
}

/// Slots of this server, and those that it would give to a call now.
fn load(app: &AppState) -> NodeLoad {
    let (open, slots) = app.engine.occupancy();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let may_serve = app.readiness.phase() <= ServerPhase::Serving;
    let has_headroom = !app.config.limits.headroom || app.readiness.headroom().admit(None, Instant::now()).is_ok();
    let free = if may_serve && has_headroom { slots.saturating_sub(open) } else { 0 };
    NodeLoad { slots: number(slots), free: number(free), first_packet_p95_ms: None }
}
