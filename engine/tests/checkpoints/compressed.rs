//! Checkpoints with integer matrices, in the format of the package compressed-tensors.
//!
//! `tests/parity/compressed/make_fixtures.py` makes the fixtures in `data/compressed`; they carry the package's
//! version.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::fs;
use std::path::{Path, PathBuf};

use repartee_engine::internals::{Checkpoint, TensorData};
use repartee_engine::quantise::{QuantiseError, quantise};
use repartee_engine::{CheckpointError, EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{Command, Event, Respond, Role, Sampling};
use repartee_engine_testkit::driven::{Driven, serve, submit};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

const CASES: [&str; 6] =
    ["int4_group32", "int4_group64", "int4_group128", "int4_channel", "int8_group32", "int8_channel"];

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn weights() -> Value {
    json!({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32})
}

fn described(weights: Value) -> Value {
    json!({
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    })
}

/// Opens a checkpoint with one weight file.
fn checkpoint(quantization: Value, file: &[u8]) -> (tempfile::TempDir, Result<Checkpoint, CheckpointError>) {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"architectures": ["Test"], "quantization_config": quantization});
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::write(folder.path().join("model.safetensors"), file).unwrap();
    let opened = Checkpoint::open(Source::Folder(folder.path().to_owned()));
    (folder, opened)
}

fn fixture(case: &str) -> Vec<u8> {
    fs::read(here().join("tests/data/compressed").join(format!("{case}.safetensors"))).unwrap()
}

#[test]
fn fixtures_stand_for_the_packages_numbers() {
    for case in CASES {
        let file = fixture(case);
        let expected = SafeTensors::deserialize(&file).unwrap();
        let expected = expected.tensor("expected").unwrap();
        let numbers: Vec<f32> = expected.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let (_folder, opened) = checkpoint(described(weights()), &file);
        let opened = opened.unwrap();
        let TensorData::Packed(matrix) = opened.numbers("m.weight", expected.shape()).unwrap() else {
            panic!("{case} is not stored as integers");
        };
        matrix.check().unwrap();
        assert_eq!(matrix.numbers(), numbers, "{case}");
        let wrong = [expected.shape()[0], expected.shape()[1] + 64];
        let error = opened.numbers("m.weight", &wrong).unwrap_err();
        assert!(matches!(error, CheckpointError::WrongShape { .. }), "{case}: {error}");
    }
}

#[test]
fn other_quantisations_are_refused_by_name() {
    let with = |field: &str, value: Value| {
        let mut weights = weights();
        weights[field] = value;
        described(weights)
    };
    let other = json!({"quant_method": "exl2", "bits": 4});
    let mut float = described(weights());
    float["format"] = json!("nvfp4-pack-quantized");
    let mut turned = described(weights());
    turned["transform_config"] = json!({"config_groups": {"u": {}}});
    let file = fixture("int4_group32");
    for (quantization, named) in [
        (other, "quant_method: exl2"),
        (float, "format: nvfp4-pack-quantized"),
        (turned, "transform_config"),
        (with("symmetric", json!(false)), "group_0.weights.symmetric"),
        (with("num_bits", json!(3)), "group_0.weights.num_bits: 3"),
        (with("type", json!("float")), "group_0.weights.type: float of 4 bits"),
        (with("strategy", json!("tensor")), "group_0.weights.strategy: tensor"),
        (with("group_size", json!(48)), "group_0.weights.group_size: 48"),
        (with("actorder", json!("group")), "group_0.weights.actorder: group"),
    ] {
        let (_folder, opened) = checkpoint(quantization, &file);
        let error = opened.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("config.json: quantization_config.") && error.contains(named), "{error}");
    }
}

/// A fixture with a tensor of zeros added, or in place of its own.
fn fixture_with(file: &[u8], name: &str, dtype: Dtype, shape: &[usize]) -> Vec<u8> {
    let fixture = SafeTensors::deserialize(file).unwrap();
    let zeros = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
    let added = TensorView::new(dtype, shape.to_vec(), &zeros).unwrap();
    let kept = fixture.iter().filter(|(found, _)| *found != name);
    safetensors::serialize(kept.chain([(name, added)]), None).unwrap()
}

