//! First hours of five people, each from the beginning to the end as they type it: the binary as it ships, the demo model, plain files.
//!
//! - `laptop_user`, `agent_developer`, `operator`, `checkpoint_owner`, `load_tester`

mod agent_developer;
mod checkpoint_owner;
mod laptop_user;
mod load_tester;
mod operator;

use std::net::SocketAddr;
use std::process::Stdio;

use repartee_gateway_testkit::PATIENCE;
use repartee_gateway_testkit::http::send;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

/// A spoken question of the repository.
const QUESTION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/questions/capital-of-france.wav");

/// The command with these arguments.
fn repartee(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    command.args(arguments).env("REPARTEE_LOG", "info").env_remove("REPARTEE_KEY").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error of a command that ends.
async fn ran(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = timeout(PATIENCE, repartee(arguments).output()).await.expect("it ends").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Standard output of a command that succeeds.
async fn succeeded(arguments: &[&str]) -> String {
    let (code, said, errors) = ran(arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {errors}");
    said
}

/// A running server, with its log and its output.
struct Visited {
    child: Child,
    address: SocketAddr,
    log: Lines<BufReader<ChildStderr>>,
    out: Lines<BufReader<ChildStdout>>,
}

impl Visited {
    /// Starts a server on a free port; returns once it says where to talk to it.
    async fn start(arguments: &[&str]) -> Self {
        let mut child = repartee(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = line_with(&mut out, "Talk to it at http://").await;
        let address = line.rsplit_once("//").unwrap().1.trim_end_matches('/').parse().unwrap();
        Self { child, address, log, out }
    }

    fn server(&self) -> String {
        self.address.to_string()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits until `/metrics` has these lines.
    async fn metrics_with(&self, headers: &[(&str, &str)], lines: &[&str]) {
        let found = async {
            while !{
                let metrics = send(self.address, "GET", "/metrics", headers, b"").await.body;
                lines.iter().all(|line| metrics.contains(line))
            } {}
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{lines:?} in time"));
    }

    /// Ends the server as a service manager does.
    async fn end(mut self) {
        self.signal("-TERM");
        let ended = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        assert_eq!(ended.code(), Some(0));
        drop(self.out);
    }
}

/// Next line with these words.
async fn line_with(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>, words: &str) -> String {
    let found = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("no line with {words}"));
            if line.contains(words) {
                return line;
            }
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{words} in time"))
}
