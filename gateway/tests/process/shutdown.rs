//! The end of the process: signals, its deadline; and its life with few descriptors.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use repartee_gateway_testkit::PATIENCE;

/// A running server with the demo model; killed when dropped.
struct Serving {
    child: Child,
    address: SocketAddr,
    log: BufReader<ChildStderr>,
}

impl Serving {
    fn start(prefix: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("{prefix} exec \"$0\" --listen 127.0.0.1:0 \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_repartee")]).args(arguments).env("REPARTEE_LOG", "info");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let address = line.split("http://").nth(1).unwrap().trim().trim_end_matches('/').parse().unwrap();
        Self { child, address, log }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Reads the log up to a line with these words.
    fn logged(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "no line with {words}");
        }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Response to a GET request.
    fn get(&self, path: &str) -> String {
        let mut socket = self.connect();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        response
    }

    /// Exit code.
    fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Begins to speak a text that never ends, and returns once it has a session.
    fn speak(&self) -> TcpStream {
        let mut socket = self.connect();
        let head = "POST /v1/audio/speech?response_format=wav HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        write!(socket, "{head}5\r\nHello\r\n").unwrap();
        while !self.get("/metrics").contains("repartee_active_sessions 1") {}
        socket
    }
}

#[test]
fn service_manager_is_told_start_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut server = Serving::start(&format!("NOTIFY_SOCKET='{}'", path.display()), &[]);
    assert_eq!(told(), "READY=1\n");
    server.signal("-TERM");
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.ended(), Some(0));
}

/// Head of a request that opens a websocket.
const UPGRADE: &str = "GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Masked text frame of 126 bytes to 64 KiB; the mask is zero.
fn text_frame(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&[0x81, 0x80 | 126], &length[..], &[0; 4], text.as_bytes()].concat()
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn second_signal_ends_at_once() {
    for (second, code) in [("-TERM", 143), ("-INT", 130)] {
        let mut server = Serving::start("", &["--set", "drain_s=3600"]);
        let _speech = server.speak();
        server.signal("-TERM");
        server.logged("shutting down");
        // The signal is logged before the server drains.
        let begun = Instant::now();
        while !server.get("/readyz").contains("draining") {
            assert!(begun.elapsed() < PATIENCE, "it drains");
        }
        server.signal(second);
        server.logged("at a second signal");
        assert_eq!(server.ended(), Some(code));
    }
}

#[test]
fn late_shutdown_is_cut_off_with_a_reason() {
    // A collector of traces that takes everything and answers nothing.
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("telemetry.otlp_endpoint=http://{}", collector.local_addr().unwrap());
    let mut server = Serving::start("", &["--set", "drain_s=0", "--set", &endpoint]);
    drop(server.speak());
    server.signal("-TERM");
    server.logged("the shutdown took too long and is cut off: the last traces are not sent");
    assert_eq!(server.ended(), Some(1));
}

#[test]
fn running_turns_do_not_outlast_the_drain() {
    let mut server = Serving::start("", &["--set", "drain_s=0.1"]);
    let _speech = server.speak();
    server.signal("-TERM");
    server.logged("some turns did not end in time");
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn long_prefills_for_silent_readers_are_ended() {
    let mut server = Serving::start("", &["--set", "drain_s=0.1"]);
    let content = serde_json::json!([{"type": "input_text", "text": "one two ".repeat(1_900)}]);
    let item = serde_json::json!({"type": "message", "role": "user", "content": content});
    let create = serde_json::json!({"type": "conversation.item.create", "item": item}).to_string();
    let respond = serde_json::json!({"type": "response.create", "event_id": "e".repeat(100)}).to_string();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut socket = server.connect();
        write!(socket, "{UPGRADE}").unwrap();
        socket.write_all(&[text_frame(&create), text_frame(&respond)].concat()).unwrap();
        held.push(socket);
    }
    let prefilled = |text: &str| text.lines().any(|line| line.contains("repartee_engine_tick_recent_seconds 0."));
    while !prefilled(&server.get("/metrics")) {}
    server.signal("-TERM");
    server.logged("shutting down");
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn health_is_answered_without_descriptors() {
    let server = Serving::start("ulimit -n 64;", &[]);
    let mut held = Vec::new();
    for number in 0..100 {
        let mut socket = server.connect();
        if number % 2 == 0 {
            write!(socket, "{UPGRADE}").unwrap();
        }
        held.push(socket);
        let response = server.get("/healthz");
        assert!(response.starts_with("HTTP/1.1 200 "), "with {number} connections: {response}");
    }
}
