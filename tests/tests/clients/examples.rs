//! The examples of `gateway/examples`, each run against a server with a scripted engine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use repartee::auth::KeySet;
use repartee::config::Config;
use repartee_media::sound_file;
use repartee_media::wav;
use repartee_testkit::scripted::{OUTPUT_RATE, Script, ScriptedEngine, voice};
use repartee_tests::server::TestServer;
use repartee_tests::{questions, tools};

#[allow(dead_code, reason = "its main is what a reader runs")]
#[path = "../../../gateway/examples/client.rs"]
mod client;

const QUESTION: &str = "three-plus-four.wav";
/// Codec frames of each answer.
const FRAMES: u64 = 25;
/// Timeout of an example on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Sample rate of the wire, in Hz.
const RATE: u32 = 24_000;

async fn serve() -> Result<TestServer> {
    TestServer::start(Config::default(), ScriptedEngine::new(Script { frames: FRAMES, ..Script::default() })).await
}

fn read(path: &Path, rate: u32) -> Result<Vec<f32>> {
    let file = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(sound_file::read(&file[..], rate, Duration::from_secs(60))?)
}

/// Returns the question's duration in ms.
fn question_ms() -> Result<f64> {
    Ok(read(&questions::named(QUESTION)?.path(), RATE)?.len() as f64 * 1e3 / f64::from(RATE))
}

/// Parses the duration of the engine's input, in ms, from its answer.
fn heard_ms(transcript: &str) -> Result<f64> {
    let number = transcript.trim().strip_prefix("I heard ").and_then(|rest| rest.strip_suffix(" ms."));
    number.and_then(|number| number.parse().ok()).with_context(|| format!("the scripted answer, not {transcript:?}"))
}

/// Checks one committed turn: the engine got the whole question, and the whole answer was written.
fn check_turn(transcript: &str, answer: &Path) -> Result<()> {
    let (heard, said) = (heard_ms(transcript)?, question_ms()?);
    assert!((heard - said).abs() <= 2.0, "{heard} ms of {said}");
    let (written, sound) = (read(answer, OUTPUT_RATE)?, (0..FRAMES).flat_map(voice).collect::<Vec<f32>>());
    assert_eq!(written.len(), sound.len());
    assert!(written.iter().zip(&sound).all(|(a, b)| (a - b).abs() < 1e-3));
    Ok(())
}

fn answer_in(folder: &Path) -> PathBuf {
    folder.join("answer.wav")
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_client_takes_a_spoken_turn() -> Result<()> {
    let (server, folder) = (serve().await?, tempfile::tempdir()?);
    let (question, answer) = (questions::named(QUESTION)?.path(), answer_in(folder.path()));
    let url = format!("ws://{}/v1/realtime", server.address());
    let transcript = tokio::time::timeout(LIMIT, client::ask(&url, None, &question, &answer)).await??;
    check_turn(&transcript, &answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_takes_a_spoken_turn() -> Result<()> {
    let (server, folder) = (serve().await?, tempfile::tempdir()?);
    let (question, answer) = (folder.path().join(QUESTION), answer_in(folder.path()));
    for rate in [RATE, 44_100] {
        std::fs::write(&question, wav::encode(&read(&questions::named(QUESTION)?.path(), rate)?, rate)?)?;
        let mut python = tools::clients_python()?;
        python.arg(tools::root().join("gateway/examples/client.py")).args([&question, &answer]).arg(server.api());
        check_turn(&tools::output(&mut python, LIMIT).await?, &answer)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_explains_a_refusal() -> Result<()> {
    let config = Config { api_keys: KeySet::parse("the-key-of-the-house")?, ..Config::default() };
    let server = TestServer::start(config, ScriptedEngine::new(Script::default())).await?;
    let folder = tempfile::tempdir()?;
    let question = folder.path().join(QUESTION);
    std::fs::write(&question, wav::encode(&read(&questions::named(QUESTION)?.path(), RATE)?, RATE)?)?;
    let mut python = tools::clients_python()?;
    python.arg(tools::root().join("gateway/examples/client.py")).args([&question, &answer_in(folder.path())]);
    python.arg(server.api()).env("OPENAI_API_KEY", "the-key-of-a-stranger");
    let refused = tools::output(&mut python, LIMIT).await.unwrap_or_else(|error| error.to_string());
    assert!(refused.contains("refused the call (401): the server does not know this key"), "{refused}");
    assert!(!refused.contains("Traceback"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_page_takes_a_spoken_turn() -> Result<()> {
    let (server, folder) = (serve().await?, tempfile::tempdir()?);
    let mut driver = tools::node()?;
    driver.arg(tools::root().join("tests/browser/example.mjs")).arg(format!("http://{}", server.address()));
    driver.arg(folder.path()).arg(questions::named(QUESTION)?.path());
    let shown = tools::output(&mut driver, LIMIT).await?;
    // Turn detection cut the turn, from some silence before the first word to the pause after the last.
    let (heard, said) = (heard_ms(&shown)?, question_ms()?);
    assert!((said * 0.5..said + 1_500.0).contains(&heard), "{heard} ms of {said}");
    Ok(())
}
