//! Recorded voices: those of one node are found on the others, and go everywhere when they are deleted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use repartee::config::{Config, VoiceConfig};
use repartee_gateway_testkit::http::{Reply, form, send};
use repartee_gateway_testkit::{PATIENCE, config};
use repartee_media::wav;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::nodes::Nodes;

const VOICES: &str = "/v1/audio/voices";
const CONSENTS: &str = "/v1/audio/voice_consents";

/// Nodes that keep voices in folders of their own.
async fn nodes(count: usize) -> (Nodes, TempDir) {
    let folder = TempDir::new().unwrap();
    let voices = VoiceConfig { folder: Some(folder.path().to_owned()), most: 4 };
    (Nodes::start_with(&vec![1; count], Config { voices, ..config() }).await, folder)
}

fn sound(seconds: f32) -> Vec<u8> {
    wav::encode(&vec![0.25; (seconds * 8_000.0) as usize], 8_000).unwrap()
}

async fn post(nodes: &Nodes, index: usize, path: &str, fields: &[(&str, &[u8])]) -> Reply {
    let (media, body) = form(fields);
    send(nodes.address(index), "POST", path, &[("content-type", &media)], &body).await
}

async fn get(nodes: &Nodes, index: usize, path: &str) -> Value {
    let reply = send(nodes.address(index), "GET", path, &[], b"").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

async fn delete(nodes: &Nodes, index: usize, path: &str, id: &str) -> (u16, String) {
    let reply = send(nodes.address(index), "DELETE", &format!("{path}/{id}"), &[], b"").await;
    (reply.status, if reply.status == 200 { String::new() } else { reply.code() })
}

/// Records a consent at a node; returns its id.
async fn consent(nodes: &Nodes, index: usize) -> String {
    let recording = sound(1.0);
    let fields: [(&str, &[u8]); 3] = [("name", b"mine"), ("language", b"en"), ("recording", &recording)];
    let reply = post(nodes, index, CONSENTS, &fields).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["id"].as_str().unwrap().to_owned()
}

/// Enrols a voice at a node; returns its id.
async fn voice(nodes: &Nodes, index: usize, consent: &str) -> String {
    let recording = sound(2.0);
    let fields: [(&str, &[u8]); 4] =
        [("name", b"Ada"), ("consent", consent.as_bytes()), ("audio_sample", &recording), ("text", b"Hello.")];
    let reply = post(nodes, index, VOICES, &fields).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["id"].as_str().unwrap().to_owned()
}

/// Returns once a node offers these recorded voices and no others, and its engine has them.
async fn offered(nodes: &Nodes, index: usize, voices: &[&str]) {
    let wanted: BTreeSet<String> = voices.iter().map(|id| (*id).to_owned()).collect();
    let begun = Instant::now();
    loop {
        let list = get(nodes, index, VOICES).await;
        let listed = list["data"].as_array().unwrap().iter().filter(|voice| voice["type"] == "audio_sample");
        let listed: BTreeSet<String> = listed.map(|voice| voice["id"].as_str().unwrap().to_owned()).collect();
        let enrolled: BTreeSet<String> = nodes.engine(index).enrolled().into_keys().collect();
        if listed == wanted && enrolled == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "node {index} lists {listed:?}, its engine has {enrolled:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn voices_are_found_on_every_node() {
    let (nodes, _folder) = nodes(3).await;
    let consent = consent(&nodes, 0).await;
    // The second request goes where the first one went, whichever node gets it.
    let voice = voice(&nodes, 1, &consent).await;
    for index in 0..3 {
        offered(&nodes, index, &[&voice]).await;
        assert_eq!(get(&nodes, index, &format!("{CONSENTS}/{consent}")).await["name"], "mine");
        assert_eq!(get(&nodes, index, CONSENTS).await["data"][0]["id"], *consent);
    }
    assert_eq!(nodes.engine(2).enrolled(), nodes.engine(0).enrolled(), "the same recording");
    let renamed =
        send(nodes.address(2), "POST", &format!("{CONSENTS}/{consent}"), &JSON, br#"{"name": "yours"}"#).await;
    assert_eq!(renamed.status, 200, "{renamed:?}");
    assert_eq!(get(&nodes, 1, &format!("{CONSENTS}/{consent}")).await["name"], "yours");
    // A consent that is taken back takes its voices everywhere.
    assert_eq!(delete(&nodes, 2, CONSENTS, &consent).await.0, 200);
    for index in 0..3 {
        offered(&nodes, index, &[]).await;
    }
    assert_eq!(delete(&nodes, 1, VOICES, &voice).await.0, 404);
}

/// Headers of a request in JSON.
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[tokio::test]
async fn deletions_reach_nodes_that_were_away() {
    let (mut nodes, _folder) = nodes(3).await;
    let consent = consent(&nodes, 0).await;
    let [first, second] = [voice(&nodes, 0, &consent).await, voice(&nodes, 0, &consent).await];
    for index in 1..3 {
        offered(&nodes, index, &[&first, &second]).await;
    }
    // One node hears nothing, and another one is not there.
    nodes.cut(1, true);
    nodes.feed(1, "stale").await;
    nodes.kill(2).await;
    assert_eq!(delete(&nodes, 0, VOICES, &first).await.0, 200);
    offered(&nodes, 0, &[&second]).await;
    offered(&nodes, 1, &[&first, &second]).await;
    nodes.cut(1, false);
    offered(&nodes, 1, &[&second]).await;
    nodes.restart(2, 1).await;
    offered(&nodes, 2, &[&second]).await;
}

#[tokio::test]
async fn copies_outlive_their_nodes_absence() {
    let (mut nodes, folder) = nodes(2).await;
    let consent = consent(&nodes, 0).await;
    let voice = voice(&nodes, 0, &consent).await;
    offered(&nodes, 1, &[&voice]).await;
    nodes.kill(0).await;
    offered(&nodes, 1, &[&voice]).await;
    // Nothing is deleted that another node would bring back.
    for (path, id) in [(VOICES, &voice), (CONSENTS, &consent)] {
        assert_eq!(delete(&nodes, 1, path, id).await, (503, "call_node_unreachable".to_owned()));
    }
    nodes.restart(0, 1).await;
    offered(&nodes, 0, &[&voice]).await;
    offered(&nodes, 1, &[&voice]).await;
    // It comes back without them.
    nodes.kill(0).await;
    std::fs::remove_dir_all(folder.path().join("0")).unwrap();
    nodes.restart(0, 1).await;
    offered(&nodes, 1, &[]).await;
}

#[tokio::test]
async fn only_nodes_get_recordings() {
    let (nodes, _folder) = nodes(1).await;
    let consent = consent(&nodes, 0).await;
    let voice = voice(&nodes, 0, &consent).await;
    for path in ["/v1/cluster/voices".to_owned(), format!("/v1/cluster/voices/{voice}")] {
        for headers in [vec![], vec![("repartee-hop", "x")]] {
            let status = send(nodes.address(0), "GET", &path, &headers, b"").await.status;
            assert!([403, 404].contains(&status), "{path}: {status}");
        }
    }
}

#[tokio::test]
async fn copies_are_bounded() {
    let (nodes, _folder) = nodes(3).await;
    let mut kept = Vec::new();
    for index in 0..2 {
        let consent = consent(&nodes, index).await;
        for _ in 0..4 {
            kept.push(voice(&nodes, index, &consent).await);
        }
    }
    // Its own voices have room, whatever the others keep.
    let begun = Instant::now();
    while nodes.engine(2).enrolled().len() < 4 {
        assert!(begun.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20)).await;
    }
    let consent = consent(&nodes, 2).await;
    let own = voice(&nodes, 2, &consent).await;
    let enrolled = nodes.engine(2).enrolled();
    assert!(enrolled.len() == 5 && enrolled.contains_key(&own), "{:?}", enrolled.keys());
}
