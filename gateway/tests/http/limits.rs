//! Limits of one caller, by its address behind a proxy; requests that never end, and silent connections.

use std::time::Duration;

use repartee::auth::KeySet;
use repartee::config::Config;
use repartee::headroom::Load;
use repartee_testkit::scripted::Script;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;

use repartee_gateway_testkit::http::{self, Reply, send};
use repartee_gateway_testkit::{PATIENCE, Running};

const KEY: &str = "a-key-for-callers-from-elsewhere";
const BEARER: (&str, &str) = ("authorization", "Bearer a-key-for-callers-from-elsewhere");
const PHONE: [(&str, &str); 2] = [("x-forwarded-for", "203.0.113.7"), BEARER];
const LAPTOP: [(&str, &str); 2] = [("x-forwarded-for", "203.0.113.8"), BEARER];

/// A server that other machines may call, too.
async fn keyed(change: impl FnOnce(&mut Config)) -> Running {
    Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse(KEY).unwrap();
        config.keys.metrics = false;
        change(config);
    })
    .await
}

/// Status, code and `Retry-After` of a refused websocket.
fn refusal<T>(dialled: Result<T, Error>) -> (u16, String, u64) {
    let Err(Error::Http(response)) = dialled else { panic!("it is refused") };
    let body: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    let retry = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    (response.status().as_u16(), body["error"]["code"].as_str().unwrap().to_owned(), retry)
}

#[tokio::test]
async fn calls_per_address_are_limited() {
    let server = keyed(|config| config.limits.calls_per_address = 2).await;
    let first = server.dial_with(&PHONE).await.unwrap();
    let _second = server.dial_with(&PHONE).await.unwrap();
    let (status, code, retry) = refusal(server.dial_with(&PHONE).await);
    assert_eq!((status, &*code), (429, "call_limit_reached"));
    assert!(retry > 0);
    let mut other = server.dial_with(&LAPTOP).await.unwrap();
    other.expect("session.created").await;
    drop(first);
    server.sessions(2).await;
    server.dial_with(&PHONE).await.unwrap();
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_refused_total{reason=\"address\"} 1"), "{metrics}");
}

#[tokio::test]
async fn the_rate_limit_gives_retry_after() {
    let server = keyed(|config| config.limits.opens_per_minute = 3).await;
    let secret = async || send(server.address, "POST", "/v1/realtime/client_secrets", &PHONE, b"").await;
    for _ in 0..3 {
        assert_eq!(secret().await.status, 200);
    }
    let reply: Reply = secret().await;
    assert_eq!((reply.status, &*reply.code()), (429, "rate_limit_exceeded"));
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert_eq!(refusal(server.dial_with(&PHONE).await).0, 429);
    server.dial_with(&LAPTOP).await.unwrap();
    server.dial_with(&[BEARER]).await.unwrap();
}

#[tokio::test]
async fn sidebands_are_limited_in_rate() {
    let server = keyed(|config| config.limits.opens_per_minute = 3).await;
    for _ in 0..3 {
        let Err(Error::Http(response)) = server.attach_with("rtc_guessed", &PHONE).await else { panic!("refused") };
        assert_eq!(response.status(), 404);
    }
    let (status, code, wait) = refusal(server.attach_with("rtc_guessed", &PHONE).await);
    assert_eq!((status, &*code), (429, "rate_limit_exceeded"));
    assert!((1..=20).contains(&wait), "{wait}");
    let Err(Error::Http(response)) = server.attach_with("rtc_guessed", &LAPTOP).await else { panic!("refused") };
    assert_eq!(response.status(), 404);
}

#[tokio::test]
async fn a_full_server_says_when_to_try_again() {
    let server = Running::start(Script { slots: 0, ..Script::default() }).await;
    let (status, code, retry) = refusal(server.dial().await);
    assert_eq!((status, &*code), (503, "session_limit_reached"));
    assert!(retry > 0);
}

