//! Recordings shared by the tests of this crate.

use std::time::Duration;

use crate::{sound_file, vad};

/// Loads a recorded sentence from `gateway/testdata`, at [`vad::RATE`].
pub fn speech(name: &str) -> Vec<f32> {
    let path = format!("{}/../testdata/{name}.wav", env!("CARGO_MANIFEST_DIR"));
    sound_file::read(&std::fs::read(path).unwrap(), vad::RATE, Duration::from_secs(60)).unwrap()
}

/// Loads a spoken question of `tests/questions`, at `rate`.
pub fn question(name: &str, rate: u32) -> Vec<f32> {
    let path = format!("{}/../../tests/questions/{name}.wav", env!("CARGO_MANIFEST_DIR"));
    sound_file::read(&std::fs::read(path).unwrap(), rate, Duration::from_secs(60)).unwrap()
}

/// Loads a recording of `tests/interruptions`, at `rate`.
pub fn interruption(name: &str, rate: u32) -> Vec<f32> {
    let path = format!("{}/../../tests/interruptions/{name}.wav", env!("CARGO_MANIFEST_DIR"));
    sound_file::read(&std::fs::read(path).unwrap(), rate, Duration::from_secs(60)).unwrap()
}

/// Loads the command "stop" of the judged starts in `tests/interruptions`, at [`vad::RATE`].
pub fn stop() -> Vec<f32> {
    let path = format!("{}/../../tests/interruptions/starts/am_puck.opus", env!("CARGO_MANIFEST_DIR"));
    let sound = sound_file::read(&std::fs::read(path).unwrap(), vad::RATE, Duration::from_secs(60)).unwrap();
    sound[7_456 * 16..][..296 * 16].to_vec()
}
