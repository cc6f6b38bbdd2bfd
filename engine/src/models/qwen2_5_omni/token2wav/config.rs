//! Configuration of token2wav, from `token2wav_config` of config.json. Names and defaults are those of the reference
//! (`configuration_qwen2_5_omni.py` of transformers 5.23).

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::limits::{FACTOR, HEAD_DIM, HEADS, LAYERS, MEL_BINS, WIDTH, WINDOW};
use crate::models::parts::config::{ConfigFile, ConfigSection, SpeakerDefaults, SpeakerEncoderConfig};
use crate::models::parts::flow_matching::config::DitConfig;
use crate::models::parts::vocoder::config::BigVganConfig;
use crate::models::qwen2_5_omni::config::codes;

/// Both models: codes to a mel spectrogram, and the spectrogram to samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Token2WavConfig {
    /// Configuration from `dit_config`.
    pub dit: DitConfig,
    /// Configuration from `bigvgan_config`.
    pub bigvgan: BigVganConfig,
}

/// Defaults of the speaker encoder.
const SPEAKER: SpeakerDefaults = SpeakerDefaults { channels: 256, inner: 64, scale: 2 };

impl Token2WavConfig {
    /// Reads `token2wav_config` of config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::config(checkpoint)?;
        let at = file.top()?.optional_section("token2wav_config")?;
        let dit = dit(&at.optional_section("dit_config")?)?;
        Ok(Self { bigvgan: BigVganConfig::read(&at.optional_section("bigvgan_config")?, dit.mel_dim)?, dit })
    }
}

/// Reads `dit_config`, with which the fields of its speaker encoder are mixed.
fn dit(at: &ConfigSection<'_>) -> Result<DitConfig, CheckpointError> {
    let hidden_size = at.size("hidden_size", 1024, WIDTH)?;
    let heads = at.size("num_attention_heads", 16, 2..=*HEADS.end())?;
    let num_hidden_layers = at.size("num_hidden_layers", 22, LAYERS)?;
    let repeats = at.size("repeats", 2, FACTOR)?;
    let layers = |field, absent: &[usize]| {
        let holds = |layers: &[usize]| {
            layers.is_sorted_by(|a, b| a < b) && layers.iter().all(|&layer| layer < num_hidden_layers)
        };
        at.list(field, absent, holds, "numbers of layers, each once and in ascending order")
    };
    let mel_dim = at.size("mel_dim", 80, MEL_BINS)?;
    let enc_dim = at.size("enc_dim", 128, WIDTH)?;
    Ok(DitConfig {
        hidden_size,
        num_hidden_layers,
        num_attention_heads: heads,
        head_dim: at.even("head_dim", 64, HEAD_DIM)?,
        ff_mult: at.size("ff_mult", 2, FACTOR)?,
        emb_dim: at.size("emb_dim", 512, WIDTH)?,
        rope_theta: at.rope_theta(10_000.0)?,
        block_size: at.multiple("block_size", 24, WINDOW, ("repeats", repeats))?,
        look_ahead_layers: layers("look_ahead_layers", &[10])?,
        look_backward_layers: layers("look_backward_layers", &[0, 20])?,
        repeats,
        num_embeds: codes(at)?,
        mel_dim,
        enc_emb_dim: at.size("enc_emb_dim", 192, WIDTH)?,
        speaker: SpeakerEncoderConfig::read(at, (mel_dim, enc_dim), SPEAKER)?,
    })
}
