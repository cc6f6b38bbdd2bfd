//! Nodes and servers of NATS as processes of their own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use repartee::cluster::PREVIOUS_BEATS;
use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{Client, PATIENCE, own_address};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Error;

/// Secret of the cluster.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// API key of nodes that have keys.
pub const KEY: &str = "the-key-of-the-cluster";
/// Name of its cell.
pub const CELL: &str = "test";
/// Offer of a browser that never connects.
const OFFER: &str = include_str!("../../testdata/fuzz/offers/chromium.sdp");
/// Headers of an offer.
pub const SDP: [(&str, &str); 1] = [("content-type", "application/sdp")];
/// Interval of looks at a state that nobody tells of.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Child that is killed when dropped.
pub struct Process(Child);

impl Process {
    /// Starts a process.
    pub fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("a process"))
    }

    /// Id of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Output of a process that was started with a pipe for it.
    pub fn take_stdout(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("a pipe")
    }

    /// Sends a signal, such as `KILL`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{name}");
    }

    /// Waits for its end; returns how it ended.
    pub async fn ended(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < 2 * PATIENCE, "the process does not end");
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Node with the demo model.
pub struct Node {
    pub process: Process,
    pub address: SocketAddr,
}

/// Settings of one node.
pub struct Launch<'a> {
    pub slots: usize,
    pub secret: &'a str,
    /// Port of the only server of NATS that it uses; `None` for all.
    pub nats: Option<u16>,
    /// Port that it listens on, and the one under which the others know it.
    pub ports: Option<(u16, u16)>,
    /// True if it ends its calls only when their callers do.
    pub drains_calls: bool,
    /// True for beats as the version before writes them.
    pub has_previous_beats: bool,
    /// API keys, and the most calls that one of them may have; `None` for no keys.
    pub keys: Option<(&'a str, usize)>,
}

impl Launch<'_> {
    /// Node with these slots.
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            secret: SECRET,
            nats: None,
            ports: None,
            drains_calls: false,
            has_previous_beats: false,
            keys: None,
        }
    }
}

/// Servers of NATS and nodes.
pub struct World {
    nats: Vec<Option<Process>>,
    ports: Vec<u16>,
    routes: Vec<u16>,
    pub nodes: Vec<Node>,
}

impl World {
    /// Starts this many servers of NATS, and nodes with these slots, which hear each other.
    pub async fn start(nats: usize, slots: &[usize]) -> Self {
        let (ports, routes) = (free_ports(nats), free_ports(nats));
        let mut world = Self { nats: (0..nats).map(|_| None).collect(), ports, routes, nodes: Vec::new() };
        for index in 0..nats {
            world.start_nats(index).await;
        }
        // They load at the same time.
        let nodes: Vec<_> =
            slots.iter().enumerate().map(|(index, slots)| world.spawn(index, &Launch::new(*slots))).collect();
        for (process, line) in nodes {
            world.nodes.push(Node { process, address: address(line).await });
        }
        for index in 0..slots.len() {
            world.wait_for(index, |list| fresh(list) == slots.len()).await;
        }
        world
    }

    /// Starts a server of NATS.
    pub async fn start_nats(&mut self, index: usize) {
        let route = |port: u16| format!("nats://127.0.0.1:{port}");
        let others: Vec<_> = self.routes.iter().map(|port| route(*port)).collect();
        let mut command = Command::new(nats_server());
        command.args(["--addr", "127.0.0.1", "--port", &self.ports[index].to_string(), "--cluster_name", "test"]);
        command.args(["--cluster", &route(self.routes[index]), "--routes", &others.join(",")]);
        // A node whose link is cut knows no other way.
        command.arg("--no_advertise");
        self.nats[index] = Some(Process::spawn(command.stdout(Stdio::null())));
        let port = self.ports[index];
        let listens = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(PATIENCE, listens).await.expect("nats-server listens");
    }

    /// Kills a server of NATS.
    pub fn kill_nats(&mut self, index: usize) {
        self.nats[index] = None;
    }

    /// Port of the first server of NATS.
    pub fn nats_port(&self) -> u16 {
        self.ports[0]
    }

    /// Starts one more node; returns its index once it serves.
    pub async fn add(&mut self, launch: &Launch<'_>) -> usize {
        let (process, line) = self.spawn(self.nodes.len(), launch);
        self.nodes.push(Node { process, address: address(line).await });
        self.nodes.len() - 1
    }

