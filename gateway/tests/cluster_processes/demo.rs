//! The nodes of `make run-cluster`: a stranger's first minute.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use repartee_gateway_testkit::{Client, PATIENCE, find};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::connect_async;

use super::processes::{Process, free_ports};
use super::{ms, row};

/// Number of nodes that the script starts.
const NODES: usize = 3;
/// Lines that wait for the test; then the script waits.
const LINES: usize = 1_024;

/// The running script, and what it has printed.
struct Demo {
    script: Process,
    lines: mpsc::Receiver<String>,
    /// Every process that it has started.
    children: Vec<u32>,
}

impl Demo {
    fn start(port: u16) -> Self {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/run-cluster"));
        command.arg(env!("CARGO_BIN_EXE_repartee")).args(["--sessions", "2", "--port", &port.to_string()]);
        let mut script = Process::spawn(command.stdout(Stdio::piped()));
        let printed = BufReader::new(script.take_stdout());
        let (sender, lines) = mpsc::channel(LINES);
        std::thread::spawn(move || {
            printed.lines().map_while(Result::ok).try_for_each(|line| sender.blocking_send(line))
        });
        Self { script, lines, children: Vec::new() }
    }

    /// Reads up to a line of the script with this in it, and notes the processes that it names.
    async fn until(&mut self, wanted: &str) {
        let found = async {
            while let Some(line) = self.lines.recv().await {
                let Some(line) = line.strip_prefix("run-cluster: ") else { continue };
                self.children.extend(line.rsplit_once(", process ").map(|(_, id)| id.parse::<u32>().unwrap()));
                if line.contains(wanted) {
                    return;
                }
            }
            panic!("the script ended without `{wanted}`");
        };
        timeout(6 * PATIENCE, found).await.expect("a line in time");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It ends what it has started; each of these is in a session of its own.
        let script = self.script.id().to_string();
        if is_there(self.script.id()) {
            self.script.signal("INT");
            let _ = Command::new("timeout").args(["50", "tail", "-f", "/dev/null", "--pid", &script]).status();
        }
        for child in self.children.iter().filter(|child| is_there(**child)) {
            let _ = Command::new("kill").args(["-KILL", &child.to_string()]).status();
        }
    }
}

fn is_there(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// First of consecutive ports that nobody listens on.
fn consecutive_ports() -> u16 {
    let all_free =
        |first: &u16| (*first..*first + NODES as u16).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    (0..100).map(|_| free_ports(1)[0]).find(all_free).expect("free ports")
}

/// Asks a node a question in a new call; true if it answers.
async fn answers(port: u16) -> bool {
    let (socket, _) = connect_async(format!("ws://127.0.0.1:{port}/v1/realtime")).await.unwrap();
    let mut call = Client { socket };
    call.expect("session.created").await;
    let events = call.ask("What is three plus four?").await;
    find(&events, "response.done")["response"]["status"] == "completed"
}

#[tokio::test]
async fn the_demo_outlives_a_node_and_ends() {
    let (port, begun) = (consecutive_ports(), Instant::now());
    let mut demo = Demo::start(port);
    demo.until("try: kill -9").await;
    let started = begun.elapsed();
    assert_eq!(demo.children.len(), NODES + 1, "NATS and the nodes");
    assert!(demo.children.iter().all(|child| is_there(*child)));
    assert!(answers(port).await);
    let killed = demo.children[1];
    assert!(Command::new("kill").args(["-KILL", &killed.to_string()]).status().unwrap().success());
    demo.until("node-1 has ended").await;
    assert!(answers(port + 1).await);
    demo.script.signal("INT");
    demo.until("all have ended").await;
    assert_eq!(demo.script.ended().await, Some(0));
    let left: Vec<_> = demo.children.iter().filter(|child| is_there(**child)).collect();
    assert!(left.is_empty(), "{left:?}");
    row(
        "`make run-cluster`: a question, a node killed, a question to the next one, Ctrl-C",
        "both are answered, and no process is left",
        &format!("{NODES} nodes hear each other after {}; 2 answers; 0 of {} processes left", ms(started), NODES + 1),
    );
}
