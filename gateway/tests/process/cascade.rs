//! The examples of docs/cascade.md with a language model behind a URL, each run as it stands there: only the server's
//! URL, folders and files are those of the test.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use repartee_chat_testkit::{ReceivedRequest, TestServer, answer};
use repartee_gateway_testkit::PATIENCE;
use repartee_gateway_testkit::http::send;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

const PAGE: &str = include_str!("../../../docs/cascade.md");
/// Places of a queue of the test.
const QUEUE: usize = 64;
const KEY: &str = "sk-of-the-example";

/// Checkpoint of a fixture.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/fixtures").join(name).join("checkpoint")
}

/// Language model, with its requests.
async fn language_model() -> (String, mpsc::Receiver<ReceivedRequest>) {
    let (requests, received) = mpsc::channel(QUEUE);
    let llm = TestServer::new(move |_, mut peer| {
        let requests = requests.clone();
        async move {
            while let Some(request) = peer.try_request().await {
                let models = r#"{"data": [{"id": "small"}]}"#;
                let list = repartee_chat_testkit::response("200 OK", "Content-Type: application/json\r\n", models);
                peer.send(if request.line().starts_with("GET") { list } else { answer("The dog sleeps.") }).await;
                // The test may have ended.
                let _ = requests.try_send(request);
            }
        }
    });
    (llm.listen().await, received)
}

/// Files that examples name, in a folder.
struct Files {
    folder: tempfile::TempDir,
    host: String,
}

impl Files {
    fn new(host: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), format!("{KEY}\n")).unwrap();
        std::fs::write(folder.path().join("question.txt"), "What does the dog do?\n").unwrap();
        Self { folder, host }
    }

    /// Replaces URLs and paths of an example.
    fn replace(&self, text: &str) -> String {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let url = format!("http://{}/v1", self.host);
        text.replace("http://localhost:8000/v1", &url)
            .replace("https://llm.example/v1", &url)
            .replace("/srv/models/qwen3-tts-0.6b", &fixture("tts_custom").display().to_string())
            .replace("/etc/repartee/thinker-key", &path("key"))
            .replace("question.txt", &path("question.txt"))
            .replace("answer.wav", &path("answer.wav"))
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[tokio::test]
async fn every_example_runs() {
    let (host, mut requests) = language_model().await;
    let files = Files::new(host);
    let examples: Vec<_> =
        PAGE.lines().filter(|line| line.starts_with("    repartee ") && line.contains("--think http")).collect();
    assert_eq!(examples.len(), 4, "{examples:?}");
    for example in examples {
        let line = files.replace(example.trim_start().trim_start_matches("repartee "));
        let arguments: Vec<&str> = line.split_whitespace().collect();
        if arguments[0] == "ask" {
            let output = timeout(PATIENCE, command(&arguments).output()).await.expect("an answer in time").unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.starts_with("The dog sleeps.\n"), "{example}: {output:?}");
            let sound = std::fs::read(files.folder.path().join("answer.wav")).unwrap();
            assert!(sound.len() > 1_000, "{} bytes", sound.len());
        } else {
            let mut server = command(&[&arguments, &["--listen", "127.0.0.1:0"][..]].concat()).spawn().unwrap();
            let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
            let line = timeout(PATIENCE, lines.next_line()).await.expect("a start in time").unwrap().unwrap();
            let address = line.trim_start_matches("Talk to it at http://").trim_end_matches('/').parse().unwrap();
            let body = json!({"messages": [{"role": "user", "content": "What does the dog do?"}]}).to_string();
            let json = ("content-type", "application/json");
            let reply = send(address, "POST", "/v1/chat/completions", &[json], body.as_bytes()).await;
            assert_eq!(reply.json()["choices"][0]["message"]["content"], "The dog sleeps.", "{example}");
            let models = send(address, "GET", "/v1/models", &[], b"").await.json();
            let speaks = &models["data"][0]["repartee"]["audio_output"];
            assert_eq!(*speaks, example.contains("--speak"), "{example}: {models}");
        }
        let keyed = std::iter::from_fn(|| requests.try_recv().ok())
            .filter(|request| request.header("authorization") == Some(&format!("Bearer {KEY}")))
            .count();
        assert_eq!(keyed > 0, example.contains("key_file"), "{example}");
    }
}

#[tokio::test]
async fn the_settings_of_the_example_are_usable() {
    let (host, _requests) = language_model().await;
    let files = Files::new(host);
    let block = PAGE.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let path = files.folder.path().join("repartee.toml");
    std::fs::write(&path, files.replace(block)).unwrap();
    let path = path.to_str().unwrap();
    let output = command(&["check", "--config", path]).env("REPARTEE_CASCADE_KEY", "").output().await.unwrap();
    assert_eq!(output.status.code(), Some(2), "a key and a file of a key: {output:?}");
    let output = command(&["check", "--config", path]).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(&format!("think = \"http://{}/v1\"", files.host)), "{said}");
    let asked = files.replace("question.txt");
    let arguments = ["ask", &*asked, &*files.replace("answer.wav"), "--config", path];
    let output = timeout(PATIENCE, command(&arguments).output()).await.expect("an answer in time").unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("The dog sleeps."), "{output:?}");
}

#[tokio::test]
async fn keys_are_secret_and_urls_are_checked() {
    let mut secret = command(&["check", "--think", "http://ada:s3cret@127.0.0.1:1"]);
    let output = secret.env("REPARTEE_CASCADE_KEY", "sk-s3cret").output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("key = \"(set)\"") && !said.contains("s3cret"), "{said}");
    for (arguments, words) in [
        (&["check", "--think", "http://a:port"][..], "port"),
        (&["check", "--hear", "/srv/models/a", "--speak", "/srv/models/b"], "cascade.think"),
        (&["check", "--think", "http://a", "--set", "cascade.first_token_s=70"], "cascade.first_token_s"),
        (
            &["serve", "--listen", "127.0.0.1:0", "--think", "http://a", "--set", "cascade.key_file=/no/such"],
            "/no/such",
        ),
    ] {
        let output = command(arguments).stderr(Stdio::piped()).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
}
