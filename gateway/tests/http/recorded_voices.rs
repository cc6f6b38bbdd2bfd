//! Voices out of recordings, made by the families that clone: enrolled ones, and those that a request brings with it.

use std::f32::consts::TAU;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine::{Engine, EngineConfig};
use repartee_gateway_testkit::http::{Reply, send, send_form};
use repartee_gateway_testkit::{PATIENCE, Running, config, fixture, serve_checkpoint, serve_engine_with};
use repartee_media::{pcm, wav};
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

const CONSENTS: &str = "/v1/audio/voice_consents";
const VOICES: &str = "/v1/audio/voices";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
/// Small checkpoints of the families that clone.
const FAMILIES: [&str; 2] = ["tts_clone", "cosyvoice3"];
const TEXT: &str = "Hello there.";

/// Harmonics of a low tone, of this level.
fn tone(seconds: f32, rate: u32, level: f32) -> Vec<f32> {
    let sample = |at: u32| {
        let time = at as f32 / rate as f32;
        (1..9).map(|n| (TAU * 130.0 * n as f32 * time).sin() / n as f32).sum::<f32>() * level
    };
    (0..(seconds * rate as f32) as u32).map(sample).collect()
}

/// Wav file of a tone at 8 kHz.
fn sound(seconds: f32) -> Vec<u8> {
    wav::encode(&tone(seconds, 8_000, 0.2), 8_000).unwrap()
}

/// The same with two channels, of which one is silent.
fn stereo(seconds: f32) -> Vec<u8> {
    let mono = wav::encode(&tone(seconds, 44_100, 0.4), 44_100).unwrap();
    let (mut file, samples) = (mono[..44].to_vec(), &mono[44..]);
    let size = |file: &mut [u8], at: usize, size: usize| file[at..at + 4].copy_from_slice(&(size as u32).to_le_bytes());
    size(&mut file, 4, 36 + 2 * samples.len());
    size(&mut file, 28, 4 * 44_100);
    size(&mut file, 40, 2 * samples.len());
    (file[22], file[32]) = (2, 4);
    file.extend(samples.chunks_exact(2).flat_map(|sample| [sample[0], sample[1], 0, 0]));
    file
}

async fn consent(address: SocketAddr) -> String {
    let fields: [(&str, &[u8]); 3] = [("name", b"mine"), ("language", b"en-US"), ("recording", &sound(1.0))];
    let reply = send_form(address, CONSENTS, &fields).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["id"].as_str().unwrap().to_owned()
}

async fn enrol(address: SocketAddr, consent: &str, recording: &[u8]) -> Reply {
    let fields: [(&str, &[u8]); 4] =
        [("name", b"Ada"), ("consent", consent.as_bytes()), ("audio_sample", recording), ("text", TEXT.as_bytes())];
    send_form(address, VOICES, &fields).await
}

/// Has a text read, with these fields beside it.
async fn speak(address: SocketAddr, fields: Value) -> Reply {
    let mut request = json!({"input": "the sea. a song!", "response_format": "pcm"});
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    send(address, "POST", "/v1/audio/speech", &JSON, request.to_string().as_bytes()).await
}

/// Checks that a body is whole and holds sound.
fn assert_heard(reply: &Reply) {
    assert_eq!((reply.status, reply.complete), (200, true), "{}", reply.body);
    let samples = pcm::decode_i16le(&reply.bytes).unwrap();
    assert!(samples.iter().any(|sample| sample.abs() > 0.005), "{} samples", samples.len());
}

/// Fields of a request that brings a recording.
fn brought(recording: &[u8], consent: &str) -> Value {
    json!({"ref_audio": STANDARD.encode(recording), "ref_text": TEXT, "consent": consent})
}

