//! Forged ids, requests and messages.

use std::time::SystemTime;

use repartee_cluster::{
    BeatCodec, BeatMessage, ClusterSecrets, Hop, HopSigner, MessageKind, NodeLoad, NodePhase, NodeRecord,
};
use repartee_gateway_testkit::http::send;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::processes::{CELL, Launch, SDP, SECRET, World, call_id, fresh};
use super::row;

/// Another secret than that of the nodes.
const OTHER: &str = "fedcba9876543210fedcba9876543210";

#[tokio::test]
async fn forged_ids_and_hops_are_refused() {
    let world = World::start(1, &[1, 4]).await;
    let id = call_id(&world.offer(1).await);
    let random = id.rsplit('_').next().unwrap();
    let mut refused = 0;
    for forged in [format!("rtc_00000000_{random}"), format!("rtc_127.0.0.1_{random}"), id.replace(random, "0")] {
        assert_eq!(world.hang_up(0, &forged).await.status, 404, "{forged}");
        refused += 1;
    }
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let hop = Hop { from: "00000001".parse().unwrap(), client: [127, 0, 0, 1].into() };
    let header = |secret: &str, unix| {
        HopSigner::new(&ClusterSecrets::new(secret, None).unwrap()).sign(&hop, "POST", "/v1/realtime/calls", unix)
    };
    for forged in [header(OTHER, unix), header(SECRET, unix - 120), header(SECRET, unix + 120), "x".to_owned()] {
        let headers = [SDP[0], ("repartee-hop", &*forged)];
        let reply = send(world.nodes[0].address, "POST", "/v1/realtime/calls", &headers, b"v=0").await;
        assert_eq!(reply.status, 403, "{forged}");
        refused += 1;
    }
    row(
        "forged ids; forwarded requests with another secret, replayed later, from the future",
        "404; 403",
        &format!("{refused} of 7 refused"),
    );
}

#[tokio::test]
async fn forged_messages_change_nothing() {
    let mut world = World::start(1, &[4, 4]).await;
    world.add(&Launch { secret: OTHER, ..Launch::new(4) }).await;
    let secrets = ClusterSecrets::new(SECRET, None).unwrap();
    let record = record("stranger");
    let good = BeatCodec::new(&secrets, CELL).encode(&BeatMessage::new(MessageKind::Beat, 1, record.clone()));
    let other_cell = BeatCodec::new(&secrets, "other").encode(&BeatMessage::new(MessageKind::Beat, 1, record));
    // A record that was changed after it was signed.
    let changed = String::from_utf8(good.clone()).unwrap().replace("127.0.0.1:1", "127.0.0.1:2").into_bytes();
    let before = world.list(0).await["messages"]["refused"].clone();
    for bytes in [vec![b'x'; 1 << 20], b"\xff\x00garbage".to_vec(), changed, other_cell] {
        publish(world.nats_port(), &bytes).await;
    }
    let count = |list: &serde_json::Value, label: &str| {
        list["messages"]["refused"][label].as_u64().unwrap() - before[label].as_u64().unwrap()
    };
    let counted = |list: &serde_json::Value| {
        count(list, "too_large") == 1 && count(list, "form") == 1 && count(list, "signature") == 2
    };
    for index in 0..2 {
        world.wait_for(index, |list| list["messages"]["refused"]["unknown_secret"].as_u64() > Some(0)).await;
    }
    world.wait_for(0, counted).await;
    let list = world.list(0).await;
    assert_eq!(fresh(&list), 2, "{list}");
    // A message of a later version adds fields, and is taken.
    let later = later_version(&secrets, &good);
    publish(world.nats_port(), &later).await;
    world.wait_for(0, |list| fresh(list) == 3).await;
    row(
        "messages: 1 MB, garbage, changed after signing, of another cell, of a node with another secret, of a later version",
        "refused and counted; a later version is taken",
        "1, 1, 1, 1 and the node's beats refused; the later version taken",
    );
}

/// Record of a node that nobody has started, with free slots.
pub fn record(name: &str) -> NodeRecord {
    NodeRecord {
        tag: "00000001".parse().unwrap(),
        name: name.to_owned(),
        incarnation: 1,
        address: "127.0.0.1:1".to_owned(),
        zone: String::new(),
        model: "demo".to_owned(),
        version: "0.1.0".to_owned(),
        phase: NodePhase::Serving,
        load: NodeLoad { slots: 100, free: 100, first_packet_p95_ms: None },
        keys: Vec::new(),
        voices: 0,
    }
}

/// The same message with a higher version and one field more, signed again.
fn later_version(secrets: &ClusterSecrets, message: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(message).unwrap();
    let json = text.splitn(4, '.').nth(3).unwrap().replacen("\"v\":1", "\"v\":9,\"added\":[1]", 1);
    let sealed = secrets.sealer(&format!("beat of {CELL}")).sign(json.as_bytes());
    format!("repartee1.{sealed}.{json}").into_bytes()
}

/// Publishes bytes to the nodes of the cell.
async fn publish(port: u16, bytes: &[u8]) {
    let mut server = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    let mut line = String::new();
    server.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("INFO"), "{line}");
    let head = format!("CONNECT {{\"verbose\":false}}\r\nPUB repartee.{CELL}.beat {}\r\n", bytes.len());
    server.write_all(&[head.as_bytes(), bytes, b"\r\nPING\r\n"].concat()).await.unwrap();
    line.clear();
    server.read_line(&mut line).await.unwrap();
    assert_eq!(line.trim(), "PONG");
}
