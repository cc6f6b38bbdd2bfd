//! The embedded demo gives the same transcript on every processor, and the same sound on each run on one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, Sampling, SpeechEngine};
use repartee_media::sound_file;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn questions() -> PathBuf {
    root().join("tests/questions")
}

/// First line of output of `repartee ask`, and the file that it writes. `level` caps the vector instructions in use.
fn asked(file: &str, level: Option<&str>, folder: &Path) -> (String, Vec<u8>) {
    let answer = folder.join("answer.wav");
    let mut process = Process::new(env!("CARGO_BIN_EXE_repartee"));
    process.arg("ask").arg(questions().join(file)).arg(&answer);
    if let Some(level) = level {
        process.env("REPARTEE_SIMD", level);
    }
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let transcript = String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_owned();
    (transcript, std::fs::read(answer).unwrap())
}

/// First question of each topic.
fn one_of_each_topic() -> Vec<String> {
    let list = std::fs::read_to_string(questions().join("questions.json")).unwrap();
    let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
    let mut topics = HashSet::new();
    let first = list.iter().filter(|question| topics.insert(question["topic"].as_str().unwrap()));
    first.map(|question| question["file"].as_str().unwrap().to_owned()).collect()
}

/// Level of most processors of the architecture, for `REPARTEE_SIMD`, if this one has it.
fn common_level() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    return (std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma"))
        .then_some("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64").then_some("neon")
}

/// SIMD levels to compare with the best one. Prints skipped levels; in CI a skipped level fails the test.
fn levels() -> Vec<&'static str> {
    if let Some(level) = common_level() {
        return vec![level, "baseline"];
    }
    println!("SKIPPED, not on this processor: avx2");
    assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "in CI nothing is skipped");
    vec!["baseline"]
}

#[test]
fn same_transcript_at_every_simd_level() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcripts = HashSet::new();
    let files = one_of_each_topic();
    let levels = levels();
    for file in &files {
        let (transcript, sound) = asked(file, None, folder.path());
        assert!(
            asked(file, None, folder.path()) == (transcript.clone(), sound),
            "{file}: another sound the second time"
        );
        for level in &levels {
            assert_eq!(asked(file, Some(level), folder.path()).0, transcript, "{file} with {level} instructions");
        }
        assert!(!transcript.is_empty(), "{file}");
        transcripts.insert(transcript);
    }
    // The end-to-end tests check that answers are right; here they only have to differ between questions.
    assert!(transcripts.len() > files.len() / 2, "{transcripts:?}");
}

/// Transcript and samples of an answer at a high temperature.
fn drawn(engine: &dyn SpeechEngine, question: &[f32], seed: u64) -> (String, Vec<f32>) {
    let session = engine.open().unwrap();
    session.submit_blocking(Command::Append(question.to_vec())).unwrap();
    session.submit_blocking(Command::Commit { item: 1 }).unwrap();
    // A high temperature, because the model is sure of its answers.
    let sampling = Some(Sampling { temperature: 4.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 });
    session.submit_blocking(Command::Respond(Respond { sampling, seed, ..Respond::new(1, 2) })).unwrap();
    let (mut said, mut samples) = (String::new(), Vec::new());
    loop {
        match session.next_event_blocking().unwrap() {
            Event::Text { text, .. } => said += &text,
            Event::Audio { samples: more, .. } => samples.extend(more),
            Event::SegmentFinished { .. } => return (said, samples),
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
}

#[test]
fn a_seed_fixes_transcript_and_sound() {
    let engine = Engine::start(Source::Folder(root().join("models/demo")), &EngineConfig::default()).unwrap();
    let file = std::fs::read(questions().join("how-are-you.wav")).unwrap();
    let question = sound_file::read(&file, engine.info().input_rate, Duration::from_secs(60)).unwrap();
    let first = drawn(&engine, &question, 5);
    assert!(drawn(&engine, &question, 5) == first, "another answer with the same seed");
    assert!((6..12).any(|seed| drawn(&engine, &question, seed).0 != first.0), "every seed says {:?}", first.0);
}
