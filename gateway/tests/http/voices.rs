//! `/v1/audio/voices` and `/v1/audio/voice_consents`: voices enrolled from recordings.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use repartee::config::Config;
use repartee::server::StartingServer;
use repartee_engine_api::{Command, EnrolError, ModelInfo, OpenError, Recording, SessionHandle, SpeechEngine};
use repartee_media::wav;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;

use repartee_gateway_testkit::http::{Reply, send, send_form};
use repartee_gateway_testkit::{PATIENCE, Running};

const CONSENTS: &str = "/v1/audio/voice_consents";
const VOICES: &str = "/v1/audio/voices";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn start(folder: Option<&TempDir>) -> Running {
    let script = Script { accepts_enrolment: true, ..Script::default() };
    Running::start_with(script, |config| config.voices.folder = folder.map(|folder| folder.path().to_owned())).await
}

/// Wav file of this many seconds of sound.
fn sound(seconds: usize) -> Vec<u8> {
    wav::encode(&vec![0.25; seconds * 8_000], 8_000).unwrap()
}

/// Names and contents of a form's fields.
type Fields<'a> = &'a [(&'a str, &'a [u8])];

async fn get(server: &Running, path: &str) -> Value {
    let reply = send(server.address, "GET", path, &[], b"").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

async fn consent(address: SocketAddr) -> String {
    let fields: [(&str, &[u8]); 3] = [("name", b"mine"), ("language", b"en-US"), ("recording", &sound(1))];
    let reply = send_form(address, CONSENTS, &fields).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let consent = reply.json();
    assert_eq!((&consent["object"], &consent["name"]), (&json!("audio.voice_consent"), &json!("mine")));
    consent["id"].as_str().unwrap().to_owned()
}

async fn voice(address: SocketAddr, consent: &str) -> Reply {
    let fields: [(&str, &[u8]); 4] =
        [("name", b"Ada"), ("consent", consent.as_bytes()), ("audio_sample", &sound(2)), ("text", b"Hello there.")];
    send_form(address, VOICES, &fields).await
}

/// Voice of the engine's last request.
fn spoken_by(server: &Running) -> Option<String> {
    let commands = server.engine.commands();
    let responses = commands.iter().rev().find_map(|command| match command {
        Command::Respond(respond) => Some(respond.voice.clone()),
        _ => None,
    });
    responses.flatten()
}

#[tokio::test]
async fn a_recorded_voice_speaks_until_it_is_deleted() {
    let folder = TempDir::new().unwrap();
    let server = start(Some(&folder)).await;
    let consent = consent(server.address).await;
    let made = voice(server.address, &consent).await;
    assert_eq!(made.status, 200, "{made:?}");
    let made = made.json();
    assert_eq!(
        (&made["object"], &made["type"], &made["name"]),
        (&json!("audio.voice"), &json!("audio_sample"), &json!("Ada"))
    );
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(server.engine.enrolled()[&id].text, "Hello there.");
    let listed = get(&server, VOICES).await;
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|voice| voice["id"].clone()).collect();
    assert_eq!(ids, [json!("ada"), json!("bob"), json!(id)]);
    drop(server);

    // The voice outlives the server.
    let server = start(Some(&folder)).await;
    let request = json!({"model": "any", "voice": {"id": id}, "input": "Hello.", "response_format": "wav"});
    let spoken = send(server.address, "POST", "/v1/audio/speech", &JSON, request.to_string().as_bytes()).await;
    assert_eq!(
        (spoken.status, spoken.header("repartee-warnings")),
        (200, Some("model: `any` is served as `scripted`"))
    );
    assert_eq!(spoken_by(&server), Some(id.clone()));
    let mut client = server.connect().await;
    client.update(json!({"audio": {"output": {"voice": id}}})).await;
    client.ask("hello").await;
    assert_eq!(spoken_by(&server), Some(id.clone()));

    let deleted = send(server.address, "DELETE", &format!("{VOICES}/{id}"), &[], b"").await;
    assert_eq!(deleted.json(), json!({"id": id, "object": "audio.voice.deleted", "deleted": true}));
    // No other voice speaks in its place.
    let spoken = send(server.address, "POST", "/v1/audio/speech", &JSON, request.to_string().as_bytes()).await;
    assert_eq!((spoken.status, &spoken.json()["error"]["param"]), (400, &json!("voice")), "{spoken:?}");
    assert_eq!(send(server.address, "DELETE", &format!("{VOICES}/{id}"), &[], b"").await.status, 404);
}

/// An engine that enrols a voice only on release.
struct Slow {
    engine: Arc<ScriptedEngine>,
    enrolling: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl SpeechEngine for Slow {
    fn info(&self) -> &ModelInfo {
        self.engine.info()
    }

    fn open(&self) -> Result<SessionHandle, OpenError> {
        self.engine.open()
    }

    fn occupancy(&self) -> (usize, usize) {
        self.engine.occupancy()
    }

    fn voices(&self) -> Vec<String> {
        self.engine.voices()
    }

    fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        self.enrolling.blocking_send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        self.engine.enrol(name, recording)
    }
}

