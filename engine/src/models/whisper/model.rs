//! The model: encoder, decoder, and their configuration.

use repartee_kernels::Ops;

use super::config::WhisperConfig;
use super::decoder::WhisperDecoder;
use super::features::WindowFeatures;
use crate::checkpoint::Checkpoint;
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::tower::AudioTower;
use crate::models::parts::weights::Weights;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// A Whisper and its configuration.
pub struct Whisper<O: Ops> {
    /// Configuration from the files.
    pub config: WhisperConfig,
    /// Windows of a spectrogram to rows.
    pub encoder: AudioTower<O>,
    /// Text over the rows of a window.
    pub decoder: WhisperDecoder<O>,
}

impl<O: Ops> Whisper<O> {
    /// Loads a checkpoint, with matrices in the formats of `policy`.
    pub fn load_as(
        ops: &O,
        checkpoint: &Checkpoint,
        config: WhisperConfig,
        policy: WeightPolicy,
    ) -> Result<Self, LoadError> {
        let w = Weights::new(ops, checkpoint).with_policy(policy);
        let rows = config.encoder.tokens(config.encoder.window);
        Ok(Self {
            encoder: AudioTower::load(&w.at("model.encoder"), config.encoder.clone())?,
            decoder: WhisperDecoder::load(&w, config.decoder, rows)?,
            config,
        })
    }
}

/// Loads model, spectrogram and tokenizer.
pub fn load<O: Ops>(
    ops: &O,
    checkpoint: &Checkpoint,
    policy: WeightPolicy,
) -> Result<(Whisper<O>, WindowFeatures, Tokenizer), LoadError> {
    let (config, tokenizer) = WhisperConfig::load(checkpoint)?;
    let features = WindowFeatures::load(checkpoint, config.encoder.bins, config.encoder.window)?;
    Ok((Whisper::load_as(ops, checkpoint, config, policy)?, features, tokenizer))
}
