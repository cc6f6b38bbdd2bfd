//! What callers say: wav files, cut into the 20 ms frames in which a microphone would deliver them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use repartee_media::wav;

/// Samples a second in which callers speak and hear: what the websocket carries, and Opus takes.
pub const RATE: u32 = 24_000;
/// Samples of one frame.
pub const FRAME_SAMPLES: usize = RATE as usize / 50;
/// The longest sentence.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// One sentence.
#[derive(Debug)]
pub struct Utterance {
    /// Frames of [`FRAME_SAMPLES`]; the last one is filled up with silence.
    pub frames: Vec<Vec<f32>>,
}

impl Utterance {
    /// Reads a wav file of any format.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        let file = std::fs::read(path).with_context(named)?;
        Ok(Self::new(&wav::read(&file[..], RATE, MAX_DURATION).with_context(named)?))
    }

    fn new(samples: &[f32]) -> Self {
        let frames = samples
            .chunks(FRAME_SAMPLES)
            .map(|chunk| {
                let mut frame = chunk.to_vec();
                frame.resize(FRAME_SAMPLES, 0.0);
                frame
            })
            .collect();
        Self { frames }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frame_is_filled_up() {
        let utterance = Utterance::new(&[0.5; FRAME_SAMPLES + 1]);
        assert_eq!(utterance.frames.iter().map(Vec::len).collect::<Vec<_>>(), [FRAME_SAMPLES; 2]);
        assert_eq!(utterance.frames[1][..2], [0.5, 0.0]);
    }

    #[test]
    fn a_bad_wav_is_named_in_the_error() {
        let error = Utterance::load(Path::new("Cargo.toml")).unwrap_err();
        assert!(format!("{error:#}").starts_with("Cargo.toml: "), "{error:#}");
    }
}
