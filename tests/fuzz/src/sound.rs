//! Sound files, as recordings of voices and the audio of chat completions are read.

use std::time::Duration;

use repartee_media::sound_file;

/// Longest recording.
const MAX_DURATION: Duration = Duration::from_secs(60);
/// Rate of the model's input, in Hz.
const RATE: u32 = 24_000;

pub(crate) fn run(input: &[u8]) {
    if let Ok(decoded) = sound_file::decode(input, MAX_DURATION) {
        assert!(!decoded.samples.is_empty(), "a file without sound");
    }
    if let Ok(samples) = sound_file::read(input, RATE, MAX_DURATION) {
        assert!(samples.len() <= 2 * RATE as usize * MAX_DURATION.as_secs() as usize, "{} samples", samples.len());
    }
}
