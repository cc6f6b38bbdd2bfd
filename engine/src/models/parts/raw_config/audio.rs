//! Configuration of the audio tower.

use serde::Deserialize;

use crate::models::parts::config::AudioTowerConfig;

/// Fields of `thinker_config.audio_config`; all defaults but `n_window` are the same in all references.
#[derive(Deserialize)]
pub struct RawAudio {
    num_mel_bins: Option<usize>,
    encoder_layers: Option<usize>,
    encoder_attention_heads: Option<usize>,
    encoder_ffn_dim: Option<usize>,
    d_model: Option<usize>,
    output_dim: Option<usize>,
    n_window: Option<usize>,
    max_source_positions: Option<usize>,
    activation_function: Option<String>,
    /// Mel frames that attend to each other.
    pub n_window_infer: Option<usize>,
    /// Channels of the convolutions.
    pub downsample_hidden_size: Option<usize>,
}

impl RawAudio {
    /// Resolves the tower; `n_window` is the default of that field.
    pub fn tower(self, n_window: usize) -> AudioTowerConfig {
        AudioTowerConfig {
            num_mel_bins: self.num_mel_bins.unwrap_or(128),
            encoder_layers: self.encoder_layers.unwrap_or(32),
            encoder_attention_heads: self.encoder_attention_heads.unwrap_or(20),
            encoder_ffn_dim: self.encoder_ffn_dim.unwrap_or(5120),
            d_model: self.d_model.unwrap_or(1280),
            output_dim: self.output_dim.unwrap_or(3584),
            n_window: self.n_window.unwrap_or(n_window),
            max_source_positions: self.max_source_positions.unwrap_or(1500),
            activation_function: self.activation_function.unwrap_or_else(|| "gelu".to_owned()),
        }
    }
}
