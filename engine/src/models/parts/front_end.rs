//! The front end of a model with ears.

use std::sync::Arc;

use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::Checkpoint;
use crate::models::LoadError;

/// Log-mel windows of `frames` frames of `bins` bins, as preprocessor_config.json says.
pub fn load_log_mel(checkpoint: &Checkpoint, bins: usize, frames: usize) -> Result<Arc<LogMel>, LoadError> {
    let config = LogMelConfig::load(checkpoint, bins)?;
    LogMel::new(&config, frames)
        .map_err(|value| LoadError::Mel { file: checkpoint.label("preprocessor_config.json"), value })
}
