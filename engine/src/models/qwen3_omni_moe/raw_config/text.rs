//! The decoders' text configurations. A field that is absent takes the value of the reference's configuration class, which is
//! not the same for the thinker and the talker.

use serde::Deserialize;

use crate::models::parts::raw_config::{RopeTable, head_size, rope, silu};
use crate::models::qwen3_omni_moe::config::TextConfig;

/// `text_config` of the thinker or the talker.
#[derive(Deserialize)]
pub(super) struct RawText {
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeTable>,
    rope_parameters: Option<RopeTable>,
    attention_bias: Option<bool>,
    tie_word_embeddings: Option<bool>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
    num_experts: Option<usize>,
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    norm_topk_prob: Option<bool>,
    shared_expert_intermediate_size: Option<usize>,
}

/// Defaults that differ between the reference's two configuration classes.
pub(super) struct TextDefaults {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    moe_intermediate_size: usize,
    norm_topk_prob: bool,
    rope_theta: f64,
}

/// The defaults of `Qwen3OmniMoeTextConfig`.
pub(super) const THINKER: TextDefaults = TextDefaults {
    vocab_size: 3584,
    hidden_size: 2048,
    intermediate_size: 18_944,
    num_hidden_layers: 28,
    num_attention_heads: 28,
    num_key_value_heads: 4,
    moe_intermediate_size: 768,
    norm_topk_prob: true,
    rope_theta: 1_000_000.0,
};

/// The defaults of `Qwen3OmniMoeTalkerTextConfig`.
pub(super) const TALKER: TextDefaults = TextDefaults {
    vocab_size: 3072,
    hidden_size: 1024,
    intermediate_size: 2048,
    num_hidden_layers: 20,
    num_attention_heads: 16,
    num_key_value_heads: 2,
    moe_intermediate_size: 384,
    norm_topk_prob: false,
    rope_theta: 10_000.0,
};

impl RawText {
    /// The configuration with `absent` for absent fields.
    pub(super) fn resolve(self, absent: &TextDefaults) -> TextConfig {
        let hidden_size = self.hidden_size.unwrap_or(absent.hidden_size);
        let num_attention_heads = self.num_attention_heads.unwrap_or(absent.num_attention_heads);
        TextConfig {
            vocab_size: self.vocab_size.unwrap_or(absent.vocab_size),
            hidden_size,
            intermediate_size: self.intermediate_size.unwrap_or(absent.intermediate_size),
            num_hidden_layers: self.num_hidden_layers.unwrap_or(absent.num_hidden_layers),
            num_attention_heads,
            num_key_value_heads: self.num_key_value_heads.unwrap_or(absent.num_key_value_heads),
            head_dim: self.head_dim.unwrap_or(head_size(hidden_size, num_attention_heads)),
            hidden_act: self.hidden_act.unwrap_or_else(silu),
            max_position_embeddings: self.max_position_embeddings.unwrap_or(32_768),
            rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-6),
            rope: rope(self.rope_scaling, self.rope_parameters, self.rope_theta, absent.rope_theta),
            attention_bias: self.attention_bias.unwrap_or(false),
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(false),
            decoder_sparse_step: self.decoder_sparse_step.unwrap_or(1),
            mlp_only_layers: self.mlp_only_layers.unwrap_or_default(),
            num_experts: self.num_experts.or(self.num_local_experts).unwrap_or(128),
            num_experts_per_tok: self.num_experts_per_tok.unwrap_or(8),
            moe_intermediate_size: self.moe_intermediate_size.unwrap_or(absent.moe_intermediate_size),
            norm_topk_prob: self.norm_topk_prob.unwrap_or(absent.norm_topk_prob),
            shared_expert_intermediate_size: self.shared_expert_intermediate_size,
        }
    }
}
