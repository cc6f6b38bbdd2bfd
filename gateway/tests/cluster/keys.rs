//! Ephemeral keys: every node takes those of every other one.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use repartee_cluster::{ClusterSecrets, KeyGrant, KeySession, KeySigner};
use repartee_gateway_testkit::Client;
use repartee_gateway_testkit::http::{Reply, send};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::nodes::{Nodes, SECRET};

/// API key of the nodes.
pub const KEY: &str = "the-key-of-the-cluster";

/// Session with instructions.
fn instructed(instructions: &str) -> Value {
    json!({"type": "realtime", "instructions": instructions})
}

/// Issues a key for a session at a node.
pub async fn issue(nodes: &Nodes, index: usize, session: &Value) -> String {
    let body = json!({"session": session}).to_string();
    let headers = [("authorization", &*format!("Bearer {KEY}"))];
    let path = "/v1/realtime/client_secrets";
    let reply = send(nodes.address(index), "POST", path, &headers, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["value"].as_str().unwrap().to_owned()
}

/// Sends a request that an ephemeral key may send.
async fn used(nodes: &Nodes, index: usize, key: &str) -> Reply {
    let headers = [("authorization", &*format!("Bearer {key}"))];
    send(nodes.address(index), "GET", "/v1/realtime/ice_servers", &headers, b"").await
}

/// Session of a call that the key opens.
async fn opened(nodes: &Nodes, index: usize, key: &str) -> Value {
    let url = format!("ws://{}/v1/realtime", nodes.address(index));
    let mut request = url.into_client_request().unwrap();
    let protocols = format!("realtime, openai-insecure-api-key.{key}");
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    let (socket, _) = connect_async(request).await.unwrap();
    Client { socket }.expect("session.created").await["session"].clone()
}

#[tokio::test]
async fn keys_count_on_every_node() {
    let mut nodes = Nodes::keyed(&[2, 2], KEY).await;
    let key = issue(&nodes, 0, &instructed("Be brief.")).await;
    for index in 0..2 {
        assert_eq!(opened(&nodes, index, &key).await["instructions"], "Be brief.");
    }
    // The key itself holds the session: its issuer is not needed.
    nodes.kill(0).await;
    assert_eq!(opened(&nodes, 1, &key).await["instructions"], "Be brief.");
}

#[tokio::test]
async fn large_sessions_come_from_the_issuer() {
    let mut nodes = Nodes::keyed(&[4, 4], KEY).await;
    let long = "Be brief. ".repeat(1_000);
    let key = issue(&nodes, 0, &instructed(&long)).await;
    assert!(key.len() < 512, "{}", key.len());
    for index in 0..2 {
        assert_eq!(opened(&nodes, index, &key).await["instructions"], *long);
    }
    // Nobody but a node gets them.
    let path = format!("/v1/cluster/key_sessions/{}", nonce(&key));
    for headers in [vec![], vec![("authorization", KEY)], vec![("repartee-hop", "x")]] {
        let status = send(nodes.address(0), "GET", &path, &headers, b"").await.status;
        assert!([403, 404].contains(&status), "{status}");
    }
    let unseen = issue(&nodes, 0, &instructed(&long)).await;
    nodes.kill(0).await;
    // A node that has asked once needs the issuer no more.
    assert_eq!(opened(&nodes, 1, &key).await["instructions"], *long);
    let reply = used(&nodes, 1, &unseen).await;
    assert_eq!((reply.status, &*reply.code()), (503, "key_issuer_unreachable"));
    assert!(reply.header("retry-after").is_some());
}

#[tokio::test]
async fn forged_and_expired_keys_are_refused() {
    let nodes = Nodes::keyed(&[1, 1], KEY).await;
    let good = issue(&nodes, 0, &instructed("Be brief.")).await;
    assert_eq!(used(&nodes, 1, &good).await.status, 200);
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let grant = |until| KeyGrant {
        until,
        owner: None,
        issuer: nodes.tag(0).parse().unwrap(),
        nonce: [7; 16],
        session: KeySession::Inside(json!({})),
    };
    let signed = |secret: &str, grant: &KeyGrant| {
        KeySigner::new(&ClusterSecrets::new(secret, None).unwrap()).issue(grant).unwrap()
    };
    let other = SECRET.replace('0', "1");
    let changed = good.replacen("eyJ", "eyI", 1);
    assert_ne!(changed, good);
    let unheld = KeyGrant { session: KeySession::AtIssuer, ..grant(unix + 60) };
    let stranger = KeyGrant { owner: Some(7), ..grant(unix + 60) };
    let expired = [signed(SECRET, &grant(unix - 60)), signed(SECRET, &unheld), signed(SECRET, &stranger)];
    // What the issuer counts it by is no key.
    let bare = format!("ek_{}_{}", nodes.tag(0), hex(&nonce(&good)));
    let wrong = [changed, signed(&other, &grant(unix + 60)), bare];
    let expired = expired.map(|key| (key, "expired_api_key"));
    for (forged, code) in expired.into_iter().chain(wrong.map(|key| (key, "invalid_api_key"))) {
        for index in 0..2 {
            let reply = used(&nodes, index, &forged).await;
            assert_eq!((reply.status, &*reply.code()), (401, code), "{forged}");
        }
    }
    assert_eq!(used(&nodes, 1, &signed(SECRET, &grant(unix + 60))).await.status, 200);
}

/// Nonce in a key, in base64url.
fn nonce(key: &str) -> String {
    let content = URL_SAFE_NO_PAD.decode(key.split('.').nth(1).unwrap()).unwrap();
    let content: Value = serde_json::from_slice(&content).unwrap();
    content["n"].as_str().unwrap().to_owned()
}

/// A nonce in hexadecimal.
fn hex(nonce: &str) -> String {
    URL_SAFE_NO_PAD.decode(nonce).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}
