//! config.json of Kokoro.

use std::collections::BTreeMap;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::albert::AlbertConfig;
use crate::models::parts::config::limits::{FACTOR, LAYERS, VOCABULARY, WIDTH, WINDOW};
use crate::models::parts::config::{ConfigFile, ConfigSection};
use crate::models::parts::vocoder::istft_net::config::IstftNetConfig;

/// Contents of config.json, and widths that only the tensors have.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Sizes of PL-BERT.
    pub plbert: AlbertConfig,
    /// Sizes of the generator.
    pub istftnet: IstftNetConfig,
    /// Width of a row of a phoneme.
    pub hidden_dim: usize,
    /// Width of each half of a style.
    pub style_dim: usize,
    /// Layers of the text encoder and of the duration encoder.
    pub n_layer: usize,
    /// Most frames of a phoneme at normal speed.
    pub max_dur: usize,
    /// Taps of the text encoder's convolutions.
    pub text_encoder_kernel_size: usize,
    /// Id of each phoneme.
    pub vocab: BTreeMap<char, u32>,
    /// Channels inside the decoder.
    pub decoder_dim: usize,
    /// Channels of the features that each block of the decoder gets again.
    pub residual_dim: usize,
}

/// Sampling rate in Hz, which config.json does not have.
pub const SAMPLE_RATE: u32 = 24_000;

impl Config {
    /// Reads config.json, and widths off the tensors of the decoder.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::config(checkpoint)?;
        let width = |tensor: &str, absent: usize| {
            let names = [format!("decoder.{tensor}"), format!("decoder.module.{tensor}")];
            let shape = names.iter().find_map(|name| checkpoint.shape(name));
            shape.and_then(|shape| shape.first().copied()).filter(|width| WIDTH.contains(width)).unwrap_or(absent)
        };
        let widths = (width("encode.conv1.bias", 1024), width("asr_res.0.bias", 64));
        Self::read(&file.top()?, widths)
    }

    fn read(top: &ConfigSection<'_>, (decoder_dim, residual_dim): (usize, usize)) -> Result<Self, CheckpointError> {
        let n_token = top.size("n_token", 178, VOCABULARY)?;
        let style_dim = top.size("style_dim", 128, WIDTH)?;
        let odd = |taps: usize| FACTOR.contains(&taps) && taps % 2 == 1;
        let ids = top.ids("vocab", n_token)?;
        let symbol = |(symbol, id): (String, u32)| {
            let mut characters = symbol.chars();
            let one = characters.next().filter(|_| characters.next().is_none());
            one.map(|symbol| (symbol, id)).ok_or_else(|| top.refusal("vocab", &symbol, "single characters"))
        };
        let vocab = ids.into_iter().map(symbol).collect::<Result<BTreeMap<_, _>, _>>()?;
        top.check("vocab", "{}", !vocab.is_empty(), "at least one phoneme")?;
        Ok(Self {
            plbert: AlbertConfig::read(&top.section("plbert")?, n_token)?,
            istftnet: IstftNetConfig::read(&top.section("istftnet")?, style_dim)?,
            hidden_dim: top.even("hidden_dim", 512, WIDTH)?,
            style_dim,
            n_layer: top.size("n_layer", 3, LAYERS)?,
            max_dur: top.size("max_dur", 50, WINDOW)?,
            text_encoder_kernel_size: top.value("text_encoder_kernel_size", 5, odd, "an odd number of taps")?,
            vocab,
            decoder_dim,
            residual_dim,
        })
    }

    /// Width of a whole style: of the decoder's half, then of the predictor's.
    pub fn style_width(&self) -> usize {
        2 * self.style_dim
    }

    /// Most phonemes of a clause: a token stands before and after them.
    pub fn most_phonemes(&self) -> usize {
        self.plbert.max_position_embeddings.saturating_sub(2)
    }

    /// Samples of a frame of a duration: the decoder doubles the frames.
    pub fn frame_samples(&self) -> usize {
        2 * self.istftnet.samples()
    }
}
