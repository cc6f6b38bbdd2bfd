//! Registration at Kamailio, and calls that it passes on: an exchange of others (scripts/setup.sh phones).

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use repartee::config::{Secret, SipAddress, SipScheme};
use repartee_gateway_testkit::{PATIENCE, own_address};
use repartee_testkit::scripted::Script;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::peers::{root, run, telephone};
use super::telephone::{listen_by, serve_with};

/// A running exchange.
struct Exchange {
    process: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Exchange {
    /// Starts Kamailio on this address, over UDP and TCP; `None`, and a line that says so, where it is not installed.
    fn start(folder: &Path, address: SocketAddr) -> Option<Self> {
        let tools = root().join("target/tools/phone/usr");
        let program = tools.join("sbin/kamailio");
        let libraries = std::fs::read_dir(tools.join("lib")).ok().and_then(|mut folders| {
            folders.find_map(|folder| Some(folder.ok()?.path().join("kamailio")).filter(|path| path.is_dir()))
        });
        let Some(libraries) = libraries.filter(|_| program.exists()) else {
            println!("SKIPPED: kamailio is not installed; scripts/setup.sh phones unpacks it");
            return None;
        };
        let settings = include_str!("exchange.cfg");
        let modules = libraries.join("modules").canonicalize().unwrap();
        let settings =
            settings.replace("@ADDRESS@", &address.to_string()).replace("@MODULES@", &modules.display().to_string());
        let file = folder.join("exchange.cfg");
        std::fs::write(&file, settings).unwrap();
        // It has children, which end with it if it is asked to end; this way they do even if the test is killed.
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).env("LD_LIBRARY_PATH", libraries);
        command.arg("-f").arg(file).arg("-Y").arg(folder).args(["-DD", "-E", "-m", "32", "-M", "4"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        Some(Self { process, lines })
    }

    /// Reads its log until this text comes.
    async fn until(&mut self, text: &str) {
        let found = async {
            let mut before = String::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(text) {
                    return;
                }
                before += &line;
            }
            panic!("the exchange has ended before {text}: {before}");
        };
        timeout(PATIENCE, found).await.expect(text);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(id) = self.process.id() {
            let _ = std::process::Command::new("kill").arg(id.to_string()).status();
        }
    }
}

async fn registers_and_is_called(scheme: SipScheme, transport: &str, mode: &str) {
    let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
    let Some(mut exchange) = Exchange::start(folder.path(), address) else { return };
    let Some(mut sipp) = telephone("sipp") else { return };
    if scheme == SipScheme::Tcp {
        super::calls_out::accepting(address).await;
    }
    // A request over UDP that comes too early is repeated.
    let mut server = serve_with(Script::default(), |config| {
        config.sip.listen = vec![listen_by(scheme)];
        config.sip.registrar = Some(SipAddress { scheme, address });
        config.sip.domain = Some("pbx.example".to_owned());
        config.sip.user = Some("voice".to_owned());
        config.sip.password = Some(Secret::new("secret of the account"));
    })
    .await;
    exchange.until(&format!("registered by {transport} for 300 s")).await;
    // A telephone calls the account at the exchange, and hangs up after half a second.
    sipp.current_dir(folder.path())
        .arg(address.to_string())
        .args(["-sn", "uac", "-s", "voice", "-m", "1", "-d", "500"]);
    sipp.args(["-i", "127.0.0.1", "-mi", "127.0.0.1", "-nostdin", "-timeout", "20s", "-t", mode]);
    let output = run(sipp).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    server.sessions(0).await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_call_seconds_count{end=\"hangup\",transport=\"sip\"} 1\n"), "{metrics}");
    server.stop();
    exchange.until(&format!("registered by {transport} for 0 s")).await;
    server.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kamailio_registers_the_server_and_calls() {
    registers_and_is_called(SipScheme::Udp, "udp", "u1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kamailio_registers_the_server_over_tcp() {
    registers_and_is_called(SipScheme::Tcp, "tcp", "t1").await;
}
