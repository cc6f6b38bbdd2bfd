//! Recordings shared by the tests of this crate.

use std::time::Duration;

use crate::{vad, wav};

/// Loads a recorded sentence from `gateway/testdata`, at [`vad::RATE`].
pub fn speech(name: &str) -> Vec<f32> {
    let path = format!("{}/../testdata/{name}.wav", env!("CARGO_MANIFEST_DIR"));
    wav::read(&std::fs::read(path).unwrap()[..], vad::RATE, Duration::from_secs(60)).unwrap()
}
