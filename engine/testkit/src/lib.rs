//! Code that the test binaries of the engine share; not part of the shipped binary.
//!
//! - this page: fixtures made by the reference implementation (`tests/parity`), and comparison with them
//! - [`audio_encoder`]: audio encoders with random weights
//! - [`clause_family`]: a voice that speaks a clause at a time, and a cascade that speaks its messages
//! - [`driven`]: sessions driven tick by tick
//! - [`device`]: the device of the models under test
//! - [`eager`]: parts of a model called one by one
//! - [`forms`]: a fixture in other published forms
//! - [`generic`]: properties of every family, written once
//! - [`other_family`]: a synthetic family built on the real parts
//! - [`remote_family`]: a family whose language model is outside of the engine
//! - [`speech`]: fixtures of Qwen3-TTS, and edited copies of their checkpoints
//! - [`spelling`]: a family of one stage that speaks its prompt in reverse
//! - [`stage_runs`]: a stage that is run alone
//! - [`text_family`]: a family that answers with text alone
//! - [`tone_recogniser`]: a recogniser that hears words in tones
//! - [`toy_family`]: the family that docs/families.md walks through
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

pub mod audio_encoder;
pub mod clause_family;
pub mod device;
pub mod driven;
pub mod eager;
pub mod forms;
pub mod generic;
pub mod other_family;
pub mod remote_family;
pub mod speech;
pub mod spelling;
pub mod stage_runs;
pub mod text_family;
pub mod tone_recogniser;
pub mod toy_family;

use std::path::{Path, PathBuf};

use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;
use safetensors::SafeTensors;
use serde_json::Value;

/// Fixtures that hold a conversation.
pub const CONVERSATIONS: [&str; 3] = ["dense", "moe", "window800"];

/// Root of the source tree: the one of the build, or the one that a binary was copied to (scripts/on-gpu.sh).
pub fn root() -> PathBuf {
    std::env::var_os("REPARTEE_ROOT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

/// Folder of a fixture.
pub fn folder(name: &str) -> PathBuf {
    root().join("tests/parity/fixtures").join(name)
}

/// Output of the reference.
pub struct Expected {
    bytes: Vec<u8>,
    /// Contents of expected.json.
    pub facts: Value,
}

impl Expected {
    /// Reads the expected output of a fixture.
    pub fn load(name: &str) -> Self {
        let read = |file: &str| std::fs::read(folder(name).join(file)).unwrap();
        Self { bytes: read("expected.safetensors"), facts: serde_json::from_slice(&read("expected.json")).unwrap() }
    }

    /// Returns the number of turns.
    pub fn turns(&self) -> usize {
        self.facts["turns"].as_array().unwrap().len()
    }

    /// Text of an answer that a limit cut: without the character that was cut, for which the reference writes U+FFFD.
    pub fn cut_text(&self) -> &str {
        let text = self.facts["text"].as_str().unwrap();
        text.strip_suffix('\u{fffd}').unwrap_or(text)
    }

    /// Values and shape of a tensor.
    pub fn tensor(&self, name: &str) -> (Vec<f32>, Vec<usize>) {
        let all = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = all.tensor(name).unwrap_or_else(|_| panic!("no tensor {name}"));
        assert_eq!(tensor.dtype(), safetensors::Dtype::F32, "{name}");
        let values = tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        (values, tensor.shape().to_vec())
    }

    /// Ids and shape of a tensor.
    pub fn ids(&self, name: &str) -> (Vec<u32>, Vec<usize>) {
        let all = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = all.tensor(name).unwrap_or_else(|_| panic!("no tensor {name}"));
        assert_eq!(tensor.dtype(), safetensors::Dtype::I32, "{name}");
        let values = tensor.data().as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as u32).collect();
        (values, tensor.shape().to_vec())
    }
}

/// Largest difference, relative to the largest value of the reference; infinite if sizes differ, or if a value of
/// either side or the result is not finite. Never NaN, because a comparison of NaN with a tolerance is always false.
pub fn difference(ours: &[f32], reference: &[f32]) -> f32 {
    if ours.len() != reference.len() || ours.iter().chain(reference).any(|v| !v.is_finite()) {
        return f32::INFINITY;
    }
    let scale = reference.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let largest = ours.iter().zip(reference).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
    // An empty or silent reference has no scale.
    let relative = if largest == 0.0 { 0.0 } else { largest / scale };
    if relative.is_finite() { relative } else { f32::INFINITY }
}

/// Configuration of a property test: failing inputs are kept in a committed file next to `source_file`, and run first
/// next time.
pub fn property(cases: u32, source_file: &'static str) -> ProptestConfig {
    ProptestConfig {
        cases,
        source_file: Some(source_file),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    }
}

/// Sets the context of a copied checkpoint.
pub fn shrink_context(copy: &Path, context: usize) {
    let path = copy.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for part in ["thinker_config", "talker_config"] {
        config[part]["text_config"]["max_position_embeddings"] = context.into();
    }
    std::fs::write(&path, config.to_string()).unwrap();
}

/// Copies a checkpoint with changed generation settings.
pub fn copy_with(from: &Path, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let path = copy.path().join("generation_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    copy
}

/// Copies a fixture's checkpoint with a greedy talker, as the reference ran it.
pub fn greedy_copy(name: &str, expected: &Expected) -> tempfile::TempDir {
    copy_with(&folder(name).join("checkpoint"), |config| {
        config["talker_do_sample"] = false.into();
        config["talker_repetition_penalty"] = expected.facts["settings"]["talker_repetition_penalty"].clone();
    })
}

/// Copies a checkpoint and limits its responses to `frames` codec frames.
pub fn brief_copy(from: &Path, frames: u32) -> tempfile::TempDir {
    copy_with(from, |config| config["talker_max_new_tokens"] = frames.into())
}
