//! `repartee call`: questions to a running server, and a conversation over pipes.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use repartee::auth::KeySet;
use repartee::cli::call::connection::CallTarget;
use repartee::cli::call::error::CallError;
use repartee::cli::call::playout::{FRAME_BYTES, FRAME_MS, Playout};
use repartee_gateway_testkit::{PATIENCE, Running, own_address, question, silence};
use repartee_media::{pcm, sound_file};
use repartee_testkit::scripted::Script;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

/// Standard output, standard error and exit code of a call to a server.
async fn called(server: &str, arguments: &[&str], key: Option<&str>, input: &[u8]) -> (Vec<u8>, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    command.args(["call", server]).args(arguments).env_remove("REPARTEE_KEY").kill_on_drop(true);
    command.envs(key.map(|key| ("REPARTEE_KEY", key)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let fed = tokio::spawn(async move {
        // A command that reads no input may have ended.
        let _ = stdin.write_all(&input).await;
    });
    let Output { status, stdout, stderr } = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    fed.await.unwrap();
    (stdout, String::from_utf8(stderr).unwrap(), status.code())
}

fn wav() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/question.wav").to_owned()
}

/// Number of samples that can be heard in a wav file.
fn audible(path: &Path) -> usize {
    let samples = sound_file::read(&std::fs::read(path).unwrap(), 24_000, Duration::from_secs(60)).unwrap();
    samples.iter().filter(|sample| sample.abs() > 0.01).count()
}

#[tokio::test]
async fn a_question_is_answered_by_a_server() {
    let (server, folder) = (Running::start(Script::default()).await, tempfile::tempdir().unwrap());
    let (address, answer) = (server.address.to_string(), folder.path().join("answer.wav"));
    let (out, said, code) = called(&address, &[&wav(), answer.to_str().unwrap()], None, b"").await;
    let out = String::from_utf8(out).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert!(out.starts_with("I heard ") && out.contains("saved as"), "{out}");
    assert!(audible(&answer) > 1_000);
    // Text in, text out; the address is a URL.
    let url = format!("http://{address}/v1");
    for (arguments, input) in [(&["--text", "Hello."][..], &b""[..]), (&["-"], b"Hello.\n")] {
        let (out, said, code) = called(&url, arguments, None, input).await;
        assert_eq!(code, Some(0), "{said}");
        assert!(!out.is_empty() && !out.starts_with(b"RIFF"), "{}", String::from_utf8_lossy(&out));
    }
}

#[tokio::test]
async fn pipes_carry_a_conversation() {
    let server = Running::start(Script::default()).await;
    // Two turns: the second one interrupts or follows the first answer.
    let spoken = [question(), silence(1_500)].concat();
    let (out, said, code) = called(&server.address.to_string(), &["--pipe"], None, &pcm::encode_i16le(&spoken)).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("I heard "), "{said}");
    let played = pcm::decode_i16le(&out).unwrap();
    assert!(played.iter().filter(|sample| sample.abs() > 0.01).count() > 1_000, "the answer is played");
    // In real time: silence before the answer.
    let first = played.iter().position(|sample| sample.abs() > 0.01).unwrap();
    assert!(first > 24_000, "{first}");
}

#[tokio::test]
async fn servers_that_refuse_are_named() {
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse("the-key-of-the-house").unwrap();
    })
    .await;
    let address = server.address.to_string();
    let (_, said, code) = called(&address, &["--text", "Hello."], None, b"").await;
    assert!(code == Some(2) && said.contains("REPARTEE_KEY") && said.contains(&address), "{said}");
    let (out, said, code) = called(&address, &["--text", "Hello."], Some("the-key-of-the-house"), b"").await;
    assert!(code == Some(0) && !out.is_empty(), "{said}");
    let nobody = own_address().to_string();
    let (_, said, code) = called(&nobody, &["--text", "Hello."], None, b"").await;
    assert!(code == Some(2) && said.contains("cannot reach") && said.contains("start a server"), "{said}");
    let (_, said, code) = called("ftp://a", &["--text", "Hello."], None, b"").await;
    assert!(code == Some(2) && said.contains("no address"), "{said}");
    let (_, said, code) = called(&nobody, &["/no/such.wav"], None, b"").await;
    assert!(code == Some(2) && said.contains("/no/such.wav"), "{said}");
}

#[test]
fn addresses_become_websocket_urls() {
    for (address, url) in [
        ("localhost:8080", "ws://localhost:8080/v1/realtime"),
        ("http://127.0.0.1:8080/", "ws://127.0.0.1:8080/v1/realtime"),
        ("https://voice.example", "wss://voice.example/v1/realtime"),
        ("ws://[::1]:8080/v1/realtime", "ws://[::1]:8080/v1/realtime"),
        ("wss://voice.example/door/v1", "wss://voice.example/door/v1/realtime"),
    ] {
        assert_eq!(CallTarget::new(address, None, None).unwrap().url(), url);
    }
    let error = CallTarget::new("ftp://a", None, None).unwrap_err().to_string();
    assert!(error.contains("`ftp://a`") && error.contains("localhost:8080"), "{error}");
    assert!(matches!(CallTarget::new("a", Some("b\nc"), None), Err(CallError::Key)));
}

#[test]
fn frames_are_full_and_in_order() {
    let mut playout = Playout::default();
    assert_eq!(playout.frame(), vec![0; FRAME_BYTES]);
    playout.push("a", &vec![1; FRAME_BYTES / 2]);
    playout.push("b", &vec![2; FRAME_BYTES]);
    let frame = playout.frame();
    assert_eq!((frame[0], frame[FRAME_BYTES - 1], frame.len()), (1, 2, FRAME_BYTES));
    let frame = playout.frame();
    assert_eq!((frame[0], frame[FRAME_BYTES - 1]), (2, 0));
    assert!(playout.is_empty() && playout.clear().is_empty(), "what was heard is not cut");
}

#[test]
fn cut_items_have_their_heard_time() {
    let mut playout = Playout::default();
    playout.push("a", &vec![1; 3 * FRAME_BYTES]);
    playout.frame();
    // The item goes on later.
    playout.push("a", &vec![1; FRAME_BYTES]);
    playout.push("b", &vec![1; FRAME_BYTES]);
    assert_eq!(playout.clear(), [("a".to_owned(), FRAME_MS), ("b".to_owned(), 0)]);
    assert!(playout.is_empty());
}