#[test]
fn tensors_that_change_numbers_are_refused_by_name() {
    let file = fixture("int4_group32");
    let shape = SafeTensors::deserialize(&file).unwrap().tensor("expected").unwrap().shape().to_vec();
    let scales = [shape[0], shape[1] / 32];
    for (name, dtype, tensor, reason) in [
        ("m.weight_zero_point", Dtype::I8, &scales[..], "zero points are not served"),
        ("m.weight_g_idx", Dtype::I32, &shape[1..], "reordered groups are not served"),
        ("m.weight_global_scale", Dtype::F32, &[1], "scales of scales are not served"),
        ("m.weight_scale", Dtype::F16, &scales, "only scales of bfloat16 are served"),
    ] {
        let (_folder, opened) = checkpoint(described(weights()), &fixture_with(&file, name, dtype, tensor));
        let error = opened.unwrap().numbers("m.weight", &shape).unwrap_err().to_string();
        assert!(error.contains(&format!("tensor {name}: {reason}")), "{error}");
    }
}

/// Quantises the demo into a folder.
fn demo(policy: WeightPolicy) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    quantise(&here().join("../models/demo"), out.path(), policy, 2, |_| {}).unwrap();
    out
}

/// Text and samples of an answer.
fn answer(engine: &mut Driven) -> (String, Vec<f32>) {
    let session = engine.open();
    engine.settle();
    submit(&session, Command::text(1, Role::User, "What is the capital of France?"));
    let sampling = Some(Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 });
    submit(&session, Command::Respond(Respond { sampling, ..Respond::new(1, 2) }));
    let (mut said, mut samples) = (String::new(), Vec::new());
    loop {
        engine.ticks(1);
        while let Some(event) = session.try_next_event() {
            match event {
                Event::Text { text, .. } => said += &text,
                Event::Audio { samples: more, .. } => samples.extend(more),
                Event::SegmentFinished { .. } => return (said, samples),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
}

/// Stored integers give the same bits as matrices that are quantised at loading.
#[test]
fn quantised_demo_answers_as_the_demo_does() {
    for policy in [WeightPolicy::Int4, WeightPolicy::Mixed] {
        let config = EngineConfig {
            weights: policy,
            threads: Some(2),
            sessions: 2,
            out_of_band: 0,
            session_tokens: 512,
            ..EngineConfig::default()
        };
        let stored = demo(policy);
        let expected = answer(&mut serve(&here().join("../models/demo"), &config));
        assert!(!expected.1.is_empty(), "no sound");
        let found = answer(&mut serve(stored.path(), &config));
        assert!(found == expected, "{policy:?}: {} and {}", found.0, expected.0);
        // Stored integers stay integers under any weight policy.
        let other = EngineConfig { weights: WeightPolicy::Bf16, ..config };
        assert!(!answer(&mut serve(stored.path(), &other)).1.is_empty());
    }
}

#[test]
fn quantising_goes_on_where_it_was() {
    let out = demo(WeightPolicy::Int8);
    let (model, config) = (out.path().join("model.safetensors"), out.path().join("config.json"));
    let (whole, described) = (fs::read(&model).unwrap(), fs::read_to_string(&config).unwrap());
    assert!(described.contains("pack-quantized") && whole.len() < 16 << 20);
    assert!(!out.path().join("recipe").exists() && out.path().join("repartee.json").exists());
    let again = || {
        let sizes = quantise(&here().join("../models/demo"), out.path(), WeightPolicy::Int8, 1, |_| {}).unwrap();
        assert!(sizes.written < sizes.read, "{sizes:?}");
    };
    // A finished folder stays as it is, and is not overwritten by another format.
    again();
    let error = quantise(&here().join("../models/demo"), out.path(), WeightPolicy::Int4, 1, |_| {}).unwrap_err();
    assert!(matches!(error, QuantiseError::OtherFormat(_)), "{error}");
    assert!(fs::read(&model).unwrap() == whole && fs::read_to_string(&config).unwrap() == described);
    // Interrupted within the file.
    fs::rename(&model, out.path().join("model.safetensors.partial")).unwrap();
    fs::remove_file(&config).unwrap();
    again();
    assert!(fs::read(&model).unwrap() == whole && fs::read_to_string(&config).unwrap() == described);
    // Interrupted after it: complete files are kept.
    let mut marked = whole;
    *marked.last_mut().unwrap() ^= 1;
    fs::write(&model, &marked).unwrap();
    fs::remove_file(&config).unwrap();
    again();
    assert!(fs::read(&model).unwrap() == marked);
    let error = quantise(out.path(), &out.path().join("x"), WeightPolicy::Int8, 1, |_| {}).unwrap_err();
    assert!(matches!(error, QuantiseError::Quantised(_)), "{error}");
    let demo = here().join("../models/demo");
    let error = quantise(&demo, &demo, WeightPolicy::Int8, 1, |_| {}).unwrap_err();
    assert!(matches!(error, QuantiseError::SameFolder(_)), "{error}");
    let error = quantise(&demo, out.path(), WeightPolicy::Bf16, 1, |_| {}).unwrap_err();
    assert!(matches!(error, QuantiseError::Float), "{error}");
}