#[tokio::test]
async fn cloning_families_speak_as_a_recording() {
    for family in FAMILIES {
        let (address, running) = serve_checkpoint(family).await;
        let model = send(address, "GET", "/v1/models/checkpoint", &[], b"").await.json();
        assert_eq!(model["repartee"]["cloning"], true, "{model}");
        let consent = consent(address).await;
        let made = enrol(address, &consent, &sound(2.0)).await;
        assert_eq!((made.status, made.header("repartee-warnings")), (200, None), "{family}: {made:?}");
        let id = made.json()["id"].as_str().unwrap().to_owned();
        // The second response reads what the first one has left.
        for _ in 0..2 {
            let spoken = speak(address, json!({"voice": id})).await;
            assert_eq!(spoken.header("repartee-warnings"), None);
            assert_heard(&spoken);
        }
        assert_eq!(send(address, "DELETE", &format!("{VOICES}/{id}"), &[], b"").await.status, 200);
        let refused = speak(address, json!({"voice": id})).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("voice")), "{refused:?}");
        running.abort();
    }
}

#[tokio::test]
async fn cloned_voices_outlive_a_restart() {
    let folder = TempDir::new().unwrap();
    let start = || {
        let engine = Engine::start(fixture("cosyvoice3"), &EngineConfig::default()).unwrap();
        let mut config = config();
        config.voices.folder = Some(folder.path().to_owned());
        serve_engine_with(engine, config)
    };
    let (address, running) = start().await;
    let made = enrol(address, &consent(address).await, &sound(2.0)).await.json();
    running.abort();
    let _ = running.await;
    let (address, running) = start().await;
    assert_heard(&speak(address, json!({"voice": {"id": made["id"]}})).await);
    running.abort();
}

