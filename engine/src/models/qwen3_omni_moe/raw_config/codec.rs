//! The configurations of the code predictor and code2wav.

use serde::Deserialize;

use crate::models::parts::config::CodeInput;
use crate::models::parts::raw_config::{RopeTable, head_size, rope, silu};
use crate::models::qwen3_omni_moe::config::{Code2WavConfig, CodePredictorConfig};

/// `talker_config.code_predictor_config`.
#[derive(Deserialize)]
pub(super) struct RawCodePredictor {
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeTable>,
    rope_parameters: Option<RopeTable>,
    attention_bias: Option<bool>,
    num_code_groups: Option<usize>,
    sliding_window: Option<usize>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
}

impl From<RawCodePredictor> for CodePredictorConfig {
    fn from(raw: RawCodePredictor) -> Self {
        let num_hidden_layers = raw.num_hidden_layers.unwrap_or(5);
        let num_attention_heads = raw.num_attention_heads.unwrap_or(16);
        let windowed = match &raw.layer_types {
            Some(types) => types.iter().any(|kind| kind == "sliding_attention"),
            None => num_hidden_layers > raw.max_window_layers.unwrap_or(28),
        };
        Self {
            vocab_size: raw.vocab_size.unwrap_or(2048),
            input_size: raw.hidden_size.unwrap_or(1024),
            hidden_size: raw.hidden_size.unwrap_or(1024),
            intermediate_size: raw.intermediate_size.unwrap_or(3072),
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: raw.num_key_value_heads.unwrap_or(8),
            head_dim: raw.head_dim.unwrap_or(128),
            hidden_act: raw.hidden_act.unwrap_or_else(silu),
            rms_norm_eps: raw.rms_norm_eps.unwrap_or(1e-6),
            rope: rope(raw.rope_scaling, raw.rope_parameters, raw.rope_theta, 10_000.0),
            attention_bias: raw.attention_bias.unwrap_or(false),
            num_code_groups: raw.num_code_groups.unwrap_or(32),
            sliding_window: raw.sliding_window.filter(|_| windowed),
        }
    }
}

/// `code2wav_config`.
#[derive(Deserialize)]
pub(super) struct RawCode2Wav {
    codebook_size: Option<usize>,
    num_quantizers: Option<usize>,
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

impl From<RawCode2Wav> for Code2WavConfig {
    fn from(raw: RawCode2Wav) -> Self {
        let hidden_size = raw.hidden_size.unwrap_or(1024);
        let num_attention_heads = raw.num_attention_heads.unwrap_or(16);
        Self {
            codebook_size: raw.codebook_size.unwrap_or(2048),
            num_quantizers: raw.num_quantizers.unwrap_or(16),
            input: CodeInput::Embedding,
            hidden_size,
            intermediate_size: raw.intermediate_size.unwrap_or(3072),
            num_hidden_layers: raw.num_hidden_layers.unwrap_or(8),
            num_attention_heads,
            num_key_value_heads: raw.num_key_value_heads.unwrap_or(16),
            head_dim: raw.head_dim.unwrap_or(head_size(hidden_size, num_attention_heads)),
            hidden_act: raw.hidden_act.unwrap_or_else(silu),
            attention_bias: raw.attention_bias.unwrap_or(false),
            sliding_window: raw.sliding_window.unwrap_or(72),
            rms_norm_eps: raw.rms_norm_eps.unwrap_or(1e-5),
            rope: rope(raw.rope_scaling, raw.rope_parameters, raw.rope_theta, 10_000.0),
            decoder_dim: raw.decoder_dim.unwrap_or(1536),
            upsampling_ratios: raw.upsampling_ratios.unwrap_or_else(|| vec![2, 2]),
            upsample_rates: raw.upsample_rates.unwrap_or_else(|| vec![8, 5, 4, 3]),
        }
    }
}
