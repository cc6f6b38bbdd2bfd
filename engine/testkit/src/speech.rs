//! Fixtures of Qwen3-TTS, and edited copies of their checkpoints.

use std::path::Path;

use serde_json::Value;

use super::folder;

/// Names of the fixtures.
pub const FIXTURES: [&str; 3] = ["tts_custom", "tts_design", "tts_clone"];

/// Difference of ids: 0 if equal, otherwise infinite.
pub fn difference_of_ids(ours: &[u32], reference: &[u32]) -> f32 {
    if ours == reference { 0.0 } else { f32::INFINITY }
}

/// Name of a run's voice.
pub fn voice(facts: &Value) -> String {
    let speaker = facts["speaker"].as_str().unwrap_or("default").to_lowercase();
    match facts["language"].as_str().unwrap() {
        "Auto" => speaker,
        language => format!("{speaker}/{}", language.to_lowercase()),
    }
}

/// True if a run's voice is cloned from a recording.
pub fn is_cloned(facts: &Value) -> bool {
    facts["cloned"] == true
}

/// Copies a checkpoint with its subfolders.
pub fn copy(checkpoint: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_into(checkpoint, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_into(&path, &to);
        } else {
            // Does not copy the file's permissions, which may forbid a change.
            std::fs::write(to, std::fs::read(path).unwrap()).unwrap();
        }
    }
}

/// Copies a fixture's checkpoint with greedy sampling, as the reference ran it.
pub fn greedy_copy(name: &str) -> tempfile::TempDir {
    let copy = copy(&folder(name).join("checkpoint"));
    let path = copy.path().join("generation_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["do_sample"] = false.into();
    config["subtalker_dosample"] = false.into();
    std::fs::write(&path, config.to_string()).unwrap();
    copy
}

/// Reads the header of a safetensors file: its length, and each tensor's entry.
fn header(file: &[u8]) -> (usize, Value) {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    (8 + length, serde_json::from_slice(&file[8..8 + length]).unwrap())
}

/// Zeroes the tensors of a file whose names satisfy `which`.
pub fn zero(path: &Path, which: impl Fn(&str) -> bool) {
    let mut file = std::fs::read(path).unwrap();
    let (start, header) = header(&file);
    for (name, tensor) in header.as_object().unwrap() {
        if name != "__metadata__" && which(name) {
            let offset = |i: usize| start + tensor["data_offsets"][i].as_u64().unwrap() as usize;
            file[offset(0)..offset(1)].fill(0);
        }
    }
    std::fs::write(path, file).unwrap();
}

/// Sets rows of a matrix to `values`.
pub fn edit_rows(path: &Path, tensor: &str, rows: &[usize], values: &[f32]) {
    let mut file = std::fs::read(path).unwrap();
    let (start, header) = header(&file);
    let from = start + header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    let bytes: Vec<u8> = match header[tensor]["dtype"].as_str().unwrap() {
        "BF16" => values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect(),
        "F16" => values.iter().flat_map(|value| half_bits(*value).to_le_bytes()).collect(),
        other => panic!("{other}"),
    };
    for row in rows {
        file[from + row * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
    }
    std::fs::write(path, file).unwrap();
}

/// Bits of a normal number in half precision, rounded down.
fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = ((bits >> 23) & 0xff) as i32 - 127 + 15;
    if exponent <= 0 {
        return 0;
    }
    ((bits >> 16) & 0x8000) as u16 | ((exponent.min(30) as u16) << 10) | ((bits >> 13) & 0x3ff) as u16
}
