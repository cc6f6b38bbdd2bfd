//! Bytes of requests and large messages in memory: shares of keys, and the limit of all.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use repartee::auth::KeySet;
use repartee_testkit::scripted::Script;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use repartee_gateway_testkit::http::{self, send};
use repartee_gateway_testkit::{PATIENCE, Running};

const KEY: &str = "the-key-of-the-house";
const BEARER: (&str, &str) = ("authorization", "Bearer the-key-of-the-house");

/// Requests an ephemeral key.
async fn client_secret(server: &Running) -> String {
    let reply = send(server.address, "POST", "/v1/realtime/client_secrets", &[BEARER], b"").await;
    reply.json()["value"].as_str().unwrap().to_owned()
}

/// Opens a connection that sends `sent` of the announced bytes of an offer, and leaves it.
async fn unfinished_offer(server: &Running, key: &str, (announced, sent): (usize, usize)) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /v1/realtime/calls HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/sdp\r\ncontent-length: {announced}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses may close before it has read everything.
    let _ = socket.write_all(&vec![b'v'; sent]).await;
    socket
}

/// Waits until the server holds `wanted` bytes of requests.
async fn bytes_in_flight(server: &Running, wanted: usize) {
    let line = format!("\nrepartee_bytes_in_flight {wanted}\n");
    let metrics = async || send(server.address, "GET", "/metrics", &[BEARER], b"").await.body;
    let reached = async { while !metrics().await.contains(&line) {} };
    timeout(PATIENCE, reached).await.expect("so many bytes in time");
}

#[tokio::test]
async fn bytes_of_offers_are_shared_by_ephemeral_keys() {
    const LARGE: usize = 1 << 20;
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse(KEY).unwrap();
        // A sixteenth is four offers.
        config.limits.bytes_in_flight = 64 * LARGE as u64;
    })
    .await;
    let (greedy, modest) = (client_secret(&server).await, client_secret(&server).await);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(unfinished_offer(&server, &greedy, (LARGE, LARGE - 1)).await);
    }
    bytes_in_flight(&server, 4 * LARGE).await;
    let refused = http::read(unfinished_offer(&server, &greedy, (100, 100)).await).await;
    assert_eq!((refused.status, &*refused.code()), (429, "bytes_limit_reached"));
    assert!(refused.body.contains("limits.bytes_in_flight") && refused.body.contains("ephemeral key"), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    // Others are read, and so is this key once its offers are gone.
    let other = http::read(unfinished_offer(&server, &modest, (100, 100)).await).await;
    assert_eq!((other.status, &*other.code()), (400, "invalid_offer"));
    drop(held);
    bytes_in_flight(&server, 0).await;
    assert_eq!(http::read(unfinished_offer(&server, &greedy, (100, 100)).await).await.status, 400);
    let metrics = send(server.address, "GET", "/metrics", &[BEARER], b"").await.body;
    assert!(metrics.contains("repartee_refused_total{reason=\"bytes\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn an_api_key_leaves_others_half() {
    const LARGE: usize = 1 << 20;
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse(&format!("{KEY}\nthe-key-of-the-neighbour")).unwrap();
        config.limits.bytes_in_flight = 64 * LARGE as u64;
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..32 {
        held.push(unfinished_offer(&server, KEY, (LARGE, LARGE - 1)).await);
    }
    bytes_in_flight(&server, 32 * LARGE).await;
    let refused = http::read(unfinished_offer(&server, KEY, (100, 100)).await).await;
    assert_eq!((refused.status, &*refused.code()), (429, "bytes_limit_reached"));
    for _ in 0..32 {
        held.push(unfinished_offer(&server, "the-key-of-the-neighbour", (LARGE, LARGE - 1)).await);
    }
    bytes_in_flight(&server, 64 * LARGE).await;
    let full = http::read(unfinished_offer(&server, KEY, (100, 100)).await).await;
    assert_eq!((full.status, &*full.code()), (503, "bytes_limit_reached"));
    assert!(full.header("retry-after").is_some());
}

#[tokio::test]
async fn large_messages_wait_for_their_keys_share() {
    const LARGE: usize = 1 << 20;
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse(KEY).unwrap();
        config.limits.bytes_in_flight = 64 * LARGE as u64;
        config.limits.request = Duration::from_secs(5);
    })
    .await;
    let connect = async |key: &str| {
        let mut client = server.dial_with(&[("authorization", &format!("Bearer {key}"))]).await.unwrap();
        client.expect("session.created").await;
        client
    };
    let (greedy, modest) = (client_secret(&server).await, client_secret(&server).await);
    let offers = async || {
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(unfinished_offer(&server, &greedy, (LARGE, LARGE - 1)).await);
        }
        bytes_in_flight(&server, 4 * LARGE).await;
        held
    };
    let large = format!(r#"{{"type":"input_audio_buffer.append","audio":"%{}"}}"#, "A".repeat(2 * LARGE));
    let (mut waiting, mut other) = (connect(&greedy).await, connect(&modest).await);
    let held = offers().await;
    waiting.send_text("{}").await;
    waiting.error("missing_required_parameter").await;
    waiting.send_text(large.clone()).await;
    other.send_text(large.clone()).await;
    other.error("invalid_audio").await;
    assert!(waiting.socket.next().now_or_never().is_none(), "a large message has no room, and waits");
    drop(held);
    waiting.error("invalid_audio").await;
    // One that finds no room in time is refused, and the connection ends.
    let _held = offers().await;
    waiting.send_text(large).await;
    let error = waiting.error("bytes_limit_reached").await;
    assert!(error["message"].as_str().unwrap().contains("limits.bytes_in_flight"), "{error}");
    let Some(Message::Close(Some(frame))) = waiting.message().await else { panic!("a farewell") };
    assert_eq!(u16::from(frame.code), 1013);
    server.sessions(1).await;
    let metrics = send(server.address, "GET", "/metrics", &[BEARER], b"").await.body;
    assert!(metrics.contains("repartee_refused_total{reason=\"bytes\"} 1\n"), "{metrics}");
    // Nothing stays counted: the offers alone are.
    bytes_in_flight(&server, 4 * LARGE).await;
}
