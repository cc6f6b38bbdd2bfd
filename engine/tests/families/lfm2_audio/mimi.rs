//! LFM2-Audio, the older model, whose folder has the codec Mimi in place of the detokenizer: parity of its decoder with the
//! reference's one decode of the whole, any split of its frames, and a response of the engine.

use repartee_engine::EngineConfig;
use repartee_engine::internals::load_model;
use repartee_engine_api::{Command, Respond};
use repartee_engine_testkit::driven::{serve, submit};
use serde_json::{Value, json};

use super::*;

/// Name of the fixture.
const OLDER: &str = "lfm2_mimi";
/// File of the codec.
const FILE: &str = "tokenizer-e351c8d8-checkpoint125.safetensors";
/// Parts of the file that decode.
const DECODES: [&str; 4] = ["decoder.", "decoder_transformer.", "quantizer.", "upsample."];

fn older() -> std::path::PathBuf {
    folder(OLDER).join("checkpoint")
}

/// Frames of the first response.
fn frames() -> Vec<Vec<u32>> {
    let (_, said) = positions(&Expected::load(NAME), "turn0", 8);
    spoken(&said, 32)
}

/// Samples of these frames, and their difference from the reference's.
fn decoded(folder: &Path) -> f32 {
    let ops = Cpu::default();
    let frames = frames();
    let ours = decode(&ops, &load(&ops, folder), &frames, &[frames.len()]);
    difference(&ours, &Expected::load(OLDER).tensor("turn0.waveform").0)
}

#[test]
fn decoded_frames_equal_the_reference() {
    let found = decoded(&older());
    println!("samples: {found:.1e}");
    assert!(found < TOLERANCE, "{found}");
}

#[test]
fn any_split_of_older_frames_gives_equal_bits() {
    let ops = Cpu::default();
    let (model, frames) = (load(&ops, &older()), frames());
    let whole = decode(&ops, &model, &frames, &[frames.len()]);
    for pieces in [&[1][..], &[2], &[3, 1], &[7], &[16, 1]] {
        assert!(decode(&ops, &model, &frames, pieces) == whole, "{pieces:?} frames at a time");
    }
}

/// Codebooks beyond those of a frame, and projections to codes, are not part of the decoder.
fn is_read(name: &str) -> bool {
    let beyond = ["rvq_rest.vq.layers.7.", "rvq_rest.vq.layers.8.", "input_proj", "_initialized"];
    DECODES.iter().any(|part| name.starts_with(part)) && !beyond.iter().any(|part| name.contains(part))
}

#[test]
fn zeroing_any_decoding_tensor_is_noticed() {
    let checkpoint = open(&older()).weights_of(&[FILE]).unwrap();
    let names: Vec<String> = checkpoint.tensor_names().filter(|name| is_read(name)).map(str::to_owned).collect();
    let mut unnoticed = Vec::new();
    for name in &names {
        let copy = copy(&older());
        zero(&copy.path().join(FILE), |tensor| tensor == name);
        if decoded(copy.path()) <= TOLERANCE {
            unnoticed.push(name);
        }
    }
    assert!(unnoticed.is_empty() && names.len() > 60, "{unnoticed:?} of {}", names.len());
}

#[test]
fn the_older_model_answers_as_the_reference() {
    let (expected, copy) = (Expected::load(NAME), copy(&older()));
    std::fs::write(copy.path().join("generation_config.json"), r#"{"audio_temperature": 0.0}"#).unwrap();
    let config = EngineConfig { sessions: 2, session_tokens: 1024, ..EngineConfig::default() };
    let mut engine = serve(copy.path(), &config);
    let session = engine.open();
    submit(&session, Command::Append(expected.tensor("turn0.audio").0));
    submit(&session, Command::Commit { item: 0 });
    let said = engine.respond(&session, Respond { max_tokens: Some(9), ..Respond::new(0, 1) }).unwrap();
    assert_eq!(said.text, expected.facts["runs"]["turn0"]["text"].as_str().unwrap());
    let waveform = Expected::load(OLDER).tensor("turn0.waveform").0;
    assert_eq!(said.samples.len(), waveform.len());
    let found = difference(&said.samples, &waveform);
    assert!(found < TOLERANCE, "{found}");
}

#[test]
fn odd_codecs_are_refused() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("mimi.codebook_size", |config| config["mimi"]["codebook_size"] = json!(33)),
        ("mimi.sampling_rate", |config| config["mimi"]["sampling_rate"] = json!(16_000)),
        ("mimi.num_quantizers", |config| config["mimi"]["num_quantizers"] = json!(7)),
        (FILE, |config| config["mimi"]["num_filters"] = json!(4)),
    ];
    for (named, change) in changes {
        let copy = copy(&older());
        let path = copy.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut config);
        std::fs::write(&path, config.to_string()).unwrap();
        let error = load_model(&open(copy.path()), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
}
