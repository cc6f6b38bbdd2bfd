//! Joining and leaving a cluster, and the load that this node tells.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prometheus::{IntCounterVec, Opts};
use repartee_cluster::{BeatCodec, HopSigner, KeySigner, NodeLoad, NodePhase, NodeRecord, Table, TableInput};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::app::AppState;
use super::super::readiness::ServerPhase;
use crate::cluster::ClusterMember;
use crate::cluster::directory::Directory;
use crate::cluster::membership::Membership;
use crate::cluster::pool::ConnectionPool;

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

/// Gives the table this node's present load.
pub(super) fn measure(cluster: &Membership, app: &AppState) {
    cluster.directory.input(TableInput::Load(load(app)));
}

/// Joins a cluster; returns the task of the directory. `count` is told the number of nodes.
pub(in crate::server) fn join(
    app: &Arc<AppState>,
    address: SocketAddr,
    member: ClusterMember,
    count: watch::Sender<usize>,
) -> Result<JoinHandle<()>, JoinError> {
    let ClusterMember { name, cell, zone, advertised, secrets, bus } = member;
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
    };
    own.check()?;
    let codec = BeatCodec::new(&secrets, &cell);
    let directory = Directory::new(Table::new(own, codec, app.config.limits.call, Instant::now()), count);
    // It is set once, because a server runs once.
    let (hops, keys) = (HopSigner::new(&secrets), KeySigner::new(&secrets));
    let forwards = Opts::new("repartee_cluster_forwards_total", "Requests to other nodes by what became of them");
    let forwards = IntCounterVec::new(forwards, &["outcome"])?;
    let _ = app.cluster.set(Membership {
        directory: directory.clone(),
        hops,
        keys,
        connections: ConnectionPool::default(),
        forwards,
    });
    let measured = Arc::downgrade(app);
    let load = move || measured.upgrade().map_or(NodeLoad::default(), |app| load(&app));
    Ok(tokio::spawn(directory.run(bus, load)))
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
