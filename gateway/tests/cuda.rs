//! One binary with and without a CUDA driver: `--device` chooses, the answer equals the processor's, and errors name
//! the missing part. `decode test-cuda` runs it with a simulated driver.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_media::sound_file;
use serde_json::{Value, json};

fn question() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/questions/capital-of-france.wav")
}

/// `repartee` on a device, with little memory.
fn repartee(arguments: &[&str], device: &str) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_repartee"));
    process.args(arguments).args(["--device", device, "--set", "engine.sessions=1", "--set", "engine.cache_mib=64"]);
    process.args(["--set", "engine.session_tokens=512"]);
    process
}

/// Server process that is killed at the end of the test.
struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Transcript and sound of a server's answer on a device to the spoken question in one upload. A simulated device takes
/// minutes, so no wait here is shorter.
fn served(device: &str) -> (String, Vec<f32>) {
    let process = repartee(&["--listen", "127.0.0.1:0"], device).stdout(Stdio::piped()).spawn().unwrap();
    let mut server = ServerProcess(process);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.split_once("http://")?.1.split_once('/')?.0.to_owned())).unwrap();
    let sound = json!({"data": STANDARD.encode(std::fs::read(question()).unwrap()), "format": "wav"});
    let content = json!([{"type": "input_audio", "input_audio": sound}]);
    let asked = json!({"model": "demo", "modalities": ["text", "audio"], "audio": {"voice": "heart", "format": "wav"},
        "messages": [{"role": "user", "content": content}]})
    .to_string();
    let mut socket = TcpStream::connect(&address).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        asked.len()
    );
    socket.write_all((head + &asked).as_bytes()).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    let answer: Value = serde_json::from_str(body).unwrap();
    let audio = &answer["choices"][0]["message"]["audio"];
    let file = STANDARD.decode(audio["data"].as_str().unwrap()).unwrap();
    let samples = sound_file::read(&file[..], 24_000, Duration::from_secs(60)).unwrap();
    (audio["transcript"].as_str().unwrap().to_owned(), samples)
}

/// Runs `repartee ask` on a device.
fn ask(device: &str, with_driver: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut process = repartee(&["ask"], device);
    process.arg(question()).arg(folder.path().join("answer.wav"));
    if !with_driver {
        process.env_remove("LD_LIBRARY_PATH");
    }
    process.output().unwrap()
}

/// Transcript of the answer.
fn answer(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap().to_owned()
}

#[test]
fn a_question_is_answered_on_the_chosen_device() {
    let (said, sound) = served("cpu");
    assert!(said.contains("Paris") && sound.iter().any(|sample| sample.abs() > 0.05), "{said}");
    let (on_device, its_sound) = served("cuda:0");
    assert_eq!((on_device, its_sound.len()), (said, sound.len()));
    let off = sound.iter().zip(&its_sound).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // The quantisation step of the wav file is 3e-5.
    assert!(off < 2e-4, "off by {off}");
}

#[test]
fn missing_driver_uses_the_cpu_or_reports() {
    let refused = ask("cuda:0", false);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("no NVIDIA driver") && said.contains("`cpu`"), "{said}");
    assert!(answer(&ask("auto", false)).contains("Paris"));
}
