//! Recorded voices: those of one node are found on the others, and go everywhere when they are deleted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use repartee::config::{Config, VoiceConfig};
use repartee_cluster::NodeHome;
use repartee_gateway_testkit::http::{Reply, form, send};
use repartee_gateway_testkit::{PATIENCE, config};
use repartee_media::wav;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::nodes::{Nodes, connect};
use super::other_node::{OtherNode, answer, read_head};

const VOICES: &str = "/v1/audio/voices";
const CONSENTS: &str = "/v1/audio/voice_consents";
/// Headers of a request in JSON.
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

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

/// Recorded voices that a node lists; none while its engine has others.
async fn voices_of(nodes: &Nodes, index: usize) -> Option<BTreeSet<String>> {
    let list = get(nodes, index, VOICES).await;
    let listed = list["data"].as_array().unwrap().iter().filter(|voice| voice["type"] == "audio_sample");
    let listed: BTreeSet<String> = listed.map(|voice| voice["id"].as_str().unwrap().to_owned()).collect();
    let enrolled: BTreeSet<String> = nodes.engine(index).enrolled().into_keys().collect();
    (listed == enrolled).then_some(listed)
}

/// Asserts that a node offers these recorded voices and no others now.
async fn offers(nodes: &Nodes, index: usize, voices: &[&str]) {
    let wanted: BTreeSet<String> = voices.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(voices_of(nodes, index).await, Some(wanted), "node {index}");
}

