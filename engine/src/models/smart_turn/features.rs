//! Input spectrogram of the model: Whisper's log-mel of a fixed duration, over sound normalised to zero mean and unit
//! variance.

use std::sync::Arc;

use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::BadValue;

/// Added to the variance, as in Whisper's feature extractor.
const VARIANCE_EPS: f64 = 1e-7;

/// Spectrogram of a fixed number of frames.
#[derive(Debug)]
pub struct FeatureExtractor {
    log_mel: Arc<LogMel>,
    samples: usize,
}

impl FeatureExtractor {
    /// Prepares spectrograms of `frames` frames of `bins` mel bins.
    pub fn new(frames: usize, bins: usize) -> Result<Self, BadValue> {
        let config = LogMelConfig { feature_size: bins, ..LogMelConfig::default() };
        let samples = frames * config.hop_length;
        Ok(Self { log_mel: LogMel::new(&config, frames)?, samples })
    }

    /// Returns `[frames, bins]` of the last samples of `turn`; a shorter turn is padded with silence before it.
    pub fn extract(&self, turn: &[f32]) -> Vec<f32> {
        self.spectrogram(&self.normalised(turn))
    }

    /// Returns the last samples of `turn`, with silence before a shorter one, at zero mean and unit variance.
    pub fn normalised(&self, turn: &[f32]) -> Vec<f32> {
        let turn = &turn[turn.len().saturating_sub(self.samples)..];
        let mut sound = vec![0.0; self.samples - turn.len()];
        sound.extend_from_slice(turn);
        normalise(&mut sound);
        sound
    }

    /// Returns `[frames, bins]` of a normalised sound.
    pub fn spectrogram(&self, sound: &[f32]) -> Vec<f32> {
        let (mut stream, mut closed) = (self.log_mel.stream(), Vec::with_capacity(1));
        stream.push(sound, &mut closed);
        closed.extend(stream.finish());
        closed.swap_remove(0).data
    }
}

/// Subtracts the mean and divides by the standard deviation.
fn normalise(sound: &mut [f32]) {
    let count = sound.len() as f64;
    let mean = sound.iter().map(|sample| f64::from(*sample)).sum::<f64>() / count;
    let variance = sound.iter().map(|sample| (f64::from(*sample) - mean).powi(2)).sum::<f64>() / count;
    let scale = 1.0 / (variance + VARIANCE_EPS).sqrt();
    for sample in sound {
        *sample = ((f64::from(*sample) - mean) * scale) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_models_shape() {
        let features = FeatureExtractor::new(800, 80).unwrap();
        for samples in [0, 1, 100, 127_999, 128_000, 300_000] {
            let sound: Vec<f32> = (0..samples).map(|sample| (sample as f32 * 0.1).sin()).collect();
            assert_eq!(features.extract(&sound).len(), 800 * 80, "{samples} samples");
        }
    }

    #[test]
    fn loudness_changes_nothing() {
        let features = FeatureExtractor::new(100, 80).unwrap();
        let sound: Vec<f32> =
            (0..16_000).map(|sample| (sample as f32 * 0.01).sin() * (sample as f32 * 0.3).cos()).collect();
        let quiet: Vec<f32> = sound.iter().map(|sample| sample * 0.25).collect();
        for (loud, quiet) in features.extract(&sound).iter().zip(features.extract(&quiet)) {
            assert!((loud - quiet).abs() < 1e-3, "{loud} {quiet}");
        }
    }
}
