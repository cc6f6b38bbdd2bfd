//! Cascades over stock servers of language models: `transformers serve` and the server of llama-cpp-python.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine::SpokenAnswersConfig;
use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::thinker::Cascade;
use repartee_gateway_testkit::{find, own_address, sound};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Duration, timeout};

/// Longest start of a server: it imports torch.
const START: Duration = Duration::from_secs(120);
const JSON: (&str, &str) = ("content-type", "application/json");
const PATH: &str = "/v1/chat/completions";

/// Running stock server. Dropping it ends it.
struct Peer {
    /// Host and port.
    host: String,
    /// Name of its model.
    model: String,
    _process: Child,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Peer {
    /// Starts a Python program, with these arguments, and waits until it serves.
    async fn start(model: &Path, program: &str, arguments: &[&str]) -> Self {
        let python = root().join("target/tools/thinkers/bin/python");
        assert!(python.exists(), "stock servers are missing: run scripts/setup.sh thinkers");
        let port = own_address().port().to_string();
        let model = model.canonicalize().unwrap().display().to_string();
        let mut command = Command::new(python);
        command.args(["-c", program]);
        command.args(arguments.iter().map(|argument| match *argument {
            "PORT" => &*port,
            "MODEL" => &*model,
            other => other,
        }));
        command.env("HF_HUB_OFFLINE", "1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let started = async {
            let mut last = String::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("running on") {
                    return;
                }
                last = line;
            }
            panic!("the server has ended: {last}");
        };
        timeout(START, started).await.expect("a start in time");
        // What it logs later must not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { host: format!("127.0.0.1:{port}"), model, _process: process }
    }
}

/// Asks the peer's own API, and the cascade over it in text, aloud and with functions; `counts` if the peer reports the
/// usage of a stream.
async fn answers_as_asked_directly(peer: &Peer, counts: bool) {
    let asked = json!({"role": "user", "content": "the lazy dog"});
    let direct = async |messages: Value| {
        let request = json!({"model": peer.model, "max_tokens": 12, "temperature": 0, "stream": false,
            "messages": messages});
        let answer = send(peer.host.parse().unwrap(), "POST", PATH, &[JSON], request.to_string().as_bytes()).await;
        let answer = answer.json();
        assert!(!answer["choices"][0]["message"]["content"].as_str().unwrap().is_empty(), "{answer}");
        answer
    };
    let written = direct(json!([asked])).await;
    // Answers that are spoken have instructions of their own.
    let instructions = SpokenAnswersConfig::default().instructions;
    let read_aloud = direct(json!([{"role": "system", "content": instructions}, asked])).await;

    let named = |model: &str| Some(model.to_owned());
    let server = Cascade::serve(&peer.host, Some("tts_custom"), |cascade| cascade.model = named(&peer.model)).await;
    let ask = async |more: Value| {
        let mut request =
            json!({"messages": [{"role": "user", "content": "the lazy dog"}], "max_tokens": 12, "temperature": 0});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        send(server.address, "POST", PATH, &[JSON], request.to_string().as_bytes()).await.json()
    };
    let text = ask(json!({})).await;
    let answer = |of: &Value| of["choices"][0]["message"]["content"].clone();
    assert_eq!(answer(&text), answer(&written), "{text}");
    if counts {
        assert_eq!(text["usage"]["completion_tokens"], written["usage"]["completion_tokens"], "{text} {written}");
    }
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let function = json!({"name": "weather", "description": "Tells the weather.", "parameters": parameters});
    let called = ask(json!({"tools": [{"type": "function", "function": function}]})).await;
    assert!(called["choices"][0]["finish_reason"].is_string(), "{called}");
    let spoken = ask(json!({"modalities": ["text", "audio"], "audio": {"voice": "ada", "format": "pcm16"}})).await;
    let message = &spoken["choices"][0]["message"]["audio"];
    assert_eq!(message["transcript"], answer(&read_aloud), "{}", message["transcript"]);
    assert!(STANDARD.decode(message["data"].as_str().unwrap()).unwrap().len() > 480);

    let mut caller = server.connect().await;
    caller.update(json!({"max_output_tokens": 12})).await;
    for question in ["the lazy dog", "and the fox"] {
        let events = caller.ask(question).await;
        let done = &find(&events, "response.done")["response"];
        assert!(done["status"] != "failed" && !sound(&events).is_empty(), "{done}");
    }
}

#[tokio::test]
#[ignore = "needs the part `thinkers` of scripts/setup.sh: for the long suite"]
async fn transformers_serve_thinks() {
    let checkpoint = root().join("tests/parity/fixtures/text_qwen2/checkpoint");
    let program = "from transformers.cli.transformers import main; main()";
    let arguments =
        ["serve", "MODEL", "--port", "PORT", "--host", "127.0.0.1", "--device", "cpu", "--log-level", "info"];
    answers_as_asked_directly(&Peer::start(&checkpoint, program, &arguments).await, true).await;
}

#[tokio::test]
#[ignore = "needs the part `thinkers` of scripts/setup.sh: for the long suite"]
async fn the_server_of_llama_cpp_thinks() {
    let checkpoint = root().join("tests/parity/fixtures/gguf_llama/checkpoint/model.gguf");
    let program = "from llama_cpp.server.__main__ import main; main()";
    let arguments = ["--model", "MODEL", "--port", "PORT", "--host", "127.0.0.1", "--n_ctx", "512"];
    answers_as_asked_directly(&Peer::start(&checkpoint, program, &arguments).await, false).await;
}
