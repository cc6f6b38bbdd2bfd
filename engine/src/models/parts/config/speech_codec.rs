//! Mimi.

use serde_json::Value;

use super::limits::{CODEBOOKS, FACTOR, INNER, LAYERS, WIDTH, WINDOW};
use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;

/// Mimi, and the encoder of codecs like it. Its convolutions are causal and padded with zeros; its sound has one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechCodecConfig {
    /// Width of a transformer row.
    pub hidden_size: usize,
    /// Channels of the first convolution; each of `upsampling_ratios` doubles them.
    pub num_filters: usize,
    /// Residual blocks before each convolution with a stride.
    pub num_residual_layers: usize,
    /// Strides, the last one first.
    pub upsampling_ratios: Vec<usize>,
    /// Number of taps of the first convolution.
    pub kernel_size: usize,
    /// Number of taps of the last convolution.
    pub last_kernel_size: usize,
    /// Number of taps of a residual block.
    pub residual_kernel_size: usize,
    /// Factor of the dilation from one residual block to the next.
    pub dilation_growth_rate: usize,
    /// Factor by which a residual block narrows its channels.
    pub compress: usize,
    /// Number of entries in a codebook.
    pub codebook_size: usize,
    /// Width of a row to quantize, and of an entry.
    pub vector_quantization_hidden_dimension: usize,
    /// Number of transformer layers.
    pub num_hidden_layers: usize,
    /// Inner width of the feed-forward blocks.
    pub intermediate_size: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon added to the variance in norms.
    pub norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Attention window of the decoder in rows, a row itself included.
    pub sliding_window: usize,
}

impl SpeechCodecConfig {
    /// Reads the codec of sound at `rate` Hz for frames of `groups` codes, each one of `entries`, which the field `of` says.
    pub fn read(
        at: &ConfigSection<'_>,
        rate: u32,
        (of, (groups, entries)): (&str, (usize, usize)),
    ) -> Result<Self, CheckpointError> {
        let fixed: [(&str, Value); 8] = [
            ("audio_channels", 1.into()),
            ("sampling_rate", rate.into()),
            ("use_causal_conv", true.into()),
            ("pad_mode", "constant".into()),
            ("use_conv_shortcut", false.into()),
            ("num_semantic_quantizers", 1.into()),
            ("hidden_act", "gelu".into()),
            ("attention_bias", false.into()),
        ];
        fixed.into_iter().try_for_each(|(field, allowed)| at.only(field, allowed))?;
        let hidden_size = at.size("hidden_size", 512, WIDTH)?;
        let (num_attention_heads, num_key_value_heads, head_dim) = at.attention(hidden_size, (8, 8, None))?;
        let compress = at.size("compress", 2, WIDTH)?;
        let width = at.size("vector_quantization_hidden_dimension", 256, WIDTH)?;
        at.equal("codebook_dim", 256, ("vector_quantization_hidden_dimension", width))?;
        at.size("num_quantizers", 32, groups..=*CODEBOOKS.end())?;
        Ok(Self {
            hidden_size,
            num_filters: at.multiple("num_filters", 64, WIDTH, ("compress", compress))?,
            num_residual_layers: at.size("num_residual_layers", 1, 1..=4)?,
            upsampling_ratios: at.factors("upsampling_ratios", &[8, 6, 5, 4])?,
            kernel_size: at.size("kernel_size", 7, FACTOR)?,
            last_kernel_size: at.size("last_kernel_size", 3, FACTOR)?,
            residual_kernel_size: at.size("residual_kernel_size", 3, FACTOR)?,
            dilation_growth_rate: at.size("dilation_growth_rate", 2, 1..=4)?,
            compress,
            codebook_size: at.equal("codebook_size", 2048, (of, entries))?,
            vector_quantization_hidden_dimension: width,
            num_hidden_layers: at.size("num_hidden_layers", 8, LAYERS)?,
            intermediate_size: at.size("intermediate_size", 2048, INNER)?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            norm_eps: at.epsilon("norm_eps", 1e-5)?,
            rope_theta: at.rope_theta(10_000.0)?,
            sliding_window: at.size("sliding_window", 250, WINDOW)?,
        })
    }
}