/// Answer to a recording.
enum Answer {
    /// Its voice speaks.
    Speaks,
    /// Its voice speaks; the header has a warning.
    Warns,
    /// It is refused, with these words.
    Refuses(&'static str),
}

#[tokio::test]
async fn odd_recordings_are_judged_alone() {
    use Answer::{Refuses, Speaks, Warns};
    let noise: Vec<f32> = (0..16_000_i32).map(|at| if at % 3 == 0 { 0.002 } else { -0.001 }).collect();
    let cases = [
        ("no bytes", Vec::new(), Refuses("empty file")),
        ("no samples", wav::encode(&[], 8_000).unwrap(), Refuses("no audio")),
        ("no sound file", b"a letter to a friend".to_vec(), Refuses("wav")),
        ("a damaged one", sound(2.0)[..30].to_vec(), Refuses("damaged")),
        ("ten milliseconds", sound(0.01), Refuses("too short")),
        ("ten minutes", wav::encode(&vec![0.1; 600 * 8_000], 8_000).unwrap(), Refuses("60 s")),
        ("longer than the model hears", sound(40.0), Refuses("cut it")),
        ("silence", wav::encode(&vec![0.0; 16_000], 8_000).unwrap(), Refuses("nobody is heard")),
        ("a quiet room", wav::encode(&noise, 8_000).unwrap(), Refuses("nobody is heard")),
        ("4 kHz", wav::encode(&tone(2.0, 4_000, 0.2), 4_000).unwrap(), Refuses("samples a second")),
        ("clipped", wav::encode(&tone(2.0, 16_000, 3.0), 16_000).unwrap(), Warns),
        ("8 kHz", sound(2.0), Speaks),
        ("48 kHz", wav::encode(&tone(2.0, 48_000, 0.2), 48_000).unwrap(), Speaks),
        ("stereo", stereo(2.0), Speaks),
    ];
    for family in FAMILIES {
        let (address, running) = serve_checkpoint(family).await;
        let (consent, mut wrong) = (consent(address).await, Vec::new());
        for (case, recording, answer) in &cases {
            // Another caller speaks meanwhile.
            let other = speak(address, json!({}));
            let (enrolled, other) = tokio::join!(enrol(address, &consent, recording), other);
            assert_heard(&other);
            let spoken = speak(address, brought(recording, &consent)).await;
            for (field, reply) in [("audio_sample", &enrolled), ("ref_audio", &spoken)] {
                let warning = reply.header("repartee-warnings").unwrap_or_default();
                let holds = match answer {
                    Speaks => (reply.status, warning) == (200, ""),
                    Warns => reply.status == 200 && warning.contains("clipped"),
                    Refuses(words) => {
                        reply.status == 400 && reply.json()["error"]["param"] == field && reply.body.contains(words)
                    }
                };
                if !holds {
                    wrong.push(format!("{family}: {case}: {field}: {}", reply.body));
                }
            }
            if let Speaks | Warns = answer {
                assert_heard(&spoken);
                let id = enrolled.json()["id"].as_str().unwrap().to_owned();
                assert_heard(&speak(address, json!({"voice": id})).await);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        let hour = vec![0; 3600 * 8_000 * 2];
        assert_eq!(enrol(address, &consent, &hour).await.status, 413, "an hour");
        running.abort();
    }
}

/// Voice of the engine's last request.
fn spoken_by(server: &Running) -> Option<String> {
    server.engine.commands().iter().rev().find_map(|command| match command {
        repartee_engine_api::Command::Respond(respond) => respond.voice.clone(),
        _ => None,
    })
}

#[tokio::test]
async fn requests_bring_voices_of_their_own() {
    let script = Script { accepts_enrolment: true, ..Script::default() };
    let server = Running::start_with(script, |config| config.voices.most = 2).await;
    let consent = consent(server.address).await;
    for (recording, wrap) in [(sound(2.0), false), (stereo(2.0), true)] {
        let mut fields = brought(&recording, &consent);
        if wrap {
            fields["ref_audio"] = format!("data:audio/wav;base64,{}", STANDARD.encode(&recording)).into();
        }
        // Stock clients have to name a voice.
        fields["voice"] = "alloy".into();
        let spoken = speak(server.address, fields).await;
        assert_eq!((spoken.status, spoken.header("repartee-warnings")), (200, None), "{}", spoken.body);
        let voice = spoken_by(&server).unwrap();
        assert!(voice.starts_with("voice_"), "{voice}");
        // It is gone once its request is.
        let gone = async {
            while !server.engine.enrolled().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, gone).await.expect("the voice is removed");
        let later = speak(server.address, json!({"voice": {"id": voice}})).await;
        assert_eq!((later.status, &later.json()["error"]["param"]), (400, &json!("voice")));
    }
    let listed = send(server.address, "GET", VOICES, &[], b"").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "the model's own");
}

#[tokio::test]
async fn brought_voices_need_consent_and_room() {
    let script = Script { accepts_enrolment: true, ..Script::default() };
    let server = Running::start_with(script, |config| config.voices.most = 1).await;
    let consent = consent(server.address).await;
    let recording = STANDARD.encode(sound(2.0));
    let cases = [
        (json!({"ref_audio": recording}), 400, "consent"),
        (json!({"ref_audio": recording, "consent": "cons_none"}), 404, ""),
        (json!({"ref_text": TEXT, "consent": consent}), 400, "ref_text"),
        (json!({"consent": consent}), 400, "consent"),
        (json!({"ref_audio": "https://example.com/ada.wav", "consent": consent}), 400, "ref_audio"),
        (json!({"ref_audio": "data:audio/wav,abc", "consent": consent}), 400, "ref_audio"),
        (json!({"ref_audio": recording, "ref_text": "x".repeat(3_000), "consent": consent}), 400, "ref_text"),
    ];
    for (fields, status, param) in cases {
        let refused = speak(server.address, fields.clone()).await;
        let found = refused.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
        assert_eq!((refused.status, &found[..]), (status, param), "{}", refused.body);
    }
    // An enrolled voice takes the only room.
    assert_eq!(enrol(server.address, &consent, &sound(2.0)).await.status, 200);
    let full = speak(server.address, brought(&sound(2.0), &consent)).await;
    assert!(full.status == 400 && full.body.contains("voices.most"), "{}", full.body);
    let query = "/v1/audio/speech?ref_audio=abc";
    let refused = send(server.address, "POST", query, &[("content-type", "text/plain")], b"Hello.").await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("ref_audio")));
    assert_eq!(server.engine.enrolled().len(), 1);
    let fixed = Running::start(Script::default()).await;
    let refused = speak(fixed.address, brought(&sound(2.0), &self::consent(fixed.address).await)).await;
    assert!(refused.status == 400 && refused.body.contains("ada, bob"), "{}", refused.body);
}
