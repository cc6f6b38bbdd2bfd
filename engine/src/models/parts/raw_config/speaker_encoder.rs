//! Configuration of the speaker encoder.

use serde::Deserialize;

use crate::models::parts::config::SpeakerEncoderConfig;

/// Fields of the speaker encoder's section.
#[derive(Default, Deserialize)]
pub struct RawSpeakerEncoder {
    mel_dim: Option<usize>,
    enc_dim: Option<usize>,
    enc_channels: Option<Vec<usize>>,
    enc_kernel_sizes: Option<Vec<usize>>,
    enc_dilations: Option<Vec<usize>>,
    enc_attention_channels: Option<usize>,
    enc_res2net_scale: Option<usize>,
    enc_se_channels: Option<usize>,
    /// Sample rate of the encoder's input, in Hz.
    pub sample_rate: Option<u32>,
}

impl RawSpeakerEncoder {
    /// Resolves the configuration, with `absent` for absent fields.
    pub fn resolve(self, absent: SpeakerEncoderConfig) -> SpeakerEncoderConfig {
        SpeakerEncoderConfig {
            mel_dim: self.mel_dim.unwrap_or(absent.mel_dim),
            enc_dim: self.enc_dim.unwrap_or(absent.enc_dim),
            enc_channels: self.enc_channels.unwrap_or(absent.enc_channels),
            enc_kernel_sizes: self.enc_kernel_sizes.unwrap_or(absent.enc_kernel_sizes),
            enc_dilations: self.enc_dilations.unwrap_or(absent.enc_dilations),
            enc_attention_channels: self.enc_attention_channels.unwrap_or(absent.enc_attention_channels),
            enc_res2net_scale: self.enc_res2net_scale.unwrap_or(absent.enc_res2net_scale),
            enc_se_channels: self.enc_se_channels.unwrap_or(absent.enc_se_channels),
        }
    }
}
