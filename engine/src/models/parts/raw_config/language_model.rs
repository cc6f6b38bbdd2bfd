//! Configuration of a language model: the thinker's, the talker's, or the code predictor.

use serde::Deserialize;

use super::{RopeTable, head_size, rope, silu};
use crate::models::parts::config::{CodePredictorConfig, LayersConfig};

/// Union of the fields that the published language models have; each file has some of them.
#[derive(Default, Deserialize)]
pub struct RawLanguageModel {
    /// Number of ids.
    pub vocab_size: Option<usize>,
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
    /// True if the output head is the embedding.
    pub tie_word_embeddings: Option<bool>,
    /// True if some layers attend to a window of positions only.
    pub use_sliding_window: Option<bool>,
    sliding_window: Option<usize>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    num_code_groups: Option<usize>,
    /// Interval of layers with experts: every so many layers one has them.
    pub decoder_sparse_step: Option<usize>,
    /// Layers without experts, regardless of the step.
    pub mlp_only_layers: Option<Vec<usize>>,
    /// Experts of a layer.
    pub num_experts: Option<usize>,
    /// Other name of `num_experts` in some files.
    pub num_local_experts: Option<usize>,
    /// Experts that process one row.
    pub num_experts_per_tok: Option<usize>,
    /// Inner width of an expert.
    pub moe_intermediate_size: Option<usize>,
    /// True if the weights of the chosen experts add up to one.
    pub norm_topk_prob: Option<bool>,
    /// Inner width of the shared expert, which processes every row.
    pub shared_expert_intermediate_size: Option<usize>,
}

/// Default sizes of layers for absent fields.
#[derive(Debug, Clone, Copy)]
pub struct LayersDefaults {
    /// Width of a row.
    pub hidden_size: usize,
    /// Inner width of the feed-forward block.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head; `None`: the heads share the hidden size evenly.
    pub head_dim: Option<usize>,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
}

/// Defaults of the code predictors' configuration classes.
const CODE_PREDICTOR: LayersDefaults = LayersDefaults {
    hidden_size: 1024,
    intermediate_size: 3072,
    num_hidden_layers: 5,
    num_attention_heads: 16,
    num_key_value_heads: 8,
    head_dim: Some(128),
    rope_theta: 10_000.0,
};
/// Default window of the code predictors' and talkers' classes.
const WINDOW: usize = 4096;

impl RawLanguageModel {
    /// Resolves the layers, with `absent` for absent fields.
    pub fn layers(&mut self, absent: &LayersDefaults) -> LayersConfig {
        let hidden_size = self.hidden_size.unwrap_or(absent.hidden_size);
        let num_attention_heads = self.num_attention_heads.unwrap_or(absent.num_attention_heads);
        let even = head_size(hidden_size, num_attention_heads);
        LayersConfig {
            hidden_size,
            intermediate_size: self.intermediate_size.unwrap_or(absent.intermediate_size),
            num_hidden_layers: self.num_hidden_layers.unwrap_or(absent.num_hidden_layers),
            num_attention_heads,
            num_key_value_heads: self.num_key_value_heads.unwrap_or(absent.num_key_value_heads),
            head_dim: self.head_dim.or(absent.head_dim).unwrap_or(even),
            hidden_act: self.hidden_act.take().unwrap_or_else(silu),
            rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-6),
            rope: rope(self.rope_scaling.take(), self.rope_parameters.take(), self.rope_theta, absent.rope_theta),
            attention_bias: self.attention_bias.unwrap_or(false),
        }
    }

    /// Maximum positions of the model.
    pub fn positions(&self) -> usize {
        self.max_position_embeddings.unwrap_or(32_768)
    }

    /// Attention window in positions, if `use_sliding_window` is set.
    pub fn switched_window(&self) -> Option<usize> {
        self.sliding_window.or(Some(WINDOW)).filter(|_| self.use_sliding_window.unwrap_or(false))
    }

    /// Attention window in positions, if any layer has one by `layer_types` or `max_window_layers`.
    pub fn window_of_layers(&self) -> Option<usize> {
        let layers = self.num_hidden_layers.unwrap_or(CODE_PREDICTOR.num_hidden_layers);
        let windowed = match &self.layer_types {
            Some(types) => types.iter().any(|kind| kind == "sliding_attention"),
            None => layers > self.max_window_layers.unwrap_or(28),
        };
        self.sliding_window.filter(|_| windowed)
    }

    /// Resolves a code predictor after a language model whose rows have `input_size` numbers; `None`: as many as its
    /// own.
    pub fn code_predictor(mut self, input_size: Option<usize>, sliding_window: Option<usize>) -> CodePredictorConfig {
        let layers = self.layers(&CODE_PREDICTOR);
        CodePredictorConfig {
            vocab_size: self.vocab_size.unwrap_or(2048),
            input_size: input_size.unwrap_or(layers.hidden_size),
            layers,
            num_code_groups: self.num_code_groups.unwrap_or(32),
            sliding_window,
        }
    }
}
