//! Complete, checked `token2wav_config` of config.json. Absent fields take the defaults of the reference's
//! configuration classes (`configuration_qwen2_5_omni.py` of transformers 5.23).

use serde::Deserialize;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::checks::{CheckResult, ConfigSection};
use crate::models::parts::config::SpeakerEncoderConfig;
use crate::models::parts::flow_matching::config::DitConfig;
use crate::models::parts::raw_config::{RawSpeakerEncoder, RopeTable, checked, rope};
use crate::models::parts::vocoder::config::BigVganConfig;

/// Both models: codes to a mel spectrogram, and the spectrogram to samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Token2WavConfig {
    /// Configuration from `dit_config`.
    pub dit: DitConfig,
    /// Configuration from `bigvgan_config`.
    pub bigvgan: BigVganConfig,
}

impl Token2WavConfig {
    /// Reads, resolves and checks `token2wav_config` of config.json.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file: RawFile<RawDit> = checkpoint.config()?;
        // The encoder's fields are mixed with the others of `dit_config`.
        let speaker: RawFile<RawSpeakerEncoder> = checkpoint.config()?;
        let config = file.token2wav_config.resolve(speaker.token2wav_config.dit_config.unwrap_or_default());
        checked(checkpoint, config.dit.check().and_then(|()| config.bigvgan.check(config.dit.mel_dim)))?;
        Ok(config)
    }
}

impl DitConfig {
    fn check(&self) -> CheckResult {
        let at = ConfigSection("token2wav_config.dit_config");
        at.positive("hidden_size", self.hidden_size)?;
        at.positive("num_hidden_layers", self.num_hidden_layers)?;
        at.check("num_attention_heads", self.num_attention_heads, self.num_attention_heads > 1, "at least 2")?;
        at.attention(self.num_attention_heads, self.num_attention_heads, self.head_dim)?;
        at.positive("ff_mult", self.ff_mult)?;
        at.positive("emb_dim", self.emb_dim)?;
        at.rope(&self.rope)?;
        at.positive("repeats", self.repeats)?;
        at.divisible("block_size", self.block_size, "repeats", self.repeats)?;
        for (field, layers) in
            [("look_ahead_layers", &self.look_ahead_layers), ("look_backward_layers", &self.look_backward_layers)]
        {
            let holds = layers.is_sorted_by(|a, b| a < b) && layers.iter().all(|&layer| layer < self.num_hidden_layers);
            at.check(field, format!("{layers:?}"), holds, "numbers of layers, each once and in ascending order")?;
        }
        at.positive("num_embeds", self.num_embeds)?;
        at.positive("mel_dim", self.mel_dim)?;
        at.positive("enc_dim", self.speaker.enc_dim)?;
        at.positive("enc_emb_dim", self.enc_emb_dim)?;
        self.speaker.check(&at)
    }
}

impl BigVganConfig {
    fn check(&self, mel_dim: usize) -> CheckResult {
        let at = ConfigSection("token2wav_config.bigvgan_config");
        at.equal("mel_dim", self.mel_dim, "dit_config.mel_dim", mel_dim)?;
        at.factors("upsample_rates", &self.upsample_rates)?;
        let levels = self.upsample_rates.len();
        at.halvable("upsample_initial_channel", self.upsample_initial_channel, "upsample_rates", levels)?;
        let kernels = &self.upsample_kernel_sizes;
        let rates = kernels.iter().zip(&self.upsample_rates);
        let fit = rates.clone().count() == levels
            && kernels.len() == levels
            && rates.into_iter().all(|(&kernel, &rate)| kernel >= rate && kernel <= 256 && (kernel - rate) % 2 == 0);
        let allowed = "one for each of upsample_rates, larger by an even number, and at most 256";
        at.check("upsample_kernel_sizes", format!("{kernels:?}"), fit, allowed)?;
        let sizes = &self.resblock_kernel_sizes;
        let odd = !sizes.is_empty() && sizes.iter().all(|size| size % 2 == 1 && *size <= 63);
        at.check("resblock_kernel_sizes", format!("{sizes:?}"), odd, "odd numbers up to 63")?;
        let dilations = &self.resblock_dilation_sizes;
        // The reference always takes three of each.
        let built = dilations.len() == sizes.len()
            && dilations.iter().all(|each| each.len() == 3 && each.iter().all(|each| (1..=64).contains(each)));
        let allowed = "three of 1 to 64 for each of resblock_kernel_sizes";
        at.check("resblock_dilation_sizes", format!("{dilations:?}"), built, allowed)
    }
}

