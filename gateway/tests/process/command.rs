//! The command line: its output and its exit codes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

/// Seconds after which a command is ended that serves on in place of failing.
const LONGEST: &str = "60";

fn repartee(arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_repartee");
    Command::new("timeout").args(["--kill-after=1", LONGEST, binary]).args(arguments).output().unwrap()
}

/// Asserts that the command exits with code 2 and prints these words.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = repartee(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn a_public_address_is_refused() {
    refused(&["serve", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "no keys", "127.0.0.1"]);
    refused(&["--listen", "[::]:0"], &["no keys"]);
}

#[test]
fn a_missing_checkpoint_is_named() {
    refused(&["serve", "--model", "/no/such/folder"], &["/no/such/folder"]);
    refused(&["ask", "a.wav", "b.wav", "--model", "/no/such/folder"], &["/no/such/folder"]);
}

#[test]
fn a_restricted_licence_must_be_accepted() {
    let restricted = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/parity/fixtures/covo_audio/checkpoint");
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["ask", "--text", "Hello."], &["check"]] {
        let refused_with = |model: &str, more: &[&str], words: &[&str]| {
            refused(&[command, &["--model", model], more].concat(), words);
        };
        refused_with(restricted, &[], &["academic", "--accept-licence covo-audio"]);
        refused_with(restricted, &["--accept-licence", "other"], &["\"other\"", "covo-audio"]);
        let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo");
        refused_with(demo, &["--accept-licence", "covo-audio"], &["covo-audio", "leave the setting out"]);
    }
    let accepted = repartee(&["check", "--model", restricted, "--accept-licence", "covo-audio"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let asked = ["ask", "--text", "Hello.", "--model", restricted, "--set", "engine.accept_licence=covo-audio"];
    let output = repartee(&asked);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("academic purposes only"), "the terms are printed: {said}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    refused(&["ask", "a.wav", "b.wav", "--device", "gpu"], &["`gpu`", "cuda:0", "auto"]);
    // A binary with CUDA asks the driver instead: gateway/tests/cuda.rs.
    if cfg!(not(feature = "cuda")) {
        let words = ["engine.device is cuda:1", "built without CUDA", "--features cuda"];
        refused(&["ask", "a.wav", "b.wav", "--device", "cuda:1"], &words);
        refused(&["ask", "a.wav", "b.wav", "--set", "engine.device=cuda:1"], &words);
    }
}

#[test]
fn a_cluster_needs_its_feature() {
    if cfg!(not(feature = "cluster")) {
        let words = ["cluster.nats", "--features repartee/cluster"];
        refused(&["--set", "cluster.nats=nats://127.0.0.1:4222"], &words);
    }
}

#[test]
fn a_missing_question_is_named() {
    refused(&["ask", "/no/such/question.wav", "answer.wav"], &["/no/such/question.wav"]);
}

#[test]
fn a_question_comes_in_one_way() {
    refused(&["ask", "--text", "Hello.", "a.wav", "b.wav"], &["two questions"]);
    refused(&["ask"], &["<QUESTION>", "--text"]);
}

#[test]
fn a_question_is_read_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer.wav");
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    command.args(["ask", "-"]).arg(&answer).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Count to three.").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("saved as"), "{said}");
    assert!(std::fs::read(&answer).unwrap().starts_with(b"RIFF"));
    // The same question as an argument gets the same answer, and its sound goes to standard output.
    let output = repartee(&["ask", "--text", "Count to three.", "-"]);
    assert!(output.stdout == std::fs::read(&answer).unwrap());
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().next(), said.lines().next());
}

#[test]
fn a_text_is_read_aloud() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("said.wav");
    let output = repartee(&["say", "One, two.", path.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("saved as"), "{said}");
    let spoken = std::fs::read(&path).unwrap();
    assert!(spoken.starts_with(b"RIFF") && spoken.len() > 8_000);
    refused(&["say", "One.", path.to_str().unwrap(), "--voice", "eve"], &["there is no voice `eve`"]);
    refused(&["say", "...", path.to_str().unwrap()], &["nothing to read"]);
    // A recogniser speaks nothing.
    let hears = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/parity/fixtures/whisper/checkpoint");
    refused(&["say", "One.", path.to_str().unwrap(), "--hear", hears], &["cannot read a given text aloud", "--speak"]);
}

#[test]
fn completions_and_manual_name_every_command() {
    for arguments in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]] {
        let output = repartee(arguments);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        for command in ["serve", "check", "ask", "say", "call", "bench", "quantize"] {
            assert!(said.contains(command), "{command} of {arguments:?}");
        }
    }
}

#[test]
fn quantising_says_what_to_type_next() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo");
    let output = repartee(&["quantize", demo, out, "--weights", "int8"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(" % less: "), "{said}");
    assert!(said.ends_with(&format!("Serve it: repartee --model {out}\n")), "{said}");
    refused(&["quantize", demo, out, "--weights", "int4"], &["finished checkpoint of another format"]);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["--listen", &address], &[&address]);
}

