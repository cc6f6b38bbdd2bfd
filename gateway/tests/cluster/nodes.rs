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

use super::cut_member::CutMember;
use super::nats::NatsServer;

/// Secret of the cluster.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// API key of nodes that have keys, perhaps beside others.
pub const KEY: &str = "the-first-key-of-the-cluster";
/// Offer of a browser that never connects.
pub const OFFER: &str = include_str!("../../testdata/fuzz/offers/chromium.sdp");
/// Headers of an offer.
pub const SDP: [(&str, &str); 1] = [("content-type", "application/sdp")];

/// Servers that share a bus.
pub struct Nodes {
    bus: MemoryBus,
    config: Config,
    nodes: Vec<Node>,
}

struct Node {
    /// Its link to the bus; `None` over NATS.
    link: Option<watch::Sender<bool>>,
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
        Self::start_with(slots, config()).await
    }

    /// Starts nodes with this API key.
    pub async fn keyed(slots: &[usize], key: &str) -> Self {
        Self::start_with(slots, Config { api_keys: KeySet::parse(key).unwrap(), ..config() }).await
    }

    /// Starts nodes with these settings. A folder of voices has a folder for each node.
    pub async fn start_with(slots: &[usize], config: Config) -> Self {
        let mut nodes = Self { bus: MemoryBus::default(), config, nodes: Vec::new() };
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
        let mut nodes = Self { bus: MemoryBus::default(), config: config(), nodes: Vec::new() };
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
        self.add_named(self.nodes.len(), slots, secret).await;
    }

    /// Starts a node again that was killed or stopped, under its name and with its folder.
    pub async fn restart(&mut self, index: usize, slots: usize) {
        self.add_named(index, slots, SECRET).await;
        self.nodes.swap_remove(index);
    }

    async fn add_named(&mut self, index: usize, slots: usize, secret: &str) {
        let (bus, link) = CutMember::join(&self.bus);
        self.add_with((index, slots), secret, Box::new(bus)).await;
        self.nodes.last_mut().unwrap().link = Some(link);
    }

    /// Adds a node that uses NATS.
    pub async fn add_over(&mut self, nats: &NatsServer, slots: usize) {
        let bus = Box::new(nats.join(&format!("node-{}", self.nodes.len())));
        self.add_with((self.nodes.len(), slots), SECRET, bus).await;
    }

    async fn add_with(&mut self, (index, slots): (usize, usize), secret: &str, bus: Box<dyn Bus>) {
        let engine = ScriptedEngine::new(Script { slots, accepts_enrolment: true, ..Script::default() });
        let member = ClusterMember {
            name: format!("node-{index}"),
            cell: "test".to_owned(),
            zone: String::new(),
            advertised: None,
            secrets: ClusterSecrets::new(secret, None).unwrap(),
            bus,
            has_previous_beats: false,
        };
        let mut config = self.config.clone();
        config.voices.folder = config.voices.folder.map(|folder| folder.join(index.to_string()));
        let server = Server::bind(config, engine.clone()).await.unwrap().with_member(member);
        let (address, tag, nodes, mut ready) =
            (server.local_addr(), server.tag().to_owned(), server.nodes(), server.ready());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        ready.wait_for(|ready| *ready).await.unwrap();
        self.nodes.push(Node { link: None, address, tag, engine, nodes, stop: Some(stop), task });
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
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", &*bearer)];
        send(self.address(index), "GET", "/v1/cluster/nodes", &headers, b"").await.json()
    }

    /// Returns once the nodes have this many sessions.
    pub async fn sessions(&self, counts: &[usize]) {
        for (node, count) in self.nodes.iter().zip(counts) {
            let mut open = node.engine.open_sessions();
            timeout(PATIENCE, open.wait_for(|open| open == count)).await.expect("sessions in time").unwrap();
        }
    }

    /// Cuts a node's link to the others, or mends it.
    pub fn cut(&self, index: usize, is_cut: bool) {
        self.nodes[index].link.as_ref().unwrap().send_replace(is_cut);
    }

    /// Engine of a node.
    pub fn engine(&self, index: usize) -> &ScriptedEngine {
        &self.nodes[index].engine
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
