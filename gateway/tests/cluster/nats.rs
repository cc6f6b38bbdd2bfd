//! A server of NATS of its own for a test, and the nodes that it joins.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use repartee::cluster::nats::{NatsBus, NatsServers};
use repartee_gateway_testkit::PATIENCE;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::nodes::{Nodes, connect, tag};

/// Running server of NATS; killed when dropped.
pub struct NatsServer {
    child: Child,
    pub port: u16,
    folder: TempDir,
}

impl NatsServer {
    /// Starts a server on a port, 0 for a free one; returns once it accepts connections.
    pub async fn start(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let wanted = if port == 0 { "-1".to_owned() } else { port.to_string() };
        let mut command = Command::new(binary());
        command.args(["--addr", "127.0.0.1", "--port", &wanted, "--ports_file_dir"]).arg(folder.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nats-server");
        let mut server = Self { child, port, folder };
        let begun = Instant::now();
        while server.port == 0 || TcpStream::connect(("127.0.0.1", server.port)).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "nats-server does not listen");
            sleep(std::time::Duration::from_millis(5)).await;
            server.port = written_port(server.folder.path()).unwrap_or(port);
        }
        server
    }

    /// Bus of a node over this server.
    pub fn join(&self, name: &str) -> NatsBus {
        let servers =
            NatsServers { urls: vec![format!("nats://127.0.0.1:{}", self.port)], login: None, certificates: None };
        NatsBus::new(servers, name, "test")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Port in the file that the server writes once it listens.
fn written_port(folder: &Path) -> Option<u16> {
    let file = folder.read_dir().ok()?.find_map(|entry| Some(entry.ok()?.path()))?;
    let ports: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
}

/// The one that `scripts/setup.sh nats` has installed, or else the system's.
fn binary() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/nats/bin/nats-server");
    if installed.exists() { installed } else { "nats-server".into() }
}

#[tokio::test]
async fn calls_go_on_while_nats_is_away() {
    let nats = NatsServer::start(0).await;
    let mut nodes = Nodes::over(&nats, &[1, 1]).await;
    let (_first, own) = connect(nodes.address(0)).await.unwrap();
    let (other, forwarded) = connect(nodes.address(0)).await.unwrap();
    assert_eq!([tag(&own), tag(&forwarded)], [nodes.tag(0), nodes.tag(1)]);
    let port = nats.port;
    drop(nats);
    drop(other);
    nodes.sessions(&[1, 0]).await;
    // The nodes know each other still, and cannot know that one is free again.
    nodes.feed(0, "stale").await;
    let (_second, forwarded) = connect(nodes.address(0)).await.unwrap();
    assert_eq!(tag(&forwarded), nodes.tag(1));
    let nats = NatsServer::start(port).await;
    nodes.add_over(&nats, 3).await;
    for index in 0..3 {
        nodes.wait(index, 3).await;
    }
    // The beat that tells of the second call may come after that of the new node.
    let healed = |list: &serde_json::Value| {
        let free: Vec<_> = list["data"].as_array().unwrap().iter().map(|node| node["free"].as_u64().unwrap()).collect();
        free == [0, 0, 3] && list["feed"] == "live"
    };
    nodes.listed(0, healed).await;
    let (_third, forwarded) = connect(nodes.address(0)).await.unwrap();
    assert_eq!(tag(&forwarded), nodes.tag(2));
}

#[tokio::test]
async fn a_node_leaves_over_nats() {
    let nats = NatsServer::start(0).await;
    let mut nodes = Nodes::over(&nats, &[1, 1]).await;
    nodes.stop(1).await;
    nodes.wait(0, 1).await;
}
