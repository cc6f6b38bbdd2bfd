//! Limits of API keys over all nodes.

use repartee::auth::{KeyId, KeySet};
use repartee::cluster::bus::Bus as _;
use repartee::config::Config;
use repartee_cluster::{BeatMessage, KeyUse, MessageKind};
use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{PATIENCE, config};
use tokio::time::timeout;

use super::nodes::{KEY, Nodes, OFFER, SDP};
use super::other_node;

/// Two keys of the nodes.
const KEYS: [&str; 2] = [KEY, "the-second-key-of-the-cluster"];

fn limited(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config { api_keys: KeySet::parse(&KEYS.join("\n")).unwrap(), ..config() };
    change(&mut config);
    config
}

/// Asks a node for a call with a key.
async fn offer(nodes: &Nodes, index: usize, key: &str) -> Reply {
    let headers = [SDP[0], ("authorization", &*format!("Bearer {key}"))];
    send(nodes.address(index), "POST", "/v1/realtime/calls", &headers, OFFER.as_bytes()).await
}

/// Returns once these nodes have told these calls of the first key twice, so that the others have heard it once.
async fn told(nodes: &Nodes, calls: &[u32]) {
    let (mut messages, codec) = nodes.listen();
    let mut left: Vec<(String, u32, u32)> =
        calls.iter().enumerate().map(|(index, calls)| (nodes.tag(index).to_owned(), *calls, 2)).collect();
    let waits = async {
        while left.iter().any(|(.., times)| *times > 0) {
            let record = codec.decode(&messages.next().await.unwrap()).unwrap().record;
            let told = record.keys.first().map_or(0, |of_key| of_key.calls);
            for (tag, calls, times) in &mut left {
                *times -= u32::from(*tag == record.tag.to_string() && *calls == told && *times > 0);
            }
        }
    };
    timeout(PATIENCE, waits).await.expect("messages in time");
}

/// Nodes of four slots each, with a call of the first key on both, of two that it may have.
async fn with_a_call_each() -> Nodes {
    let nodes = Nodes::start_with(&[4, 4], limited(|config| config.limits.calls_per_key = 2)).await;
    for _ in 0..2 {
        assert_eq!(offer(&nodes, 0, KEYS[0]).await.status, 201);
    }
    // The second one goes where more is free.
    nodes.sessions(&[1, 1]).await;
    told(&nodes, &[1, 1]).await;
    nodes
}

#[tokio::test]
async fn calls_per_key_count_on_all_nodes() {
    let nodes = with_a_call_each().await;
    for index in 0..2 {
        let reply = offer(&nodes, index, KEYS[0]).await;
        assert_eq!((reply.status, &*reply.code()), (429, "call_limit_reached"), "{reply:?}");
        assert!(reply.body.contains("limits.calls_per_key: this key has 2 calls"), "{reply:?}");
        assert_eq!(offer(&nodes, index, KEYS[1]).await.status, 201, "the other key has none");
    }
}

#[tokio::test]
async fn several_keys_share_all_nodes_slots() {
    let nodes = Nodes::start_with(&[4, 4], limited(|_| {})).await;
    for call in 0..4 {
        assert_eq!(offer(&nodes, call % 2, KEYS[0]).await.status, 201);
    }
    nodes.sessions(&[2, 2]).await;
    told(&nodes, &[2, 2]).await;
    for index in 0..2 {
        assert_eq!(offer(&nodes, index, KEYS[0]).await.status, 429, "half of eight");
        assert_eq!(offer(&nodes, index, KEYS[1]).await.status, 201);
    }
}

#[tokio::test]
async fn without_the_bus_each_node_limits_alone() {
    let nodes = with_a_call_each().await;
    assert_eq!(offer(&nodes, 1, KEYS[0]).await.status, 429);
    nodes.cut(1, true);
    nodes.feed(1, "stale").await;
    assert_eq!(offer(&nodes, 1, KEYS[0]).await.status, 201);
}

#[tokio::test]
async fn tokens_of_other_nodes_are_charged() {
    let config = limited(|config| {
        (config.limits.prefill_tokens_per_minute, config.limits.calls_per_key) = (1_000, 100);
    });
    let nodes = Nodes::start_with(&[100], config).await;
    assert_eq!(offer(&nodes, 0, KEYS[0]).await.status, 201);
    // A node that has just begun computes much for the first key: a full minute, and another one.
    let mut record = other_node::record("127.0.0.1:1");
    let (mut bus, codec) = nodes.listen();
    for seq in 1..=2 {
        let prefill = u32::try_from(seq).unwrap() * 1_000;
        record.keys = vec![KeyUse { key: KeyId::of_key(KEYS[0]).into(), prefill, ..KeyUse::default() }];
        let message = BeatMessage::new(MessageKind::Beat, seq, record.clone());
        bus.publish(MessageKind::Beat, codec.encode(&message)).await;
    }
    nodes.listed(0, |list| list["messages"]["taken"] == 2).await;
    let reply = offer(&nodes, 0, KEYS[0]).await;
    assert_eq!(reply.status, 429, "{reply:?}");
    assert!(reply.body.contains("prefill_tokens_per_minute"), "{reply:?}");
    assert_eq!(offer(&nodes, 0, KEYS[1]).await.status, 201);
}
