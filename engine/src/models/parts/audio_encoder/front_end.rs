//! Front end of a model that takes audio.

use std::sync::Arc;

use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::Checkpoint;
use crate::models::load_error::LoadError;

/// Loads a log-mel front end with windows of `frames` frames of `bins` bins, as preprocessor_config.json says.
pub fn load_log_mel(checkpoint: &Checkpoint, bins: usize, frames: usize) -> Result<Arc<LogMel>, LoadError> {
    let config = LogMelConfig::load(checkpoint, bins)?;
    LogMel::new(&config, frames)
        .map_err(|value| LoadError::Mel { file: checkpoint.label("preprocessor_config.json"), value })
}
