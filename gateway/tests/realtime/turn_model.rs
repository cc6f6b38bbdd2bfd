//! Turns that a turn-detection model ends, over the websocket: the embedded network, and the published model file if it is
//! installed.

use std::path::PathBuf;
use std::time::Duration;

use repartee::config::{Config, TurnModelSource};
use repartee::server::{Server, ServerStartError};
use repartee_media::sound_file;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::json;
use tokio::time::timeout;

use repartee_gateway_testkit::{Client, PATIENCE, Running, find, kinds, silence};

/// Path of the model, in a package that `scripts/setup.sh tests` installs for the conformance tests.
fn model() -> Option<PathBuf> {
    let packages = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/tools/clients/lib");
    let file = "site-packages/pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx";
    let pythons = std::fs::read_dir(packages).ok()?;
    pythons.flatten().map(|python| python.path().join(file)).find(|path| path.exists())
}

/// Starts a server with the model; `None`, with a printed notice, if it is not installed.
async fn start() -> Option<Running> {
    let Some(path) = model() else {
        println!("skipped: there is no smart-turn v3; `scripts/setup.sh tests` installs it");
        return None;
    };
    Some(Running::start_with(Script::default(), |config| config.turns.model = TurnModelSource::File(path)).await)
}

/// Connects a client with the lowest eagerness: 1200 ms without a model, up to 8 s with it.
async fn connect(server: &Running) -> Client {
    let mut client = server.connect().await;
    let detection = json!({"type": "semantic_vad", "eagerness": "low"});
    client.update(json!({"audio": {"input": {"turn_detection": detection}}})).await;
    client
}

/// "Count from three to six." at 24 kHz.
fn question() -> Vec<f32> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/questions/count-three-to-six.wav");
    sound_file::read(&std::fs::read(file).unwrap()[..], 24_000, PATIENCE).unwrap()
}

/// Returns once the model has decided this many times that the turn goes on.
async fn continued(server: &Running, count: usize) {
    let line = format!("repartee_turn_judgements_total{{outcome=\"continued\"}} {count}");
    let counted = async {
        while !server.get("/metrics").await.1.contains(&line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, counted).await.expect("an answer in time");
}

#[tokio::test]
async fn finished_question_is_answered_before_the_fixed_silence() {
    let Some(server) = start().await else { return };
    let mut client = connect(&server).await;
    let mut speech = silence(500);
    speech.extend(question());
    // This silence is too short to end the turn by itself.
    speech.extend(silence(500));
    client.speak(&speech, 480).await;
    let events = client.until("response.done").await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "input_audio_buffer.speech_stopped").count(), 1);
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_turn_judgements_total{outcome=\"ended\"} 1"), "{metrics}");
}

#[tokio::test]
async fn half_a_question_is_waited_for() {
    let Some(server) = start().await else { return };
    let mut client = connect(&server).await;
    let question = question();
    let (begin, rest) = question.split_at(question.len() * 7 / 10);
    client.speak(&silence(500), 480).await;
    client.speak(begin, 480).await;
    client.speak(&silence(400), 480).await;
    continued(&server, 1).await;
    // More than the fixed silence. The model may be asked again, but further audio makes its answer void.
    client.speak(&silence(1_000), 480).await;
    client.speak(rest, 480).await;
    // More than the longest wait, whatever the model answers.
    client.speak(&silence(9_000), 480).await;
    let events = client.until("response.done").await;
    let boundaries: Vec<_> =
        kinds(&events).into_iter().filter(|kind| kind.starts_with("input_audio_buffer.speech")).collect();
    assert_eq!(boundaries, ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"]);
    let ms = |kind, field: &str| find(&events, kind)[field].as_u64().unwrap();
    let lasted = ms("input_audio_buffer.speech_stopped", "audio_end_ms")
        - ms("input_audio_buffer.speech_started", "audio_start_ms");
    assert!(lasted as usize > question.len() / 24 + 1_400, "{lasted} ms hold both halves and the pause");
}

#[tokio::test]
async fn embedded_network_judges_sessions_by_default() {
    let embedded = |config: &mut Config| config.turns.model = TurnModelSource::Embedded;
    let server = Running::start_with(Script::default(), embedded).await;
    let mut client = server.connect().await;
    let session = client.update(json!({"instructions": "Be brief."})).await;
    assert_eq!(session["audio"]["input"]["turn_detection"]["type"], "semantic_vad");
    let mut speech = silence(500);
    speech.extend(question());
    // More than the longest silence of the default eagerness.
    speech.extend(silence(1_500));
    client.speak(&speech, 480).await;
    client.until("response.done").await;
    let judged = async {
        let unjudged = ["ended", "continued"].map(|outcome| format!("judgements_total{{outcome=\"{outcome}\"}} 0"));
        loop {
            let metrics = server.get("/metrics").await.1;
            if !unjudged.iter().all(|line| metrics.contains(line)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, judged).await.expect("a judgement in time");
}

#[tokio::test]
async fn missing_model_is_an_error_at_start() {
    let model = TurnModelSource::File("/nowhere/smart-turn.onnx".into());
    let turns = repartee::config::TurnDetectionConfig { model, ..Default::default() };
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), turns, ..Config::default() };
    let error = Server::bind(config, ScriptedEngine::new(Script::default())).await.unwrap_err();
    assert!(matches!(error, ServerStartError::Turns(_)));
    let message = error.to_string();
    assert!(message.contains("turns.model") && message.contains("/nowhere/smart-turn.onnx"), "{message}");
}
