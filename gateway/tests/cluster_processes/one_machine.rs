//! Several processes in one machine, by the lines of docs/cluster.md.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use repartee_gateway_testkit::PATIENCE;
use repartee_gateway_testkit::http::send;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::processes::{Process, free_ports, fresh, nats_server};
use super::row;

/// Lines of the page, for the processor and free ports.
fn documented(ports: &[u16]) -> String {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cluster.md")).unwrap();
    let section = page.split("## Several devices in one machine").nth(1).expect("the section");
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let lines: Vec<_> = lines.take_while(|line| line.starts_with("    ")).map(str::trim).collect();
    let mut script = lines.join("\n");
    let nodes = format!("127.0.0.1:$((device == 0 ? {} : {}))", ports[1], ports[2]);
    for (written, here) in [
        ("cuda:$device", "cpu"),
        ("4222", &ports[0].to_string()),
        ("127.0.0.1:808$device", &nodes),
        ("target/release/repartee", env!("CARGO_BIN_EXE_repartee")),
        ("nats-server", &nats_server().display().to_string()),
    ] {
        assert!(script.contains(written), "{written} in {script}");
        script = script.replace(written, here);
    }
    script
}

/// Group of processes that ends as a whole.
struct Group {
    id: u32,
    _shell: Process,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.id)]).status();
    }
}

#[tokio::test]
async fn documented_lines_start_two_nodes() {
    let ports = free_ports(3);
    let mut shell = Command::new("bash");
    shell.args(["-c", &documented(&ports)]).process_group(0).stdout(std::process::Stdio::null());
    let shell = Process::spawn(&mut shell);
    let group = Group { id: shell.id(), _shell: shell };
    let begun = Instant::now();
    for port in &ports[1..] {
        let address = ([127, 0, 0, 1], *port).into();
        loop {
            assert!(begun.elapsed() < 3 * PATIENCE, "port {port}");
            sleep(Duration::from_millis(50)).await;
            if TcpStream::connect(address).await.is_err() {
                continue;
            }
            let reply = send(address, "GET", "/v1/cluster/nodes", &[], b"").await;
            if reply.status == 200 && fresh(&reply.json()) == 2 {
                break;
            }
        }
    }
    drop(group);
    let seen = format!("two nodes hear each other {} ms after the start", begun.elapsed().as_millis());
    row("two processes in one machine, by the lines above", "they share calls", &seen);
}