/// On one thread, so that a blocking start would answer nothing.
#[tokio::test]
async fn kept_voices_hold_up_no_answer() {
    let folder = TempDir::new().unwrap();
    let server = start(Some(&folder)).await;
    let consent = consent(server.address).await;
    for _ in 0..2 {
        assert_eq!(voice(server.address, &consent).await.status, 200);
    }
    drop(server);

    let ((enrolling, mut waits), (go, go_on)) = (channel(2), sync_channel(2));
    let engine = ScriptedEngine::new(Script { accepts_enrolment: true, ..Script::default() });
    let slow = Slow { engine: engine.clone(), enrolling, go_on: Mutex::new(go_on) };
    let mut config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    config.voices.folder = Some(folder.path().to_owned());
    let listening = StartingServer::bind(config).await.unwrap();
    let address = listening.local_addr();
    let started = tokio::spawn(listening.with_engine(Arc::new(slow)));
    for fraction in [0.0, 0.5] {
        timeout(PATIENCE, waits.recv()).await.expect("a voice is enrolled");
        let ready = send(address, "GET", "/readyz", &[], b"").await;
        let says = json!({"status": "starting", "stage": "voices", "fraction": fraction});
        assert_eq!((ready.status, ready.json()), (503, says));
        go.send(()).unwrap();
    }
    let server = timeout(PATIENCE, started).await.expect("a server").unwrap().unwrap();
    assert_eq!(engine.enrolled().len(), 2);
    drop(server);
}

#[tokio::test]
async fn consents_are_listed_renamed_and_taken_back() {
    let server = start(None).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(consent(server.address).await);
    }
    // Entries of the same second are ordered by id.
    let all = get(&server, CONSENTS).await;
    let listed: Vec<String> =
        all["data"].as_array().unwrap().iter().map(|consent| consent["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((listed.len(), &all["has_more"]), (3, &json!(false)));
    assert!(ids.iter().all(|id| listed.contains(id)));
    let page = get(&server, &format!("{CONSENTS}?limit=1&after={}", listed[0])).await;
    assert_eq!(
        (&page["first_id"], &page["last_id"], &page["has_more"]),
        (&json!(listed[1]), &json!(listed[1]), &json!(true))
    );
    let one = format!("{CONSENTS}/{}", ids[0]);
    let renamed = send(server.address, "POST", &one, &JSON, br#"{"name": "yours"}"#).await;
    assert_eq!(renamed.json()["name"], "yours");
    assert_eq!(get(&server, &one).await, renamed.json());

    assert_eq!(voice(server.address, &ids[0]).await.status, 200);
    let deleted = send(server.address, "DELETE", &one, &[], b"").await;
    assert_eq!(deleted.json(), json!({"id": ids[0], "object": "audio.voice_consent", "deleted": true}));
    assert!(server.engine.enrolled().is_empty(), "its voice went with it");
    for (method, body) in [("GET", &b""[..]), ("DELETE", b""), ("POST", br#"{"name": "x"}"#)] {
        assert_eq!(send(server.address, method, &one, &JSON, body).await.status, 404, "{method}");
    }
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let server = start(None).await;
    let consent = consent(server.address).await;
    let (ok, short) = (sound(2), wav::encode(&[0.1; 800], 8_000).unwrap());
    let big = vec![0; (10 << 20) + 1];
    let consent = consent.as_bytes();
    let cases: [(Fields<'_>, u16, &str); 7] = [
        (&[("name", b"Ada"), ("audio_sample", &ok)], 400, "consent"),
        (&[("name", b"Ada"), ("consent", consent)], 400, "audio_sample"),
        (&[("name", b"Ada"), ("consent", consent), ("audio_sample", b"ID3")], 400, "audio_sample"),
        (&[("name", b"Ada"), ("consent", consent), ("audio_sample", &short)], 400, "audio_sample"),
        (&[("name", b"\xff"), ("consent", consent), ("audio_sample", &ok)], 400, "name"),
        (&[("name", b"Ada"), ("consent", b"cons_none"), ("audio_sample", &ok)], 404, ""),
        (&[("name", b"Ada"), ("type", b"prompt"), ("prompt", b"An old man.")], 400, "type"),
    ];
    for (fields, status, param) in cases {
        let reply = send_form(server.address, VOICES, fields).await;
        let names: Vec<_> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str().unwrap_or("")), (status, param), "{names:?}");
    }
    let large =
        send_form(server.address, VOICES, &[("name", b"Ada"), ("consent", consent), ("audio_sample", &big)]).await;
    assert_eq!((large.status, large.code()), (413, "message_too_large".to_owned()));
    let unknown = send_form(server.address, VOICES, &[("name", b"Ada"), ("secret", b"x")]).await;
    assert_eq!(unknown.status, 400);
    let prompt =
        send(server.address, "POST", VOICES, &JSON, br#"{"type": "prompt", "name": "x", "prompt": "y"}"#).await;
    assert_eq!((prompt.status, prompt.json()["error"]["param"].clone()), (400, json!("type")));
    assert_eq!(send(server.address, "POST", VOICES, &[], b"x").await.status, 415);
    assert_eq!(send(server.address, "GET", &format!("{CONSENTS}?limit=0"), &[], b"").await.status, 400);
    assert!(server.engine.enrolled().is_empty());
    // A model with a fixed set of voices.
    let fixed = Running::start(Script::default()).await;
    let refused = voice(fixed.address, &self::consent(fixed.address).await).await;
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(refused.status == 400 && message.contains("ada, bob"), "{message}");
}
