//! Decoders of codecs.

use super::language_model::{LayersConfig, LayersDefaults, TALKER};
use super::limits::{CODES, WIDTH, WINDOW};
use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;
use crate::model::Codec;

/// Form of code2wav: the way a frame's codes become the row that enters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeInput {
    /// The mean of one table's entries. Both ends of each transposed convolution are cut, so the first frame is short.
    Embedding,
    /// The codebooks of a residual quantizer, the first with a projection of its own, then a convolution and
    /// projections around the transformer. Only the right end of each transposed convolution is cut: each frame is
    /// whole.
    Quantizer {
        /// Width of a quantized row; a codebook's entries have half of it.
        codebook_dim: usize,
        /// Width of the rows outside the transformer.
        latent_dim: usize,
    },
}

impl CodeInput {
    /// Reads the sizes of [`CodeInput::Quantizer`].
    pub fn quantizer(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        Ok(Self::Quantizer {
            codebook_dim: at.even("codebook_dim", 512, WIDTH)?,
            latent_dim: at.size("latent_dim", 1024, WIDTH)?,
        })
    }
}

/// code2wav: a windowed transformer over frames, then upsampling convolutions.
#[derive(Debug, Clone, PartialEq)]
pub struct Code2WavConfig {
    /// Number of codes in a codebook.
    pub codebook_size: usize,
    /// Codebooks of a frame.
    pub num_quantizers: usize,
    /// Form of the input.
    pub input: CodeInput,
    /// Sizes of the transformer's layers.
    pub layers: LayersConfig,
    /// Attention window in frames, the frame itself included.
    pub sliding_window: usize,
    /// Channels before the first decoder block; each block halves them.
    pub decoder_dim: usize,
    /// Factors of the ConvNeXt upsamplers before the decoder.
    pub upsampling_ratios: Vec<usize>,
    /// Factors of the decoder blocks.
    pub upsample_rates: Vec<usize>,
}

/// Defaults of the decoders' configuration classes.
const DECODER: LayersDefaults =
    LayersDefaults { intermediate_size: 3072, num_hidden_layers: 8, heads: (16, 16), rms_norm_eps: 1e-5, ..TALKER };

impl Code2WavConfig {
    /// Reads the decoder's section. `groups` is the number of codes in a frame, and the field that sets it.
    pub fn read(at: &ConfigSection<'_>, input: CodeInput, groups: (&str, usize)) -> Result<Self, CheckpointError> {
        at.only("attention_bias", false)?;
        let ratios = at.factors("upsampling_ratios", &[2, 2])?;
        let rates = at.factors("upsample_rates", &[8, 5, 4, 3])?;
        at.check("upsample_rates", "[]", !rates.is_empty(), "at least one factor")?;
        Ok(Self {
            codebook_size: at.size("codebook_size", 2048, CODES)?,
            num_quantizers: at.equal("num_quantizers", 16, groups)?,
            input,
            layers: LayersConfig::read(at, &DECODER)?,
            sliding_window: at.size("sliding_window", 72, WINDOW)?,
            decoder_dim: at.halvable("decoder_dim", 1536, ("upsample_rates", rates.len()))?,
            upsampling_ratios: ratios,
            upsample_rates: rates,
        })
    }

    /// Width of the rows that enter the upsamplers.
    pub fn latent_size(&self) -> usize {
        match self.input {
            CodeInput::Embedding => self.layers.hidden_size,
            CodeInput::Quantizer { latent_dim, .. } => latent_dim,
        }
    }

    /// True if both ends of transposed convolutions are cut, so that the first frame is short.
    pub fn cuts_both_ends(&self) -> bool {
        self.input == CodeInput::Embedding
    }

    /// Number of samples that one codec frame decodes to.
    pub fn samples_per_frame(&self) -> usize {
        self.upsampling_ratios.iter().chain(&self.upsample_rates).product()
    }

    /// Geometry of a codec of this sample rate.
    pub fn geometry(&self, sample_rate: u32) -> Codec {
        Codec { sample_rate, frame_samples: (self.samples_per_frame() as u32, 1) }
    }
}
