//! Models of a published configuration with random weights.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::measure::{MeasuredTurn, StageOutput, TurnPhase, measure};
use repartee_engine::{Engine, EngineConfig, Source, StartStage, Synthetic, WeightPolicy};
use repartee_engine_api::{Command, Event, FinishReason, Respond, SpeechEngine};

/// Number of layers of every stack; the widths are as published.
const LAYERS: usize = 2;

fn synthetic(name: &str, layers: usize) -> Synthetic {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    Synthetic { folder, seed: 1, layers: Some(layers), skewed: false }
}

fn config() -> EngineConfig {
    EngineConfig {
        weights: WeightPolicy::Int4,
        sessions: 1,
        out_of_band: 0,
        session_tokens: 256,
        ..EngineConfig::default()
    }
}

/// Response to one second of audio with four tokens; returns the samples up to the fifth frame's.
fn answer(engine: &Engine) -> Vec<f32> {
    let session = engine.open().unwrap();
    let rate = engine.info().input_rate as usize;
    let heard = (0..rate).map(|i| (i * 7919 % 1000) as f32 * 2e-4 - 0.1).collect();
    session.submit_blocking(Command::Append(heard)).unwrap();
    session.submit_blocking(Command::Commit { item: 1 }).unwrap();
    session.submit_blocking(Command::Respond(Respond { max_tokens: Some(4), ..Respond::new(1, 2) })).unwrap();
    let mut samples = Vec::new();
    let enough = 5 * engine.info().frame.as_millis() as usize * engine.info().output_rate as usize / 1000;
    while samples.len() < enough {
        match session.next_event_blocking().unwrap() {
            Event::Audio { samples: more, .. } => samples.extend(more),
            Event::SegmentFinished { reason, .. } => {
                assert_eq!(reason, FinishReason::Stop);
                break;
            }
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    samples
}

#[test]
fn published_widths_run_end_to_end() {
    let source = || Source::Synthetic(synthetic("models/dimensions/qwen3-omni-30b-a3b", LAYERS));
    let engine = Engine::start(source(), &config()).unwrap();
    assert_eq!((engine.info().input_rate, engine.info().output_rate), (16_000, 24_000));
    let samples = answer(&engine);
    drop(engine);
    assert!(!samples.is_empty() && samples.iter().all(|sample| sample.abs() <= 1.0));
    assert!(samples.iter().any(|sample| *sample != 0.0));
    // One thread draws the same numbers.
    let again = Engine::start(source(), &EngineConfig { threads: Some(1), ..config() }).unwrap();
    assert!(answer(&again) == samples, "the weights depend on the threads");
}

/// One layer of each stack; tokenizers, prompts and everything without layers are whole.
#[test]
fn every_folder_of_dimensions_loads() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/dimensions");
    let mut failed = Vec::new();
    for folder in folders.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let source = Source::Synthetic(Synthetic { folder, seed: 1, layers: Some(1), skewed: false });
        let loaded = Checkpoint::open(source).map_err(Into::into).and_then(|open| load_model(&open, &config()));
        failed.extend(loaded.err().map(|error| error.to_string()));
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn random_weights_report_each_layer() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let source = Source::Synthetic(synthetic("models/demo", 2));
    Engine::start_with_progress(source, &config(), move |progress| keep.lock().unwrap().push(progress)).unwrap();
    let told = told.lock().unwrap();
    let shares: Vec<f32> = told
        .iter()
        .filter(|progress| progress.stage == StartStage::Weights)
        .map(|progress| progress.fraction)
        .collect();
    assert!(shares.len() >= 4 && shares.windows(2).all(|pair| pair[0] < pair[1]), "{shares:?}");
    assert!(shares[0] < 0.5 && *shares.last().unwrap() > 0.7, "{shares:?}");
}

/// Measures a turn of the demo's configuration with random weights: every stage has results, the encoder's while the
/// caller speaks.
#[test]
fn a_measured_turn_has_every_stage() {
    let turn =
        MeasuredTurn { input: Duration::from_secs(2), text_tokens: 4, sound: Duration::from_millis(500), seed: 3 };
    let measured = measure(Source::Synthetic(synthetic("models/demo", 2)), &config(), turn).unwrap();
    let found = |phase, at, kind| {
        let rows = measured.stages.iter().filter(|row| (row.phase, row.at, row.kind) == (phase, at, kind));
        rows.map(|row| (row.steps, row.rows, row.products.bytes, row.products.integer_multiplies)).next()
    };
    let window = found(TurnPhase::Listening, 0, "window").unwrap();
    assert!(window.0 > 0 && window.1 > 0 && window.2 > 0 && window.3 > 0, "{window:?}");
    let text = found(TurnPhase::Answer, 1, "decode").unwrap();
    // The first token is sampled with the prompt's last rows.
    assert!(text.1 <= 4 && text.3 > 0, "{text:?}");
    for (at, kind) in [(1, "prefill"), (2, "decode"), (3, "window")] {
        assert!(found(TurnPhase::Answer, at, kind).is_some_and(|row| row.1 > 0), "{at} {kind}: {:?}", measured.stages);
    }
    for row in measured.stages.iter().filter(|row| row.kind != "prefill") {
        let makes = [StageOutput::Other, StageOutput::Text, StageOutput::Codes, StageOutput::Other][row.at];
        assert_eq!(row.output, makes, "{row:?}");
    }
    for timing in [&measured.sequential, &measured.parallel] {
        assert!(timing.sound > Duration::ZERO && timing.first_sound <= timing.whole, "{timing:?}");
    }
    assert!(measured.resident > 0 && measured.machine.bandwidth > 0.0);
}

/// A family without audio input speaks a text instead of answering a question; its codec's layers are limited too.
#[test]
fn a_model_without_audio_input_speaks_text() {
    let turn =
        MeasuredTurn { input: Duration::from_secs(1), text_tokens: 12, sound: Duration::from_millis(300), seed: 3 };
    let source = Source::Synthetic(synthetic("models/dimensions/qwen3-tts-12hz-0.6b", 1));
    let measured = measure(source, &config(), turn).unwrap();
    assert_eq!(measured.turn.input, Duration::ZERO);
    let rows = |stage: &str, kind| {
        let of = measured.stages.iter().filter(|row| (row.stage, row.kind) == (stage, kind));
        of.map(|row| row.rows).sum::<u64>()
    };
    assert!(rows("talker", "prefill") > 0 && rows("talker", "decode") > 2 && rows("code2wav", "window") > 2);
    assert!(measured.parallel.sound >= turn.sound && measured.parallel.listening == Duration::ZERO);
}
