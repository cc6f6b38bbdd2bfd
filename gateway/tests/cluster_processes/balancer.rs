//! HAProxy in front of the nodes, with the file that is shipped, and callers who come at a steady pace.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use repartee_gateway_testkit::PATIENCE;
use repartee_gateway_testkit::http::send;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::callers::{Call, Outcomes, callers, callers_around};
use super::processes::{Process, World, free_ports};
use super::{ms, row};

/// Callers of a row, and their pace.
const CALLERS: usize = 60;
const EVERY: Duration = Duration::from_millis(150);

/// HAProxy in front of three nodes.
struct Balancer {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Balancer {
    async fn start(world: &World) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]));
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/cluster/haproxy.cfg");
        let mut settings = std::fs::read_to_string(shipped).unwrap();
        let nodes = world.nodes.iter().map(|node| node.address);
        for (shipped, address) in [8080, 8081, 8082, 8083].into_iter().zip([address].into_iter().chain(nodes)) {
            let shipped = format!("127.0.0.1:{shipped}");
            assert!(settings.contains(&shipped), "{shipped}");
            settings = settings.replace(&shipped, &address.to_string());
        }
        std::fs::write(folder.path().join("haproxy.cfg"), settings).unwrap();
        let process = Self::spawn(&folder);
        let balancer = Self { process, address, folder };
        balancer.wait().await;
        balancer
    }

    fn spawn(folder: &TempDir) -> Process {
        let mut command = haproxy();
        command.arg("-f").arg(folder.path().join("haproxy.cfg")).stdout(Stdio::null());
        Process::spawn(&mut command)
    }

    /// Starts it again.
    async fn restart(&mut self) {
        self.process = Self::spawn(&self.folder);
        self.wait().await;
    }

    /// Returns once it has found a node.
    async fn wait(&self) {
        let serves = async {
            loop {
                if TcpStream::connect(self.address).await.is_ok()
                    && send(self.address, "GET", "/readyz", &[], b"").await.status == 200
                {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, serves).await.expect("HAProxy serves");
    }
}

/// The one that `scripts/setup.sh haproxy` has unpacked, or else the system's.
fn haproxy() -> Command {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/haproxy/usr");
    let unpacked = home.join("sbin/haproxy");
    if !unpacked.exists() {
        return Command::new("haproxy");
    }
    let mut command = Command::new(unpacked);
    let folders: Vec<PathBuf> =
        home.join("lib").read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_come_through_the_balancer() {
    let world = World::start(1, &[24, 24, 24]).await;
    let balancer = Balancer::start(&world).await;
    let outcomes = callers(balancer.address, CALLERS, EVERY).await;
    assert_eq!(outcomes, Outcomes { completed: CALLERS, ..Outcomes::default() });
    row(
        &format!("{CALLERS} callers through HAProxy, half over WebRTC and half over websockets"),
        "all are served",
        &format!("{} turns completed", outcomes.completed),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_are_placed_while_a_node_dies() {
    let world = World::start(1, &[24, 24, 24]).await;
    let balancer = Balancer::start(&world).await;
    let kill = || world.nodes[1].process.signal("KILL");
    let outcomes = callers_around(balancer.address, CALLERS, EVERY, 20, kill).await;
    assert_eq!(outcomes.completed + outcomes.lost, CALLERS, "{outcomes:?}");
    assert!(outcomes.lost <= 24, "{outcomes:?}");
    row(
        &format!("{CALLERS} callers through HAProxy, a node killed after 20 of them"),
        "only calls on that node are lost; nobody is refused",
        &format!("{} turns completed, {} calls lost, {} refused", outcomes.completed, outcomes.lost, outcomes.refused),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_outlive_the_balancer() {
    let world = World::start(1, &[4, 4, 4]).await;
    let mut balancer = Balancer::start(&world).await;
    let mut webrtc = Call::webrtc(balancer.address).await.unwrap();
    let mut websocket = Call::websocket(balancer.address).await.unwrap();
    assert!(webrtc.ask().await && websocket.ask().await);
    balancer.process.signal("KILL");
    balancer.process.ended().await;
    assert!(webrtc.ask().await, "its sound goes to the node directly");
    assert!(!websocket.ask().await);
    let dead = Instant::now();
    balancer.restart().await;
    let mut again = Call::websocket(balancer.address).await.unwrap();
    assert!(again.ask().await && webrtc.ask().await);
    row(
        "the balancer is killed",
        "calls over WebRTC go on; websockets end, and their callers dial again",
        &format!(
            "the WebRTC call took 2 turns more; a new websocket served {} after the balancer's end",
            ms(dead.elapsed())
        ),
    );
}
