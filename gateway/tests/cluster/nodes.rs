//! Nodes of a cluster in one process, each with a scripted engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use repartee::auth::KeySet;
use repartee::cluster::ClusterMember;
use repartee::cluster::bus::{Bus, MemoryBus, MemoryMember};
use repartee::config::Config;
use repartee::server::Server;
use repartee_cluster::{BeatCodec, ClusterSecrets};
use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{Client, PATIENCE, config};
use repartee_testkit::scripted::{Script, ScriptedEngine};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Error;

use super::nats::NatsServer;

/// Secret of the cluster.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Offer of a browser that never connects.
pub const OFFER: &str = include_str!("../../testdata/fuzz/offers/chromium.sdp");
/// Headers of an offer.
pub const SDP: [(&str, &str); 1] = [("content-type", "application/sdp")];

/// Servers that share a bus.
pub struct Nodes {
    bus: MemoryBus,
    keys: KeySet,
    nodes: Vec<Node>,
}

struct Node {
    address: SocketAddr,
    tag: String,
    engine: Arc<ScriptedEngine>,
    nodes: watch::Receiver<usize>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Nodes {
    /// Starts nodes with these slots, which hear each other.
    pub async fn start(slots: &[usize]) -> Self {
        Self::start_with(slots, KeySet::default()).await
    }

    /// Starts nodes with this API key.
    pub async fn keyed(slots: &[usize], key: &str) -> Self {
        Self::start_with(slots, KeySet::parse(key).unwrap()).await
    }

    async fn start_with(slots: &[usize], keys: KeySet) -> Self {
        let mut nodes = Self { bus: MemoryBus::default(), keys, nodes: Vec::new() };
        for slots in slots {
            nodes.add(*slots, SECRET).await;
        }
        for index in 0..slots.len() {
            nodes.wait(index, slots.len()).await;
        }
        nodes
    }

    /// Starts nodes with these slots, which hear each other over NATS.
    pub async fn over(nats: &NatsServer, slots: &[usize]) -> Self {
        let mut nodes = Self { bus: MemoryBus::default(), keys: KeySet::default(), nodes: Vec::new() };
        for slots in slots {
            nodes.add_over(nats, *slots).await;
        }
        for index in 0..slots.len() {
            nodes.wait(index, slots.len()).await;
        }
        nodes
    }

    /// Adds a node with this many slots and this secret.
    pub async fn add(&mut self, slots: usize, secret: &str) {
        let bus = Box::new(self.bus.join());
        self.add_with(slots, secret, bus).await;
    }

    /// Adds a node that uses NATS.
    pub async fn add_over(&mut self, nats: &NatsServer, slots: usize) {
        let bus = Box::new(nats.join(&format!("node-{}", self.nodes.len())));
        self.add_with(slots, SECRET, bus).await;
    }

    async fn add_with(&mut self, slots: usize, secret: &str, bus: Box<dyn Bus>) {
        let engine = ScriptedEngine::new(Script { slots, ..Script::default() });
        let member = ClusterMember {
            name: format!("node-{}", self.nodes.len()),
            cell: "test".to_owned(),
            zone: String::new(),
            advertised: None,
            secrets: ClusterSecrets::new(secret, None).unwrap(),
            bus,
        };
        let server = Server::bind(Config { api_keys: self.keys.clone(), ..config() }, engine.clone())
            .await
            .unwrap()
            .with_member(member);
        let (address, tag, nodes, mut ready) =
            (server.local_addr(), server.tag().to_owned(), server.nodes(), server.ready());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        ready.wait_for(|ready| *ready).await.unwrap();
        self.nodes.push(Node { address, tag, engine, nodes, stop: Some(stop), task });
    }

    /// Returns once a node hears this many, itself included.
    pub async fn wait(&self, index: usize, count: usize) {
        let mut nodes = self.nodes[index].nodes.clone();
        timeout(PATIENCE, nodes.wait_for(|nodes| *nodes == count)).await.expect("nodes in time").unwrap();
    }

    /// Returns once the feed of a node is so: `live` or `stale`.
    pub async fn feed(&self, index: usize, state: &str) {
        self.listed(index, |list| list["feed"] == state).await;
    }

    /// Returns once the list of a node is so.
    pub async fn listed(&self, index: usize, is_so: impl Fn(&serde_json::Value) -> bool) {
        let begun = std::time::Instant::now();
        loop {
            let list = self.list(index).await;
            if is_so(&list) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{list}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// List of nodes of a node.
    pub async fn list(&self, index: usize) -> serde_json::Value {
        send(self.address(index), "GET", "/v1/cluster/nodes", &[], b"").await.json()
    }

    /// Returns once the nodes have this many sessions.
    pub async fn sessions(&self, counts: &[usize]) {
        for (node, count) in self.nodes.iter().zip(counts) {
            let mut open = node.engine.open_sessions();
            timeout(PATIENCE, open.wait_for(|open| open == count)).await.expect("sessions in time").unwrap();
        }
    }

    /// Ends a node without a word, as if its process were killed.
    pub async fn kill(&mut self, index: usize) {
        self.nodes[index].task.abort();
        let _ = (&mut self.nodes[index].task).await;
    }

    /// Ends a node in order.
    pub async fn stop(&mut self, index: usize) {
        self.nodes[index].stop.take().unwrap().send(()).unwrap();
        timeout(PATIENCE, &mut self.nodes[index].task).await.expect("the node ends").unwrap().unwrap();
    }

    /// Listens to the messages of the nodes.
    pub fn listen(&self) -> (MemoryMember, BeatCodec) {
        (self.bus.join(), BeatCodec::new(&ClusterSecrets::new(SECRET, None).unwrap(), "test"))
    }

    pub fn address(&self, index: usize) -> SocketAddr {
        self.nodes[index].address
    }

    pub fn tag(&self, index: usize) -> &str {
        &self.nodes[index].tag
    }
}

/// Opens a call over a websocket; returns it with its session's id.
pub async fn connect(address: SocketAddr) -> Result<(Client, String), Error> {
    let (socket, _) = connect_async(format!("ws://{address}/v1/realtime?model=gpt-realtime")).await?;
    let mut client = Client { socket };
    let created = client.expect("session.created").await;
    Ok((client, created["session"]["id"].as_str().unwrap().to_owned()))
}

/// Attaches a sideband client to a call.
pub async fn attach(address: SocketAddr, id: &str) -> Result<Client, Error> {
    let (socket, _) = connect_async(format!("ws://{address}/v1/realtime?call_id={id}")).await?;
    Ok(Client { socket })
}

/// Status, code and presence of `Retry-After` of a refused websocket.
pub fn refusal<T>(dialled: Result<T, Error>) -> (u16, String, bool) {
    let Err(Error::Http(response)) = dialled else { panic!("it is refused") };
    let body: serde_json::Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    let code = body["error"]["code"].as_str().unwrap().to_owned();
    (response.status().as_u16(), code, response.headers().contains_key("retry-after"))
}

/// Tag in an id, or in the path that ends with one.
pub fn tag(id: &str) -> &str {
    id.split('_').nth(1).unwrap()
}
