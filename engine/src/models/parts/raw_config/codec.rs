//! Configuration of the codec's decoder.

use serde::Deserialize;

use super::{RopeTable, head_size, rope, silu};
use crate::models::parts::config::{Code2WavConfig, CodeInput, LayersConfig};

/// Fields of the decoder's section; the defaults are the same in all references.
#[derive(Deserialize)]
pub struct RawCode2Wav {
    codebook_size: Option<usize>,
    num_quantizers: Option<usize>,
    codebook_dim: Option<usize>,
    latent_dim: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    sliding_window: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeTable>,
    rope_parameters: Option<RopeTable>,
    decoder_dim: Option<usize>,
    upsampling_ratios: Option<Vec<usize>>,
    upsample_rates: Option<Vec<usize>>,
}

impl RawCode2Wav {
    /// Resolves a decoder with [`CodeInput::Embedding`].
    pub fn with_embedding(self) -> Code2WavConfig {
        self.resolve(CodeInput::Embedding)
    }

    /// Resolves a decoder with [`CodeInput::Quantizer`].
    pub fn with_quantizer(self) -> Code2WavConfig {
        let (codebook_dim, latent_dim) = (self.codebook_dim.unwrap_or(512), self.latent_dim.unwrap_or(1024));
        self.resolve(CodeInput::Quantizer { codebook_dim, latent_dim })
    }

    fn resolve(self, input: CodeInput) -> Code2WavConfig {
        let hidden_size = self.hidden_size.unwrap_or(1024);
        let num_attention_heads = self.num_attention_heads.unwrap_or(16);
        Code2WavConfig {
            codebook_size: self.codebook_size.unwrap_or(2048),
            num_quantizers: self.num_quantizers.unwrap_or(16),
            input,
            layers: LayersConfig {
                hidden_size,
                intermediate_size: self.intermediate_size.unwrap_or(3072),
                num_hidden_layers: self.num_hidden_layers.unwrap_or(8),
                num_attention_heads,
                num_key_value_heads: self.num_key_value_heads.unwrap_or(16),
                head_dim: self.head_dim.unwrap_or(head_size(hidden_size, num_attention_heads)),
                hidden_act: self.hidden_act.unwrap_or_else(silu),
                attention_bias: self.attention_bias.unwrap_or(false),
                rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-5),
                rope: rope(self.rope_scaling, self.rope_parameters, self.rope_theta, 10_000.0),
            },
            sliding_window: self.sliding_window.unwrap_or(72),
            decoder_dim: self.decoder_dim.unwrap_or(1536),
            upsampling_ratios: self.upsampling_ratios.unwrap_or_else(|| vec![2, 2]),
            upsample_rates: self.upsample_rates.unwrap_or_else(|| vec![8, 5, 4, 3]),
        }
    }
}
