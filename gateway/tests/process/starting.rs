//! The command while its model loads. The test holds a lease on the checkpoint's configuration, so it decides when
//! loading continues.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use repartee_gateway_testkit::PATIENCE;
use repartee_gateway_testkit::http::send;

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo").canonicalize().unwrap()
}

/// Holds a lease on a file until its input ends: others wait in `open` until then.
const LEASE: &str = "import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";

/// A copy of the demo checkpoint whose configuration nobody can open yet.
struct SlowCheckpoint {
    folder: TempDir,
    /// Holder of the lease.
    lease: Child,
}

impl SlowCheckpoint {
    /// Creates the checkpoint; `configuration` replaces the demo's.
    async fn new(configuration: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(demo()).unwrap().map(Result::unwrap) {
            if file.file_type().unwrap().is_file() && file.file_name() != "config.json" {
                symlink(file.path(), folder.path().join(file.file_name())).unwrap();
            }
        }
        let path = folder.path().join("config.json");
        match configuration {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => drop(std::fs::copy(demo().join("config.json"), &path).unwrap()),
        }
        let mut command = Command::new("python3");
        command.args(["-c", LEASE]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut lease = command.spawn().unwrap();
        line_with(&mut BufReader::new(lease.stdout.take().unwrap()).lines(), "held").await;
        Self { folder, lease }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the configuration free, so that loading continues.
    fn release(&mut self) {
        drop(self.lease.stdin.take());
    }
}

fn repartee(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    command.arg("--model").arg(folder).args(arguments).env("REPARTEE_LOG", "info").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server whose model is not read yet.
struct Starting {
    child: Child,
    address: SocketAddr,
    log: Lines<BufReader<ChildStderr>>,
    out: Lines<BufReader<ChildStdout>>,
}

impl Starting {
    async fn new(folder: &Path) -> Self {
        let mut child = repartee(folder, &["--listen", "127.0.0.1:0"]).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = line_with(&mut log, "listening address=").await;
        let address = line.rsplit_once('=').unwrap().1.parse().unwrap();
        Self { child, address, log, out }
    }

    fn terminate(&self) {
        let id = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    async fn ended(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap().code()
    }
}

async fn line_with(lines: &mut Lines<BufReader<impl tokio::io::AsyncRead + Unpin>>, words: &str) -> String {
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

/// Status and body of `/v1/models` over a connection that stays open.
async fn models(socket: &mut BufReader<TcpStream>) -> String {
    socket.write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let (mut status, mut line, mut length) = (String::new(), String::new(), 0);
    timeout(PATIENCE, socket.read_line(&mut status)).await.expect("an answer in time").unwrap();
    while line != "\r\n" {
        line.clear();
        socket.read_line(&mut line).await.unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    tokio::io::AsyncReadExt::read_exact(socket, &mut body).await.unwrap();
    format!("{} {}", status.split(' ').nth(1).unwrap(), String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn requests_are_answered_while_the_model_loads() {
    let mut checkpoint = SlowCheckpoint::new(None).await;
    let mut server = Starting::new(checkpoint.path()).await;
    let get = |path: &'static str| send(server.address, "GET", path, &[], b"");
    assert_eq!(get("/healthz").await.status, 200);
    let reply = get("/readyz").await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
    assert_eq!(reply.json(), json!({"status": "starting", "stage": "opening", "fraction": 0.0}));
    for path in ["/v1/models", "/v1/realtime", "/metrics", "/model.json", "/no-such-file.js"] {
        let reply = get(path).await;
        assert_eq!((reply.status, &*reply.code()), (503, "server_starting"), "{path}");
        assert!(reply.header("retry-after").is_some() && reply.body.contains("/readyz"), "{reply:?}");
    }
    let call = send(server.address, "POST", "/v1/realtime/calls", &[], b"v=0").await;
    assert_eq!((call.status, &*call.code()), (503, "server_starting"));
    for path in ["/", "/admin", "/starting.js"] {
        assert_eq!(get(path).await.status, 200, "{path}");
    }
    let strange = send(server.address, "GET", "/", &[("x-forwarded-for", "203.0.113.7")], b"").await;
    assert_eq!((strange.status, &*strange.code()), (403, "remote_caller_without_keys"));

    let mut connection = BufReader::new(TcpStream::connect(server.address).await.unwrap());
    assert!(models(&mut connection).await.starts_with("503 "));
    checkpoint.release();
    line_with(&mut server.log, "stage=\"warm_up\" percent=100").await;
    let ready = line_with(&mut server.log, " ready ").await;
    for field in [
        "version=",
        "model=",
        "weights=\"",
        "threads=",
        "simd=\"",
        "device=cpu",
        "sessions=",
        "memory_mib=",
        "seconds=",
    ] {
        assert!(ready.contains(field), "{field} in {ready}");
    }
    line_with(&mut server.out, &format!("http://{}/", server.address)).await;
    assert!(models(&mut connection).await.starts_with("200 "));
    assert_eq!(get("/readyz").await.json()["status"], "ready");
    // The count from before the model was loaded is still there.
    let metrics = get("/metrics").await.body;
    assert!(metrics.contains("repartee_refused_total{reason=\"starting\"} 7"), "{metrics}");
    server.terminate();
    assert_eq!(server.ended().await, Some(0));
}

#[tokio::test]
async fn a_start_can_be_ended() {
    let checkpoint = SlowCheckpoint::new(None).await;
    let mut server = Starting::new(checkpoint.path()).await;
    server.terminate();
    assert_eq!(server.ended().await, Some(0));
}

#[tokio::test]
async fn a_checkpoint_that_is_refused_ends_the_start() {
    let mut checkpoint = SlowCheckpoint::new(Some("{")).await;
    let mut server = Starting::new(checkpoint.path()).await;
    checkpoint.release();
    line_with(&mut server.log, "config.json: not JSON").await;
    assert_eq!(server.ended().await, Some(2));
}

/// Asserts that the command exits with code 2 and prints these words while it cannot read its model.
async fn refused_before_reading(arguments: &[&str], words: &str) {
    let checkpoint = SlowCheckpoint::new(None).await;
    let ended = timeout(PATIENCE, repartee(checkpoint.path(), arguments).output()).await;
    let Output { status, stderr, .. } = ended.expect("it ends before the model is read").unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains(words), "{words} in {said}");
}

#[tokio::test]
async fn a_busy_port_is_told_before_loading() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused_before_reading(&["--listen", &address], &address).await;
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = taken.local_addr().unwrap().to_string();
    refused_before_reading(&["--listen", "127.0.0.1:0", "--set", &format!("webrtc.udp={udp}")], &udp).await;
}

#[tokio::test]
async fn bad_files_are_told_before_loading() {
    let tls = ["--set", "tls.certificate=/no/such.pem", "--set", "tls.key=/no/such.key"];
    refused_before_reading(&[&["--listen", "127.0.0.1:0"], &tls[..]].concat(), "/no/such.pem").await;
    let turns = ["--listen", "127.0.0.1:0", "--set", "turns.model=/no/such.onnx"];
    refused_before_reading(&turns, "/no/such.onnx").await;
}
