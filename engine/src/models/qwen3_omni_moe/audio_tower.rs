//! `thinker.audio_tower`, after `Qwen3OmniMoeAudioEncoder`.
//!
//! Mel frames pass the convolutions in chunks of 100; the reference's arithmetic hard-codes 13 rows for a full chunk.

use super::config::AudioConfig;
use crate::models::parts::audio_encoder::layer::AudioLayerShape;
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};

/// Mel frames in a chunk: twice the `n_window` of 50 that the reference's length formula assumes.
const CHUNK_FRAMES: usize = 100;

impl AudioConfig {
    /// Shape of the tower.
    pub fn encoder(&self) -> EncoderShape {
        let tower = &self.tower;
        EncoderShape {
            bins: tower.num_mel_bins,
            window: self.n_window_infer,
            chunk: CHUNK_FRAMES,
            convolutions: Convolutions::Conv2d { channels: self.downsample_hidden_size },
            positions: Positions::Sinusoids,
            layers: tower.encoder_layers,
            layer: AudioLayerShape {
                width: tower.d_model,
                heads: tower.encoder_attention_heads,
                inner: tower.encoder_ffn_dim,
                key_bias: true,
            },
            pairs: false,
            norm: "ln_post",
            projection: vec![("proj1", tower.d_model), ("proj2", tower.output_dim)],
        }
    }
}
