//! Integer weights: the demo model answers with each policy, and the answers keep the engine's guarantees.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::path::{Path, PathBuf};

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{Command, Event, Respond, Sampling, SessionHandle};
use repartee_engine_testkit::driven::{Driven, serve, submit};
use repartee_engine_testkit::eager::{batch, index};
use repartee_engine_testkit::{CONVERSATIONS, Expected, difference, folder};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, WeightFormat, WeightLayout};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn demo(weights: WeightPolicy, threads: usize) -> Driven {
    let config = EngineConfig {
        weights,
        threads: Some(threads),
        sessions: 4,
        out_of_band: 0,
        session_tokens: 512,
        ..EngineConfig::default()
    };
    serve(&root().join("models/demo"), &config)
}

/// A recorded question: 16 kHz, mono, 16 bit.
fn question(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(root().join("tests/questions").join(name)).unwrap();
    let data = bytes.windows(4).position(|tag| tag == b"data").unwrap() + 8;
    bytes[data..].as_chunks().0.iter().map(|&sample| f32::from(i16::from_le_bytes(sample)) / 32_768.0).collect()
}

fn ask(session: &SessionHandle, question: &[f32]) {
    submit(session, Command::Append(question.to_vec()));
    submit(session, Command::Commit { item: 1 });
    let sampling = Some(Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 });
    submit(session, Command::Respond(Respond { sampling, ..Respond::new(1, 2) }));
}

/// Text and samples of the answers to all questions, in concurrent sessions.
fn answers(engine: &mut Driven, questions: &[&[f32]]) -> Vec<(String, Vec<f32>)> {
    let sessions: Vec<_> = questions.iter().map(|_| engine.open()).collect();
    engine.settle();
    sessions.iter().zip(questions).for_each(|(session, question)| ask(session, question));
    let mut answers = vec![(String::new(), Vec::new()); questions.len()];
    let mut open = questions.len();
    while open > 0 {
        engine.ticks(1);
        for (session, (said, samples)) in sessions.iter().zip(&mut answers) {
            while let Some(event) = session.try_next_event() {
                match event {
                    Event::Text { text, .. } => *said += &text,
                    Event::Audio { samples: more, .. } => samples.extend(more),
                    Event::SegmentFinished { .. } => open -= 1,
                    Event::Failed { error, .. } => panic!("{error}"),
                    _ => {}
                }
            }
        }
    }
    answers
}

#[test]
fn demo_answers_with_integer_weights() {
    let question = question("capital-of-france.wav");
    let mut sounds = Vec::new();
    for policy in WeightPolicy::ALL {
        let (said, samples) = answers(&mut demo(policy, 1), &[&question]).remove(0);
        println!("{policy:?}: {said} ({} samples)", samples.len());
        assert!(said.contains("Paris"), "{policy:?}: {said}");
        // Between half a second and ten seconds of audio, all within full scale.
        assert!((12_000..240_000).contains(&samples.len()), "{policy:?}: {} samples", samples.len());
        assert!(samples.iter().all(|sample| sample.abs() <= 1.0) && samples.iter().any(|sample| sample.abs() > 0.05));
        sounds.push(samples);
    }
    for (at, sound) in sounds.iter().enumerate() {
        assert!(!sounds[..at].contains(sound), "{:?} changes nothing", WeightPolicy::ALL[at]);
    }
}

/// Integer weights keep a guarantee of float weights: the bits depend neither on the threads nor on other sessions.
#[test]
fn integer_answers_are_equal_in_any_company() {
    let questions = ["count-three-to-six.wav", "cow-says.wav", "baby-cat.wav"].map(question);
    for policy in [WeightPolicy::Int8, WeightPolicy::Mixed] {
        let mut engine = demo(policy, 1);
        let alone: Vec<_> = questions.iter().map(|question| answers(&mut engine, &[question]).remove(0)).collect();
        let together = answers(&mut demo(policy, 3), &questions.each_ref().map(|question| &question[..]));
        assert!(alone == together, "{policy:?}");
    }
}

/// Output rows of each layer of the thinker for a fixture's prompt, without its audio.
fn rows_after_layers(name: &str, policy: WeightPolicy) -> Vec<Vec<f32>> {
    let ops = Cpu::default();
    let checkpoint = Checkpoint::open(Source::Folder(folder(name).join("checkpoint"))).unwrap();
    let Qwen3Omni { thinker, config, .. } = Qwen3Omni::load_as(&ops, &checkpoint, policy).unwrap();
    let (prompt, _) = Expected::load(name).ids("turn0.thinker.prompt_ids");
    let mut cache = thinker.model.cache(&ops, 1, prompt.len());
    let mut rows_after = |layer: usize| {
        let x = thinker.embed(&ops, &index(&ops, &prompt), None);
        let rows = batch(&ops, 0, prompt.len());
        ops.read(&thinker.model.forward(&ops, x, &mut cache, &rows, Some(layer)).1.unwrap())
    };
    (1..=config.thinker.text.model.layers.num_hidden_layers).map(&mut rows_after).collect()
}

#[test]
fn eight_bits_are_nearer_after_each_layer() {
    for name in CONVERSATIONS {
        let exact = rows_after_layers(name, WeightPolicy::Bf16);
        let lost = [WeightPolicy::Int8, WeightPolicy::Mixed, WeightPolicy::Int4].map(|policy| {
            let rows = rows_after_layers(name, policy);
            exact.iter().zip(rows).map(|(exact, rows)| difference(&rows, exact)).collect::<Vec<_>>()
        });
        for (layer, ((eight, mixed), four)) in lost[0].iter().zip(&lost[1]).zip(&lost[2]).enumerate() {
            println!("{name:10} after layer {}: int8 {eight:.1e}, mixed {mixed:.1e}, int4 {four:.1e}", layer + 1);
            assert!(*eight > 1e-4 && eight < four && *four < 1.0, "{name}, layer {}", layer + 1);
        }
    }
}

#[test]
fn policies_are_as_documented() {
    let experts = WeightLayout::Experts { per_expert: 2 };
    let formats = |layout: WeightLayout| WeightPolicy::ALL.map(|policy| policy.format(layout));
    assert_eq!(
        formats(WeightLayout::Linear),
        [WeightFormat::Float, WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Int8]
    );
    assert_eq!(formats(experts), [WeightFormat::Float, WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Int4]);
    assert_eq!(
        formats(WeightLayout::Table),
        [WeightFormat::Float, WeightFormat::Int8, WeightFormat::Int8, WeightFormat::Int8]
    );
    for layout in [WeightLayout::Vector, WeightLayout::Depthwise, WeightLayout::Conv2d { stride: 2 }] {
        assert_eq!(formats(layout), [WeightFormat::Float; 4]);
    }
    let names = WeightPolicy::ALL.map(|policy| serde_json::to_string(&policy).unwrap());
    assert_eq!(names, ["\"bf16\"", "\"int8\"", "\"int4\"", "\"mixed\""]);
    let error = serde_json::from_str::<EngineConfig>("{\"weights\": \"int2\"}").unwrap_err().to_string();
    assert!(error.contains("int2") && error.contains("`bf16`, `int8`, `int4`, `mixed`"), "{error}");
}
