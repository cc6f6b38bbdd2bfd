//! Several servers of one process as the nodes of a cluster, over the bus in memory, and over NATS.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod connections;
mod cut_member;
mod key_limits;
mod keys;
mod models;
mod nats;
mod nodes;
mod other_node;
mod settings;
mod voices;

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use repartee::cluster::bus::Bus as _;
use repartee_cluster::{ClusterSecrets, Hop, HopSigner, MessageKind, NodePhase};
use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{PATIENCE, find};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error;

use self::nodes::{Nodes, OFFER, SDP, SECRET, attach, connect, refusal, tag};

#[tokio::test]
async fn a_full_node_forwards_websockets() {
    let nodes = Nodes::start(&[1, 1]).await;
    let (_first, own) = connect(nodes.address(0)).await.unwrap();
    let (mut second, other) = connect(nodes.address(0)).await.unwrap();
    assert_ne!(tag(&own), tag(&other), "{own} {other}");
    nodes.sessions(&[1, 1]).await;
    let events = second.ask("Hello?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    assert_eq!(refusal(connect(nodes.address(0)).await), (503, "session_limit_reached".to_owned(), true));
    drop(second);
    nodes.sessions(&[1, 0]).await;
}

#[tokio::test]
async fn a_hundred_offers_fill_ten_slots() {
    let nodes = Nodes::start(&[4, 3, 3]).await;
    let offer = |at: usize| send(nodes.address(at % 3), "POST", "/v1/realtime/calls", &SDP, OFFER.as_bytes());
    let replies = join_all((0..100).map(offer)).await;
    let admitted: Vec<_> = replies.iter().filter(|reply| reply.status == 201).collect();
    assert_eq!(admitted.len(), 10);
    let metrics = send(nodes.address(0), "GET", "/metrics", &[], b"").await.body;
    for line in [
        "repartee_cluster_nodes{state=\"own\"} 1",
        "repartee_cluster_nodes{state=\"fresh\"} 2",
        "repartee_cluster_slots 10",
        "repartee_cluster_feed_live 1",
        "repartee_cluster_messages_total{outcome=\"signature\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    for refused in replies.iter().filter(|reply| reply.status != 201) {
        assert_eq!((refused.status, &*refused.code()), (503, "session_limit_reached"), "{refused:?}");
        assert!(refused.header("retry-after").is_some());
    }
    nodes.sessions(&[4, 3, 3]).await;
    let mut owners: Vec<_> = admitted.iter().map(|reply| tag(reply.header("location").unwrap())).collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 3);
}

#[tokio::test]
async fn owners_answer_for_their_calls() {
    let nodes = Nodes::start(&[0, 1]).await;
    let reply = send(nodes.address(0), "POST", "/v1/realtime/calls", &SDP, OFFER.as_bytes()).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let location = reply.header("location").unwrap();
    let id = location.rsplit('/').next().unwrap();
    let mut sideband = attach(nodes.address(0), id).await.unwrap();
    sideband.expect("session.created").await;
    sideband.update(serde_json::json!({"type": "realtime", "instructions": "Be brief."})).await;
    let hang_up = async |id: &str| {
        let path = format!("/v1/realtime/calls/{id}/hangup");
        send(nodes.address(0), "POST", &path, &[], b"").await
    };
    // Forged ids, and one of a tag that no node has.
    let random = id.rsplit('_').next().unwrap();
    for forged in [format!("rtc_00000000_{random}"), format!("rtc_10.0.0.1_{random}"), id.replace(random, "0")] {
        let reply = hang_up(&forged).await;
        assert_eq!((reply.status, &*reply.code()), (404, "call_not_found"), "{forged}");
        assert!(matches!(attach(nodes.address(0), &forged).await, Err(Error::Http(reply)) if reply.status() == 404));
    }
    assert_eq!(hang_up(id).await.status, 200);
    nodes.sessions(&[0, 0]).await;
    assert_eq!(hang_up(id).await.status, 200, "it has ended already");
}

#[tokio::test]
async fn forged_hops_are_refused() {
    let nodes = Nodes::start(&[0, 1]).await;
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let hop = Hop { from: "00000001".parse().unwrap(), client: [127, 0, 0, 1].into() };
    let signed = |secret: &str, unix| {
        let signer = HopSigner::new(&ClusterSecrets::new(secret, None).unwrap());
        signer.sign(&hop, "POST", "/v1/realtime/calls", unix)
    };
    let offer = async |header: &str| {
        let headers = [SDP[0], ("repartee-hop", header)];
        send(nodes.address(0), "POST", "/v1/realtime/calls", &headers, OFFER.as_bytes()).await
    };
    let other = SECRET.replace('0', "1");
    for forged in [signed(&other, unix), signed(SECRET, unix - 3_600), "nonsense".to_owned()] {
        assert_eq!(offer(&forged).await.status, 403, "{forged}");
    }
    // A node that got a forwarded call forwards it to nobody, though another one has a slot.
    let reply = offer(&signed(SECRET, unix)).await;
    assert_eq!((reply.status, reply.header("repartee-hop")), (503, Some("full")));
    nodes.sessions(&[0, 0]).await;
}

#[tokio::test]
async fn nodes_of_another_secret_are_not_heard() {
    let mut nodes = Nodes::start(&[0, 1]).await;
    nodes.add(5, &SECRET.replace('0', "1")).await;
    nodes.wait(0, 2).await;
    let (_call, _) = connect(nodes.address(0)).await.unwrap();
    assert_eq!(refusal(connect(nodes.address(0)).await).0, 503);
    nodes.sessions(&[0, 1, 0]).await;
}

#[tokio::test]
async fn a_dead_node_is_routed_round() {
    let mut nodes = Nodes::start(&[0, 8, 1]).await;
    nodes.kill(1).await;
    // The table still has it, and it seems to be the freest.
    let begun = std::time::Instant::now();
    let (_call, id) = connect(nodes.address(0)).await.unwrap();
    assert_eq!(tag(&id), nodes.tag(2));
    let metrics = send(nodes.address(0), "GET", "/metrics", &[], b"").await.body;
    for outcome in ["failed", "answered"] {
        let line = format!("repartee_cluster_forwards_total{{outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_draining_node_takes_no_calls() {
    let mut nodes = Nodes::start(&[4, 4]).await;
    let (mut messages, codec) = nodes.listen();
    nodes.stop(1).await;
    // It says that it drains, and then that it ends.
    let mut said = Vec::new();
    let bye = async {
        while said.last() != Some(&(MessageKind::Bye, NodePhase::Draining)) {
            let message = codec.decode(&messages.next().await.unwrap()).unwrap();
            if message.record.tag.to_string() == nodes.tag(1) {
                said.push((message.kind, message.record.phase));
            }
        }
    };
    timeout(PATIENCE, bye).await.expect("a bye");
    assert!(said.contains(&(MessageKind::Beat, NodePhase::Draining)), "{said:?}");
    nodes.wait(0, 1).await;
    for _ in 0..4 {
        let (_call, id) = connect(nodes.address(0)).await.unwrap();
        assert_eq!(tag(&id), nodes.tag(0));
    }
}
