//! Health checks, metrics and shutdown while something is in the way: a blocked runtime, a flood of connections.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream as BlockingStream};
use std::sync::mpsc::{SyncSender, sync_channel};

use repartee::auth::KeySet;
use repartee::config::Config;
use repartee::server::Server;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{PATIENCE, Running};

const KEY: &str = "a-key-for-the-monitoring";
const BEARER: (&str, &str) = ("authorization", "Bearer a-key-for-the-monitoring");

/// A runtime whose only worker is blocked until the sender is used or dropped.
fn block(runtime: &Runtime) -> SyncSender<()> {
    let (begun, begins) = sync_channel(1);
    let (release, released) = sync_channel::<()>(1);
    runtime.spawn(async move {
        begun.send(()).unwrap();
        let _ = released.recv();
    });
    begins.recv_timeout(PATIENCE).unwrap();
    release
}

/// As [`get`], in packets of one byte.
fn get_by_bytes(address: SocketAddr, path: &str) -> String {
    let mut socket = BlockingStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for byte in format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").bytes() {
        socket.write_all(&[byte]).unwrap();
    }
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

fn one_worker() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Response to a GET request over a connection of its own.
fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = BlockingStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn blocked_runtime_answers_torn_health_checks() {
    let runtime = one_worker();
    let server = runtime.block_on(Running::start(Script::default()));
    let release = block(&runtime);
    for _ in 0..5 {
        let response = get_by_bytes(server.address, "/healthz");
        assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("ok\n"), "{response}");
    }
    release.send(()).unwrap();
}

#[test]
fn blocked_runtime_answers_health_and_metrics() {
    let runtime = one_worker();
    let server = runtime.block_on(Running::start(Script::default()));
    let release = block(&runtime);
    for (path, part) in [("/healthz", "ok\n"), ("/readyz", "ready"), ("/metrics", "repartee_build_info")] {
        let response = get(server.address, path);
        assert!(response.starts_with("HTTP/1.1 200 ") && response.contains(part), "{path}: {response}");
        assert!(response.contains("connection: close\r\n"), "{response}");
    }
    release.send(()).unwrap();
}

#[test]
fn blocked_runtime_is_shut_down() {
    let (runtime, own) = (one_worker(), Builder::new_current_thread().enable_all().build().unwrap());
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    let server = runtime.block_on(Server::bind(config, ScriptedEngine::new(Script::default()))).unwrap();
    let (address, mut ready) = (server.local_addr(), server.ready());
    let (stop, stopped) = oneshot::channel::<()>();
    own.block_on(async {
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        ready.wait_for(|ready| *ready).await.unwrap();
        let release = block(&runtime);
        // A request that the blocked runtime never answers.
        let _waiting = TcpStream::connect(address).await.unwrap();
        stop.send(()).unwrap();
        timeout(PATIENCE, running).await.expect("the server ends").unwrap().unwrap();
        drop(release);
    });
}

#[tokio::test]
async fn health_listener_serves_health_and_metrics_alone() {
    let config = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        health: repartee::config::HealthConfig { listen: Some(([127, 0, 0, 1], 0).into()) },
        api_keys: KeySet::parse(KEY).unwrap(),
        ..Config::default()
    };
    let server = Server::bind(config, ScriptedEngine::new(Script::default())).await.unwrap();
    let (health, mut ready) = (server.health_addr().unwrap(), server.ready());
    assert_eq!(send(health, "GET", "/readyz", &[], b"").await.status, 503);
    assert_eq!(send(health, "GET", "/metrics", &[BEARER], b"").await.code(), "server_starting");
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    ready.wait_for(|ready| *ready).await.unwrap();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(send(health, "GET", path, &[], b"").await.status, 200, "{path}");
    }
    assert_eq!(send(health, "GET", "/metrics", &[], b"").await.code(), "missing_api_key");
    let wrong = [("authorization", "Bearer another-key-of-nobody")];
    assert_eq!(send(health, "GET", "/metrics", &wrong, b"").await.status, 401);
    let metrics = send(health, "GET", "/metrics", &[BEARER], b"").await;
    assert!(metrics.status == 200 && metrics.body.contains("repartee_runtime_delay_seconds"), "{metrics:?}");
    for path in ["/v1/models", "/"] {
        assert_eq!(send(health, "GET", path, &[BEARER], b"").await.status, 404, "{path}");
    }
    stop.send(()).unwrap();
    timeout(PATIENCE, running).await.expect("the server ends").unwrap().unwrap();
    assert!(TcpStream::connect(health).await.is_err(), "its listener ends with the server");
}

#[tokio::test]
async fn health_listener_without_keys_is_local() {
    let config = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        health: repartee::config::HealthConfig { listen: Some(([127, 0, 0, 1], 0).into()) },
        ..Config::default()
    };
    let server = Server::bind(config, ScriptedEngine::new(Script::default())).await.unwrap();
    let (health, mut ready) = (server.health_addr().unwrap(), server.ready());
    tokio::spawn(server.run(std::future::pending()));
    ready.wait_for(|ready| *ready).await.unwrap();
    let forwarded = [("x-forwarded-for", "203.0.113.7")];
    assert_eq!(send(health, "GET", "/healthz", &forwarded, b"").await.status, 200);
    let refused = send(health, "GET", "/metrics", &forwarded, b"").await;
    assert_eq!((refused.status, &*refused.code()), (403, "remote_caller_without_keys"));
    assert_eq!(send(health, "GET", "/metrics", &[], b"").await.status, 200);
}

#[tokio::test]
async fn flood_of_silent_connections_leaves_health_checks() {
    let server = Running::start_with(Script::default(), |config| {
        (config.limits.connections, config.limits.head) = (1, 10 * PATIENCE);
    })
    .await;
    let mut silent = Vec::new();
    // More than the reserve has places.
    for _ in 0..600 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(send(server.address, "GET", path, &[], b"").await.status, 200, "{path}");
    }
    // The first one beyond the limit made room; the last one has its place.
    let mut byte = [0; 1];
    assert_eq!(timeout(PATIENCE, silent[1].read(&mut byte)).await.expect("it is closed").unwrap_or(0), 0);
    assert!(futures_util::FutureExt::now_or_never(silent[599].read(&mut byte)).is_none());
}