/// Returns once a node offers these recorded voices and no others: for nodes that were away.
async fn offered(nodes: &Nodes, index: usize, voices: &[&str]) {
    let wanted = Some(voices.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<String>>());
    let begun = Instant::now();
    loop {
        let present = voices_of(nodes, index).await;
        if present == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "node {index} offers {present:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Status of a request for speech with a voice.
async fn speak(nodes: &Nodes, index: usize, voice: &str) -> u16 {
    let body = json!({"input": "Hello.", "voice": {"id": voice}, "response_format": "pcm"}).to_string();
    send(nodes.address(index), "POST", "/v1/audio/speech", &JSON, body.as_bytes()).await.status
}

/// Renames a consent through a node.
async fn rename(nodes: &Nodes, index: usize, consent: &str, name: &str) {
    let (path, body) = (format!("{CONSENTS}/{consent}"), json!({"name": name}).to_string());
    let reply = send(nodes.address(index), "POST", &path, &JSON, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test]
async fn voices_are_found_on_every_node() {
    let (nodes, _folder) = nodes(3).await;
    let consent = consent(&nodes, 0).await;
    // The second request goes where the first one went, whichever node gets it.
    let voice = voice(&nodes, 1, &consent).await;
    for index in 0..3 {
        offers(&nodes, index, &[&voice]).await;
        assert_eq!(get(&nodes, index, &format!("{CONSENTS}/{consent}")).await["name"], "mine");
        assert_eq!(get(&nodes, index, CONSENTS).await["data"][0]["id"], *consent);
    }
    assert_eq!(nodes.engine(2).enrolled(), nodes.engine(0).enrolled(), "the same recording");
    rename(&nodes, 2, &consent, "yours").await;
    assert_eq!(get(&nodes, 1, &format!("{CONSENTS}/{consent}")).await["name"], "yours");
    // A consent that is taken back takes its voices everywhere.
    assert_eq!(delete(&nodes, 2, CONSENTS, &consent).await.0, 200);
    for index in 0..3 {
        offers(&nodes, index, &[]).await;
    }
    assert_eq!(delete(&nodes, 1, VOICES, &voice).await.0, 404);
}

#[tokio::test]
async fn new_voices_speak_on_every_node() {
    let (nodes, _folder) = nodes(3).await;
    let consent = consent(&nodes, 0).await;
    let voice = voice(&nodes, 1, &consent).await;
    for index in [2, 1, 0] {
        let (mut call, _) = connect(nodes.address(index)).await.unwrap();
        let output = json!({"output": {"voice": &voice}});
        let updated = call.update(json!({"type": "realtime", "audio": output})).await;
        assert_eq!(updated["audio"]["output"]["voice"], *voice, "node {index}");
        drop(call);
        nodes.sessions(&[0; 3]).await;
        assert_eq!(speak(&nodes, index, &voice).await, 200, "node {index}");
        nodes.sessions(&[0; 3]).await;
    }
    assert_eq!(delete(&nodes, 2, VOICES, &voice).await.0, 200);
    for index in 0..3 {
        assert_eq!(speak(&nodes, index, &voice).await, 400, "node {index}");
    }
}

#[tokio::test]
async fn unheard_voices_are_fetched_on_demand() {
    let (nodes, _folder) = nodes(2).await;
    let consent = consent(&nodes, 0).await;
    // It hears nothing, and nobody tells it.
    nodes.cut(1, true);
    nodes.feed(1, "stale").await;
    nodes.listed(0, |list| list["data"][1]["state"] == "silent").await;
    let voice = voice(&nodes, 0, &consent).await;
    offers(&nodes, 1, &[]).await;
    let random = voice.rsplit('_').next().unwrap();
    assert_eq!(speak(&nodes, 1, &voice.replace(random, &"0".repeat(32))).await, 400, "nobody has made it");
    assert_eq!(speak(&nodes, 1, &voice).await, 200);
    offers(&nodes, 1, &[&voice]).await;
}

#[tokio::test]
async fn slow_enrolments_are_not_cut_short() {
    let (nodes, _folder) = nodes(1).await;
    let other = OtherNode::join(&nodes).await;
    let consent = format!("cons_{}_{}", NodeHome::of_name("other"), "0".repeat(32));
    let enrolled = async {
        let mut request = other.accept().await;
        read_head(&mut request, "POST /v1/audio/voices ").await;
        // It is asked once a second: in the eleventh second others would have given up.
        for _ in 0..12 {
            let mut doubt = other.accept().await;
            read_head(&mut doubt, "HEAD /healthz ").await;
            answer(&mut doubt, "").await;
        }
        answer(&mut request, "connection: close\r\n").await;
        let _ = tokio::io::copy(&mut request, &mut tokio::io::sink()).await;
    };
    let recording = sound(2.0);
    let fields: [(&str, &[u8]); 4] =
        [("name", b"Ada"), ("consent", consent.as_bytes()), ("audio_sample", &recording), ("text", b"Hello.")];
    let (reply, ()) = tokio::join!(post(&nodes, 0, VOICES, &fields), enrolled);
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test]
async fn deletions_reach_nodes_that_were_away() {
    let (mut nodes, _folder) = nodes(3).await;
    let consent = consent(&nodes, 0).await;
    let [first, second] = [voice(&nodes, 0, &consent).await, voice(&nodes, 0, &consent).await];
    for index in 1..3 {
        offers(&nodes, index, &[&first, &second]).await;
    }
    // One node hears nothing, and another one is not there.
    nodes.cut(1, true);
    nodes.feed(1, "stale").await;
    nodes.listed(0, |list| list["data"][1]["state"] == "silent").await;
    nodes.kill(2).await;
    assert_eq!(delete(&nodes, 0, VOICES, &first).await.0, 200);
    offers(&nodes, 0, &[&second]).await;
    offers(&nodes, 1, &[&first, &second]).await;
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
    offers(&nodes, 1, &[&voice]).await;
    nodes.kill(0).await;
    offers(&nodes, 1, &[&voice]).await;
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
    let told = send(nodes.address(0), "POST", "/v1/cluster/voice_changes", &[], b"").await;
    assert_eq!(told.status, 404, "{told:?}");
}

#[tokio::test]
async fn copies_are_bounded() {
    let (nodes, _folder) = nodes(3).await;
    let mut consents = Vec::new();
    for index in 0..2 {
        let consent = consent(&nodes, index).await;
        for _ in 0..4 {
            voice(&nodes, index, &consent).await;
        }
        consents.push(consent);
    }
    // Each node's list is taken whole before it is taken again: with the second name all voices of the first have been tried.
    for (name, consent) in ["first", "second"].iter().flat_map(|name| consents.iter().map(move |id| (name, id))) {
        rename(&nodes, 0, consent, name).await;
        let begun = Instant::now();
        while !names(&nodes, 2).await.contains(&((*consent).clone(), (*name).to_owned())) {
            assert!(begun.elapsed() < PATIENCE);
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(nodes.engine(2).enrolled().len(), 4, "of eight");
    // Its own voices have room, whatever the others keep.
    let consent = consent(&nodes, 2).await;
    let own = voice(&nodes, 2, &consent).await;
    let enrolled = nodes.engine(2).enrolled();
    assert!(enrolled.len() == 5 && enrolled.contains_key(&own), "{:?}", enrolled.keys());
}

/// Ids and names of the consents that a node lists.
async fn names(nodes: &Nodes, index: usize) -> Vec<(String, String)> {
    let list = get(nodes, index, CONSENTS).await;
    let text = |consent: &Value, field: &str| consent[field].as_str().unwrap().to_owned();
    list["data"].as_array().unwrap().iter().map(|consent| (text(consent, "id"), text(consent, "name"))).collect()
}
