//! The server in the sandbox of `deploy/repartee.service`, as far as `scripts/in-unit-sandbox` applies it: read-only
//! files, a user without capabilities, few system calls. The container of `deploy/Containerfile` has less of a sandbox.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use repartee_gateway_testkit::PATIENCE;
use repartee_gateway_testkit::http::send;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Starts the server in the sandbox; `None` if this machine cannot, which is printed.
async fn sandboxed() -> Option<(Child, SocketAddr)> {
    let script = root().join("scripts/in-unit-sandbox");
    let unit = root().join("deploy/repartee.service");
    let tried = Command::new(&script).arg(&unit).arg("true").output().await;
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        println!("SKIPPED: there is no sandbox without root, libseccomp, setpriv and systemd-analyze: {tried:?}");
        return None;
    }
    let mut command = Command::new(script);
    command.arg(unit).arg(env!("CARGO_BIN_EXE_repartee"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--set", "webrtc.udp=0.0.0.0:0"]).kill_on_drop(true);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let talk = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it starts");
            if let Some((_, rest)) = line.split_once("http://") {
                return rest.trim_end_matches('/').parse().unwrap();
            }
        }
    };
    let address = timeout(PATIENCE, talk).await.expect("it starts in time");
    Some((child, address))
}

/// Runs the container's health check against a server; true if it is healthy.
async fn is_healthy(server: SocketAddr) -> bool {
    let image = std::fs::read_to_string(root().join("deploy/Containerfile")).unwrap();
    let line = image.lines().find(|line| line.starts_with("HEALTHCHECK ")).unwrap();
    let words: Vec<String> = serde_json::from_str(line.split_once(" CMD ").unwrap().1).unwrap();
    let mut check = Command::new(&words[0]);
    check.args(&words[1..]).env("REPARTEE_LISTEN", server.to_string()).stderr(Stdio::null());
    check.status().await.unwrap().success()
}

/// Nice values of the threads of a process, by their names.
fn priorities(process: &Path) -> Vec<(String, i64)> {
    let threads = std::fs::read_dir(process.join("task")).unwrap().map(|thread| thread.unwrap().path());
    let read = |thread: PathBuf| {
        let name = std::fs::read_to_string(thread.join("comm")).unwrap().trim().to_owned();
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
        // Behind the name, which may have spaces.
        let nice = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
        (name, nice)
    };
    threads.map(read).collect()
}

/// Folders in `/proc` of the processes that this one started.
fn children(parent: u32) -> Vec<PathBuf> {
    let is_child = |process: &PathBuf| {
        // A process may end meanwhile.
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).is_some_and(|id| id == parent.to_string())
    };
    std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_child).collect()
}

#[tokio::test]
async fn requests_give_way_in_the_units_sandbox() {
    let Some((child, _)) = sandboxed().await else { return };
    let server = children(child.id().unwrap()).pop().expect("the sandbox runs the server");
    let priorities = priorities(&server);
    let of = |name: &str| {
        let found = priorities.iter().find(|(thread, _)| thread == name);
        found.unwrap_or_else(|| panic!("no {name} in {priorities:?}")).1
    };
    assert!(of("requests") > of("control"), "{priorities:?}");
}

#[tokio::test]
async fn server_answers_and_calls_in_the_units_sandbox() {
    let Some((mut child, address)) = sandboxed().await else { return };
    assert_eq!(send(address, "GET", "/readyz", &[], b"").await.status, 200);
    assert!(is_healthy(address).await);
    let body = br#"{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}"#;
    let reply = send(address, "POST", "/v1/chat/completions", &[("content-type", "application/json")], body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    // A caller on this machine gets all addresses, which netlink lists.
    let offer = std::fs::read(root().join("gateway/sdp/tests/offers/recorded/chromium.sdp")).unwrap();
    let reply = send(address, "POST", "/v1/realtime/calls", &[("content-type", "application/sdp")], &offer).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let route = UdpSocket::bind("0.0.0.0:0").unwrap();
    match route.connect("198.51.100.1:9").and_then(|()| route.local_addr()) {
        Ok(own) => assert!(reply.body.contains(&format!(" {} ", own.ip())), "{} in {}", own.ip(), reply.body),
        Err(error) => println!("SKIPPED: this machine has no other address than loopback: {error}"),
    }
    child.kill().await.unwrap();
    assert!(!is_healthy(address).await, "a dead server is not healthy");
}
