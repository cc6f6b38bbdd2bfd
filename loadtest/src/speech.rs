//! What callers say: wav files, cut into the 20 ms frames in which a microphone would deliver them.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use repartee_media::pcm;
use repartee_media::resample::Resampler;

/// Samples a second in which callers speak and hear: what the websocket carries, and Opus takes.
pub const RATE: u32 = 24_000;
/// Samples of one frame.
pub const FRAME_SAMPLES: usize = RATE as usize / 50;

/// One sentence.
#[derive(Debug)]
pub struct Utterance {
    /// Frames of [`FRAME_SAMPLES`]; the last one is filled up with silence.
    pub frames: Vec<Vec<f32>>,
}

impl Utterance {
    /// Reads a 16-bit mono wav of 8 to 48 kHz.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        Self::read(path).with_context(|| path.display().to_string())
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let mut reader = hound::WavReader::open(path)?;
        let spec = reader.spec();
        if spec.channels != 1 || spec.bits_per_sample != 16 || spec.sample_format != hound::SampleFormat::Int {
            bail!("a 16-bit mono wav is needed, this has {} channels of {} bits", spec.channels, spec.bits_per_sample);
        }
        let samples = reader.samples::<i16>().map(|sample| sample.map(pcm::from_i16)).collect::<Result<Vec<_>, _>>()?;
        ensure!(!samples.is_empty(), "the wav is empty");
        let mut resampler = Resampler::new(spec.sample_rate, RATE)?;
        let mut resampled = resampler.push(&samples)?;
        resampled.extend(resampler.flush()?);
        Ok(Self::new(&resampled))
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
