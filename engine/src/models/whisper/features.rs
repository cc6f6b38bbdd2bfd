//! Spectrogram of a window: the sound, padded with silence to the window's length, as transformers pads it.

use std::sync::Arc;

use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::{BadValue, Checkpoint};
use crate::models::load_error::LoadError;

/// File that describes the spectrogram.
const FILE: &str = "preprocessor_config.json";

/// Maker of spectrograms.
#[derive(Debug)]
pub struct WindowFeatures {
    log_mel: Arc<LogMel>,
}

impl WindowFeatures {
    /// Reads the configuration of a model that takes `bins` mel bins in windows of at most `frames` frames.
    pub fn load(checkpoint: &Checkpoint, bins: usize, frames: usize) -> Result<Self, LoadError> {
        let config = if checkpoint.has_file(FILE) {
            LogMelConfig::load(checkpoint, bins)?
        } else {
            LogMelConfig { feature_size: bins, ..LogMelConfig::default() }
        };
        let wrong = |value: BadValue| LoadError::Mel { file: checkpoint.label(FILE), value };
        Ok(Self { log_mel: LogMel::new(&config, frames).map_err(wrong)? })
    }

    /// Configuration of the spectrogram.
    pub fn config(&self) -> &LogMelConfig {
        self.log_mel.config()
    }

    /// Returns `[frames, bins]` of a window of `samples` samples that begins with `sound`, which is not longer.
    pub fn extract(&self, sound: &[f32], samples: usize) -> Vec<f32> {
        let (mut stream, mut closed) = (self.log_mel.stream(), Vec::new());
        stream.push(sound, &mut closed);
        stream.push(&vec![0.0; samples.saturating_sub(sound.len())], &mut closed);
        closed.extend(stream.finish());
        closed.into_iter().next().map(|window| window.data).unwrap_or_default()
    }
}