#[tokio::test]
async fn full_machines_refuse_calls_beside_others() {
    let load = Load { ticks: 0.6, processors: 0.0 };
    let server = Running::start_calibrated(Script::default(), Some(load), |_| {}).await;
    let headroom = async || send(server.address, "GET", "/readyz", &[], b"").await.json()["headroom"].as_f64().unwrap();
    assert!(headroom().await > 0.0);
    let call = server.dial().await.unwrap();
    server.engine.fill_ticks();
    let full = async {
        while headroom().await > 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, full).await.expect("the machine is seen to be full");
    let (status, code, retry) = refusal(server.dial().await);
    assert_eq!((status, &*code), (503, "session_limit_reached"));
    assert!(retry > 0);
    let reply = send(server.address, "POST", "/v1/chat/completions", &[], b"{}").await;
    assert_eq!((reply.status, &*reply.code()), (503, "session_limit_reached"));
    let metrics = send(server.address, "GET", "/metrics", &[], b"").await;
    let counted = "repartee_refused_total{reason=\"overload\"} 2\n";
    assert!(metrics.body.contains(counted), "{}", metrics.body);
    // It is full for whatever reason: the only call is served.
    drop(call);
    server.engine.open_sessions().wait_for(|open| *open == 0).await.unwrap();
    server.dial().await.unwrap();
}

#[tokio::test]
async fn unfinished_requests_time_out() {
    let patience = Duration::from_millis(200);
    let server = Running::start_with(Script::default(), |config| {
        (config.limits.head, config.limits.request) = (patience, patience);
    })
    .await;
    // A head that stops in the middle: the connection is closed.
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
    let mut said = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut said)).await;
    ended.expect("the connection is closed").unwrap();
    // A body that never comes: the request is refused.
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/realtime/client_secrets HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    socket.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(http::read(socket).await.status, 400);
    assert_eq!(server.get("/healthz").await.0, 200);
}

/// Sends a body of ephemeral-key settings in `chunks` chunks of one byte each; returns the reply.
async fn in_bytes(server: &Running, chunks: usize) -> Reply {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/realtime/client_secrets HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let spaces = "1\r\n \r\n".repeat(chunks - 2);
    let body = format!("1\r\n{{\r\n{spaces}1\r\n}}\r\n0\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    // The server may refuse, and close, before it has read everything.
    let (mut reader, mut writer) = socket.into_split();
    let (reply, _) = tokio::join!(http::read(&mut reader), writer.write_all(body.as_bytes()));
    reply
}

#[tokio::test]
async fn bodies_of_tiny_chunks_are_refused() {
    let server = Running::start(Script::default()).await;
    assert_eq!(in_bytes(&server, 10_000).await.status, 200);
    let reply = in_bytes(&server, 100_000).await;
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("the body's chunks are too small"), "{reply:?}");
}

/// Sends one request over a connection that stays open; returns the connection's status line.
async fn keep_alive(socket: &mut BufReader<TcpStream>) -> String {
    socket.write_all(b"HEAD /v1/realtime/ice_servers HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| line != "\r\n") {
        let mut line = String::new();
        assert!(socket.read_line(&mut line).await.unwrap() > 0, "{lines:?}");
        lines.push(line);
    }
    lines.swap_remove(0)
}

#[tokio::test]
async fn silent_connections_lock_nobody_out() {
    let server = Running::start_with(Script::default(), |config| config.limits.connections = 1).await;
    let mut first = BufReader::new(TcpStream::connect(server.address).await.unwrap());
    assert_eq!(keep_alive(&mut first).await, "HTTP/1.1 200 OK\r\n");
    // All connections are taken: further ones are refused at once, and health checks are answered.
    for path in ["/healthz", "/readyz"] {
        let reply = send(server.address, "GET", path, &[], b"").await;
        assert_eq!(reply.status, 200, "{path}");
    }
    let reply = send(server.address, "GET", "/v1/models", &[], b"").await;
    assert_eq!((reply.status, &*reply.code()), (503, "connection_limit_reached"));
    assert!(reply.header("retry-after").is_some());
    // A connection of the reserve gets one request answered.
    let mut beyond = TcpStream::connect(server.address).await.unwrap();
    beyond.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(http::read(beyond).await.header("connection"), Some("close"));
    assert_eq!(keep_alive(&mut first).await, "HTTP/1.1 200 OK\r\n");
    drop(first);
    let served = async {
        while send(server.address, "GET", "/v1/models", &[], b"").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("there is room now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_connections_evicts_no_health_check() {
    let server = Running::start_with(Script::default(), |config| config.limits.connections = 1).await;
    let address = server.address;
    let burst = tokio::task::spawn_blocking(move || {
        let connect = |_| std::net::TcpStream::connect(address).expect("the system's queue has room");
        (0..2_000).map(connect).collect::<Vec<_>>()
    });
    let mut checks = 0;
    while !burst.is_finished() || checks == 0 {
        let reply = send(address, "GET", "/healthz", &[], b"").await;
        assert_eq!(reply.status, 200, "check {checks}");
        checks += 1;
    }
    burst.await.unwrap();
}