#[test]
fn check_prints_the_effective_settings() {
    let output = repartee(&["check", "--set", "limits.calls_per_key=7", "--listen", "127.0.0.1:9999"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for line in ["listen = \"127.0.0.1:9999\"", "calls_per_key = 7", "# model is unset", "# API keys: unset"] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn check_finds_every_problem() {
    let missing = ["check", "--model", "/no/such/folder", "--set", "turns.model=/no/such/turns.onnx"];
    refused(&missing, &["repartee: model: ", "/no/such/folder", "repartee: turns.model: ", "/no/such/turns.onnx"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{\"model_type\": \"bert\"}").unwrap();
    refused(&["check", "--think", folder.path().to_str().unwrap()], &["cascade.think: "]);
    if cfg!(not(feature = "cuda")) {
        refused(&["check", "--device", "cuda:0"], &["engine.device is cuda:0", "built without CUDA"]);
    }
    // What a server opens beside the model.
    refused(&["check", "--model", "/no/such/folder", "--listen", "0.0.0.0:0"], &["no keys", "/no/such/folder"]);
    let served = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo");
    assert!(repartee(&["check", "--model", served]).status.success());
}

#[test]
fn typing_errors_lead_to_settings() {
    refused(&["check", "--set", "limts.idle_s=3"], &["limts.idle_s", "did you mean limits.idle_s?"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("repartee.toml");
    std::fs::write(&file, "[limits]\ncalls_per_kee = 1\n").unwrap();
    refused(&["check", "--config", file.to_str().unwrap()], &["did you mean `calls_per_key`?"]);
    refused(&["--listen", "localhost"], &["`localhost` is no address", "localhost:8080"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    command
        .args(["check", "--listen", "localhost:9999"])
        .env("REPARTEE_LIMTS_IDLE_S", "1")
        .env("REPARTEE_LOG", "a=b=c");
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    for line in [
        "listen = \"127.0.0.1:9999\"",
        "# environment: REPARTEE_LIMTS_IDLE_S is no setting: did you mean REPARTEE_LIMITS_IDLE_S?",
        "# environment: REPARTEE_LOG: `a=b=c` is no filter",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_repartee"));
    let mut child = command.arg("check").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn old_names_of_settings_are_reported() {
    let set = ["--set", "engine.beside=3"];
    let named = "command line: engine.beside is now engine.out_of_band; the old name still works";
    let output = repartee(&[&["check"], &set[..]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("out_of_band = 3\n") && said.contains(named), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&[&["--listen", &address], &set[..]].concat(), &[&address, "WARN", named]);
    refused(&[&["ask", "/no/such/question.wav", "answer.wav"], &set[..]].concat(), &["WARN", named]);
}

#[test]
fn check_refuses_bad_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("repartee.toml");
    let path = file.to_str().unwrap();
    refused(&["check", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "no keys"]);
    refused(&["check", "--config", path], &[path]);
    std::fs::write(&file, "[limits]\ncalls_per_kee = 1\n").unwrap();
    refused(&["check", "--config", path], &[path, "limits", "calls_per_kee"]);
    refused(&["--config", path], &["calls_per_kee"]);
    std::fs::write(&file, "[tls]\ncertificate = \"/no/such.pem\"\nkey = \"/no/such.key\"\n").unwrap();
    refused(&["--config", path, "--listen", "127.0.0.1:0"], &["/no/such.pem"]);
    refused(&["check", "--config", path], &["/no/such.pem"]);
}

/// Writes a certificate for these years and its key into `folder`; returns the arguments that name them.
fn certificate(folder: &std::path::Path, (from, until): (i32, i32)) -> Vec<String> {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let path = |name: &str| folder.join(format!("{name}-{from}.pem"));
    std::fs::write(path("certificate"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    let set = |name: &str| format!("tls.{name}={}", path(name).display());
    ["--listen", "127.0.0.1:0", "--set", &set("certificate"), "--set", &set("key")].map(str::to_owned).to_vec()
}

#[test]
fn certificates_outside_their_time_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (years, words) in [((2001, 2002), "expired on Tue, 01 Jan 2002"), ((2090, 2091), "is not valid before")] {
        let arguments = certificate(folder.path(), years);
        for command in ["serve", "check"] {
            let arguments: Vec<&str> = std::iter::once(command).chain(arguments.iter().map(String::as_str)).collect();
            refused(&arguments, &["tls.certificate", &format!("certificate-{}.pem", years.0), words]);
        }
    }
    let arguments = certificate(folder.path(), (2020, 2090));
    let arguments: Vec<&str> = std::iter::once("check").chain(arguments.iter().map(String::as_str)).collect();
    assert!(repartee(&arguments).status.success());
}

/// Output of `--lan`, with its state in `folder`.
fn lan(folder: &std::path::Path) -> String {
    let mut server = Command::new(env!("CARGO_BIN_EXE_repartee"))
        .args(["--lan", "--listen", "127.0.0.1:0"])
        .env("XDG_STATE_HOME", folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = String::new();
    while !said.contains("fingerprint is") {
        said += &lines.next().expect("it goes on until the fingerprint is told");
        said.push('\n');
    }
    Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(server.wait().unwrap().success());
    said
}

#[test]
fn lan_prints_key_code_and_lasting_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let said = lan(folder.path());
    assert!(said.contains("https://") && said.contains("rp_"), "{said}");
    // The code's quiet zone consists of light modules alone.
    assert!(said.contains(&"█".repeat(29)), "{said}");
    let fingerprint = said.lines().find_map(|line| line.strip_prefix("SHA-256 fingerprint is ")).unwrap();
    assert_eq!(fingerprint.split(':').count(), 32, "{fingerprint}");
    assert!(lan(folder.path()).contains(fingerprint), "the next start has the same certificate");
}

#[test]
fn json_log_has_an_object_a_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // A warning, then an error, which is for the person at the terminal.
    let output = repartee(&["--listen", &address, "--set", "log.format=json", "--set", "engine.beside=3"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let [warning, error] = lines[..] else { panic!("{said}") };
    let warning: serde_json::Value = serde_json::from_str(warning).unwrap();
    assert_eq!(warning["level"], "WARN");
    assert!(warning["message"].as_str().unwrap().contains("engine.beside"), "{warning}");
    assert!(warning["timestamp"].is_string() && error.starts_with("repartee: "), "{said}");
    refused(&["check", "--set", "log.format=xml"], &["log.format", "xml"]);
}

#[test]
fn sighup_reloads_the_keys() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "the-first-of-the-keys\n").unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_repartee"))
        .args(["--listen", "127.0.0.1:0", "--set", &format!("keys.file={}", keys.display())])
        .env("REPARTEE_LOG", "info")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut hang_up = |words: &str| {
        Command::new("kill").args(["-HUP", &server.id().to_string()]).status().unwrap();
        assert!(log.any(|line| line.contains(words)), "{words}");
    };
    hang_up("certificate reloaded");
    std::fs::write(&keys, "short\n").unwrap();
    hang_up("nothing was changed");
    Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn signals_end_it_cleanly() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_repartee"))
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("http://127.0.0.1:"), "{line}");
        Command::new("kill").args([signal, &server.id().to_string()]).status().unwrap();
        assert!(server.wait().unwrap().success());
    }
}

#[test]
fn bench_size_writes_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report/size.json");
    let short = ["--heard", "1.5", "--tokens", "4", "--sound", "0.5", "--report", file.to_str().unwrap()];
    let output = repartee(&[&["bench", "size", "--set", "engine.weights=int4"], &short[..]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(report["name"], "size");
    for measure in [
        "machine_read_bandwidth",
        "thinker_decode_int4",
        "codec_frame_int4",
        "prefill_1s_int4",
        "listening_load_int4",
        "ttfp_loaded",
        "rtf_loaded_int4",
        "rtf_loaded_int4_8_cores_projected",
        "resident_int4",
    ] {
        let row = report["rows"].as_array().unwrap().iter().find(|row| row["measure"] == measure);
        assert!(row.is_some_and(|row| row["ours"].as_f64().is_some_and(|ours| ours > 0.0)), "{measure} in {report:#}");
        assert!(said.contains(measure), "{measure} in {said}");
    }
    let crowd =
        ["--heard", "0.5", "--tokens", "4", "--sound", "0.2", "--sessions", "1,2", "--report", file.to_str().unwrap()];
    let output = repartee(&[&["bench", "size"], &crowd[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    for measure in ["loading", "ttfp_p50_1", "ttfp_p95_2", "rtf_p50_1", "rtf_p95_2", "sound_each_second_2", "resident"]
    {
        let row = report["rows"].as_array().unwrap().iter().find(|row| row["measure"] == measure);
        assert!(row.is_some_and(|row| row["ours"].as_f64().is_some_and(|ours| ours > 0.0)), "{measure} in {report:#}");
    }
    // A text-to-speech family: its first stage passes the text on.
    let reading = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/parity/fixtures/tts_custom/checkpoint");
    let output = repartee(&[&["bench", "size", "--model", reading], &short[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let measures: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| row["measure"].as_str().unwrap()).collect();
    assert!(measures.contains(&"reader_decode_bf16") && measures.contains(&"codec_frame_bf16"), "{measures:?}");
    let output = repartee(&[&["bench", "size", "--model", reading], &crowd[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    refused(&["bench", "size", "--synthetic-weights", "/no/such/folder"], &["/no/such/folder"]);
    refused(&["bench", "size", "--heard=-1"], &["--heard -1"]);
}
