//! `thinker.audio_tower`, after `Qwen2_5OmniAudioEncoder`.
//!
//! A block of `2 * n_window` mel frames passes the convolutions, and its rows attend to each other only. So a block depends
//! on no other one, and a full block yields whole pairs.

use super::config::AudioTowerConfig;
use crate::models::parts::audio_encoder::layer::AudioLayerShape;
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};

impl AudioTowerConfig {
    /// Shape of the tower.
    pub fn encoder(&self) -> EncoderShape {
        EncoderShape {
            bins: self.num_mel_bins,
            window: self.block_frames(),
            chunk: self.block_frames(),
            convolutions: Convolutions::Conv1d,
            positions: Positions::Sinusoids,
            layers: self.encoder_layers,
            layer: AudioLayerShape {
                width: self.d_model,
                heads: self.encoder_attention_heads,
                inner: self.encoder_ffn_dim,
                key_bias: false,
            },
            pairs: true,
            norm: "ln_post",
            projection: vec![("proj", self.output_dim)],
        }
    }
}