/// Part of config.json that is read here.
#[derive(Deserialize)]
struct RawFile<D> {
    #[serde(default = "RawToken2Wav::default")]
    token2wav_config: RawToken2Wav<D>,
}

#[derive(Deserialize)]
struct RawToken2Wav<D> {
    dit_config: Option<D>,
    bigvgan_config: Option<RawBigVgan>,
}

#[derive(Default, Deserialize)]
struct RawDit {
    hidden_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    head_dim: Option<usize>,
    ff_mult: Option<usize>,
    emb_dim: Option<usize>,
    rope_parameters: Option<RopeTable>,
    rope_theta: Option<f64>,
    block_size: Option<usize>,
    look_ahead_layers: Option<Vec<usize>>,
    look_backward_layers: Option<Vec<usize>>,
    repeats: Option<usize>,
    num_embeds: Option<usize>,
    enc_emb_dim: Option<usize>,
}

#[derive(Default, Deserialize)]
struct RawBigVgan {
    mel_dim: Option<usize>,
    upsample_initial_channel: Option<usize>,
    resblock_kernel_sizes: Option<Vec<usize>>,
    resblock_dilation_sizes: Option<Vec<Vec<usize>>>,
    upsample_rates: Option<Vec<usize>>,
    upsample_kernel_sizes: Option<Vec<usize>>,
}

impl<D> Default for RawToken2Wav<D> {
    fn default() -> Self {
        Self { dit_config: None, bigvgan_config: None }
    }
}

/// Defaults of the speaker encoder's fields.
fn speaker_encoder() -> SpeakerEncoderConfig {
    SpeakerEncoderConfig {
        mel_dim: 80,
        enc_dim: 128,
        enc_channels: vec![256, 256, 256, 256, 768],
        enc_kernel_sizes: vec![5, 3, 3, 3, 1],
        enc_dilations: vec![1, 2, 3, 4, 1],
        enc_attention_channels: 64,
        enc_res2net_scale: 2,
        enc_se_channels: 64,
    }
}

impl RawToken2Wav<RawDit> {
    fn resolve(self, speaker: RawSpeakerEncoder) -> Token2WavConfig {
        let (dit, bigvgan) = (self.dit_config.unwrap_or_default(), self.bigvgan_config.unwrap_or_default());
        let speaker = speaker.resolve(speaker_encoder());
        Token2WavConfig {
            dit: DitConfig {
                hidden_size: dit.hidden_size.unwrap_or(1024),
                num_hidden_layers: dit.num_hidden_layers.unwrap_or(22),
                num_attention_heads: dit.num_attention_heads.unwrap_or(16),
                head_dim: dit.head_dim.unwrap_or(64),
                ff_mult: dit.ff_mult.unwrap_or(2),
                emb_dim: dit.emb_dim.unwrap_or(512),
                rope: rope(None, dit.rope_parameters, dit.rope_theta, 10_000.0),
                block_size: dit.block_size.unwrap_or(24),
                look_ahead_layers: dit.look_ahead_layers.unwrap_or_else(|| vec![10]),
                look_backward_layers: dit.look_backward_layers.unwrap_or_else(|| vec![0, 20]),
                repeats: dit.repeats.unwrap_or(2),
                num_embeds: dit.num_embeds.unwrap_or(8193),
                mel_dim: speaker.mel_dim,
                enc_emb_dim: dit.enc_emb_dim.unwrap_or(192),
                speaker,
            },
            bigvgan: BigVganConfig {
                mel_dim: bigvgan.mel_dim.unwrap_or(80),
                upsample_initial_channel: bigvgan.upsample_initial_channel.unwrap_or(1536),
                resblock_kernel_sizes: bigvgan.resblock_kernel_sizes.unwrap_or_else(|| vec![3, 7, 11]),
                resblock_dilation_sizes: bigvgan.resblock_dilation_sizes.unwrap_or_else(|| vec![vec![1, 3, 5]; 3]),
                upsample_rates: bigvgan.upsample_rates.unwrap_or_else(|| vec![5, 3, 2, 2, 2, 2]),
                upsample_kernel_sizes: bigvgan.upsample_kernel_sizes.unwrap_or_else(|| vec![11, 7, 4, 4, 4, 4]),
            },
        }
    }
}