    fn spawn(&self, index: usize, launch: &Launch<'_>) -> (Process, BufReader<ChildStdout>) {
        let ports = launch.nats.map_or_else(|| self.ports.clone(), |port| vec![port]);
        let servers: Vec<_> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
        let (port, known) = launch.ports.unwrap_or_default();
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--set", "limits.headroom=false", "--set", "turns.model=silence"]);
        command.args(["--set", &format!("drain_calls={}", launch.drains_calls)]);
        if known > 0 {
            command.env("REPARTEE_CLUSTER_ADVERTISED", format!("127.0.0.1:{known}"));
        }
        command.env("REPARTEE_ENGINE_SESSIONS", launch.slots.to_string()).env("REPARTEE_CLUSTER_CELL", CELL);
        command.env("REPARTEE_CLUSTER_NATS", servers.join(",")).env("REPARTEE_CLUSTER_SECRET", launch.secret);
        command.env("REPARTEE_CLUSTER_NAME", format!("node-{index}"));
        if launch.has_previous_beats {
            command.env(PREVIOUS_BEATS, "1");
        }
        if let Some((keys, most)) = launch.keys {
            command.env("REPARTEE_API_KEYS", keys).args(["--set", &format!("limits.calls_per_key={most}")]);
        }
        let mut process = Process::spawn(command.stdout(Stdio::piped()));
        let line = BufReader::new(process.take_stdout());
        (process, line)
    }

    /// List of nodes of a node.
    pub async fn list(&self, index: usize) -> Value {
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", &*bearer)];
        send(self.nodes[index].address, "GET", "/v1/cluster/nodes", &headers, b"").await.json()
    }

    /// Returns the time until the list of a node is so.
    pub async fn wait_for(&self, index: usize, is_so: impl Fn(&Value) -> bool) -> Duration {
        let begun = Instant::now();
        loop {
            let list = self.list(index).await;
            if is_so(&list) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{list}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Asks a node for a call over WebRTC with a key.
    pub async fn keyed_offer(&self, index: usize, key: &str) -> Reply {
        let headers = [SDP[0], ("authorization", &*format!("Bearer {key}"))];
        send(self.nodes[index].address, "POST", "/v1/realtime/calls", &headers, OFFER.as_bytes()).await
    }

    /// Asks a node for a call over WebRTC.
    pub async fn offer(&self, index: usize) -> Reply {
        send(self.nodes[index].address, "POST", "/v1/realtime/calls", &SDP, OFFER.as_bytes()).await
    }

    /// Hangs up a call through a node.
    pub async fn hang_up(&self, index: usize, id: &str) -> Reply {
        let path = format!("/v1/realtime/calls/{id}/hangup");
        send(self.nodes[index].address, "POST", &path, &[], b"").await
    }

    /// Opens a call over a websocket; returns it with its session's id.
    pub async fn connect(&self, index: usize) -> Result<(Client, String), Error> {
        let (socket, _) = connect_async(format!("ws://{}/v1/realtime", self.nodes[index].address)).await?;
        let mut client = Client { socket };
        let created = client.expect("session.created").await;
        Ok((client, created["session"]["id"].as_str().unwrap().to_owned()))
    }

    /// Attaches to a call over a websocket.
    pub async fn attach(&self, index: usize, call: &str) -> Client {
        let url = format!("ws://{}/v1/realtime?call_id={call}", self.nodes[index].address);
        let (socket, _) = connect_async(url).await.unwrap();
        let mut client = Client { socket };
        client.expect("session.created").await;
        client
    }

    /// Tag of a node.
    pub async fn tag(&self, index: usize) -> String {
        self.list(index).await["data"][0]["tag"].as_str().unwrap().to_owned()
    }
}

/// Number of nodes of a list that are there.
pub fn fresh(list: &Value) -> usize {
    let nodes = list["data"].as_array().unwrap();
    nodes.iter().filter(|node| ["own", "fresh"].contains(&node["state"].as_str().unwrap())).count()
}

/// State of the node with this tag in a list.
pub fn state<'a>(list: &'a Value, tag: &str) -> &'a str {
    let node = list["data"].as_array().unwrap().iter().find(|node| node["tag"] == tag);
    node.and_then(|node| node["state"].as_str()).unwrap_or("unknown")
}

/// Phase of the node with this tag in a list.
pub fn phase<'a>(list: &'a Value, tag: &str) -> &'a str {
    let node = list["data"].as_array().unwrap().iter().find(|node| node["tag"] == tag);
    node.and_then(|node| node["phase"].as_str()).unwrap_or("unknown")
}

/// Id of the call that a reply has admitted.
pub fn call_id(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.header("location").unwrap().rsplit('/').next().unwrap().to_owned()
}

/// Tag in an id.
pub fn tag_of(id: &str) -> &str {
    id.split('_').nth(1).unwrap()
}

/// Address that a starting node announces.
async fn address(mut lines: BufReader<ChildStdout>) -> SocketAddr {
    let read = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        lines.read_line(&mut line).map(|_| line)
    });
    let line = timeout(3 * PATIENCE, read).await.expect("a node in time").unwrap().unwrap();
    line.split("http://").nth(1).unwrap_or_else(|| panic!("{line}")).trim().trim_end_matches('/').parse().unwrap()
}

/// Ports that nobody listens on.
pub fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| own_address().port()).collect()
}

/// The one that `scripts/setup.sh nats` has installed, or else the system's.
pub fn nats_server() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/nats/bin/nats-server");
    if installed.exists() { installed } else { "nats-server".into() }
}
