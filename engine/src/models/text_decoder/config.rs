//! config.json of dense text decoders, by the architecture that it names.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::limits::{HEADS, LAYERS, POSITIONS};
use crate::models::parts::config::{
    ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, RotaryFields, TALKER, switched_window,
};
use crate::models::parts::decoder::{DecoderShape, LayerStyle, LocalLayers};
use crate::models::parts::generation::{generation_file, sampling, stop_ids};
use repartee_engine_api::Sampling;

/// An architecture, and what sets it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Architecture {
    /// First entry of `architectures`.
    pub name: &'static str,
    /// True if queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// True if queries and keys are normed head by head.
    pub qk_norm: bool,
    /// Width of a head if the file has none; `None`: the query heads share the hidden size.
    head_dim: Option<usize>,
    /// Key and value heads if the file has none; `None`: as many as query heads.
    kv_heads: Option<usize>,
    window: WindowField,
    /// True for Gemma's layers: local ones between global ones, and the parts of [`LayerStyle`].
    gemma: bool,
    /// Maximum positions, and ids, if the file has none.
    absent: (usize, usize),
}

/// Fields that give the attention window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowField {
    /// No field: every position is seen.
    None,
    /// `sliding_window`, which may be null.
    Plain,
    /// `sliding_window`, if `use_sliding_window` is set.
    Switched,
}

const LLAMA: Architecture = Architecture {
    name: "LlamaForCausalLM",
    qkv_bias: false,
    qk_norm: false,
    head_dim: None,
    kv_heads: None,
    window: WindowField::None,
    gemma: false,
    absent: (2048, 32_000),
};

/// Every supported architecture.
pub const ARCHITECTURES: [Architecture; 5] = [
    LLAMA,
    Architecture {
        name: "MistralForCausalLM",
        kv_heads: Some(8),
        window: WindowField::Plain,
        absent: (131_072, 32_000),
        ..LLAMA
    },
    Architecture {
        name: "Qwen2ForCausalLM",
        qkv_bias: true,
        kv_heads: Some(32),
        window: WindowField::Switched,
        absent: (32_768, 151_936),
        ..LLAMA
    },
    Architecture {
        name: "Qwen3ForCausalLM",
        qk_norm: true,
        head_dim: Some(128),
        kv_heads: Some(32),
        window: WindowField::Switched,
        absent: (32_768, 151_936),
        ..LLAMA
    },
    Architecture {
        name: "Gemma3ForCausalLM",
        qk_norm: true,
        head_dim: Some(256),
        kv_heads: Some(4),
        gemma: true,
        absent: (131_072, 262_208),
        ..LLAMA
    },
];
/// Kinds of Gemma's layers in `layer_types`.
const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];
/// Every sixth layer attends to everything, if the file does not say.
const PATTERN: usize = 6;
/// Base of the rotary wavelengths of local layers, if the file has none.
const LOCAL_THETA: f64 = 10_000.0;

/// Configuration of a text decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Ids, layers and positions.
    pub model: LanguageModelConfig,
    /// True if the head's matrix is the token table.
    pub tie_word_embeddings: bool,
    /// Shape of the layers.
    pub decoder: DecoderShape,
    /// Tokens that end the text; at least one.
    pub stop: Vec<u32>,
    /// Default sampling of requests: greedy unless the file says `do_sample`.
    pub sampling: Sampling,
}

impl Config {
    /// Reads config.json and generation_config.json of a checkpoint of `architecture`.
    pub fn load(checkpoint: &Checkpoint, architecture: Architecture) -> Result<Self, CheckpointError> {
        let file = ConfigFile::of_family(checkpoint, &[architecture.name])?;
        let at = file.top()?;
        let (positions, vocabulary) = architecture.absent;
        let heads = at.size("num_attention_heads", 32, HEADS)?;
        let layers = LayersDefaults {
            hidden_size: 4096,
            intermediate_size: 11_008,
            num_hidden_layers: 32,
            heads: (heads, architecture.kv_heads.unwrap_or(heads)),
            head_dim: architecture.head_dim,
            rotary: RotaryFields::Scaled(KINDS[1]),
            ..TALKER
        };
        let layers = if architecture.gemma {
            let activation = ("hidden_activation", "gelu_pytorch_tanh");
            LayersDefaults { hidden_size: 2304, num_hidden_layers: 26, rope_theta: 1e6, activation, ..layers }
        } else {
            layers
        };
        let mut model = LanguageModelConfig::read(&at, vocabulary, &layers)?;
        model.max_position_embeddings = at.size("max_position_embeddings", positions, POSITIONS)?;
        if !architecture.qkv_bias {
            at.only("attention_bias", false)?;
        }
        at.only("mlp_bias", false)?;
        let window = match architecture.window {
            WindowField::None => None,
            WindowField::Plain => at.optional_size("sliding_window", POSITIONS)?,
            WindowField::Switched => switched_window(&at)?,
        };
        let Architecture { qkv_bias, qk_norm, .. } = architecture;
        let mut decoder = DecoderShape { qkv_bias, qk_norm, ..model.layers.shape(window) };
        if architecture.gemma {
            // Norms in GGUF files have the 1 added.
            let offset_norms = checkpoint.gguf().is_none();
            (decoder.local, decoder.style) = Self::gemma(&at, &model, offset_norms)?;
        }
        let tied = architecture.gemma;
        let generation = generation_file(checkpoint)?;
        let (stop, sampling) = Self::generation(&generation.top()?, &at, model.vocab_size)?;
        Ok(Self { tie_word_embeddings: at.switch("tie_word_embeddings", tied)?, model, decoder, stop, sampling })
    }

    /// Reads what Gemma's layers have beside others'.
    fn gemma(
        at: &ConfigSection<'_>,
        model: &LanguageModelConfig,
        offset_norms: bool,
    ) -> Result<(Option<LocalLayers>, LayerStyle), CheckpointError> {
        for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
            at.value(field, 0.0, |cap: f64| cap == 0.0, "absent: capped logits are not served")?;
        }
        at.only("use_bidirectional_attention", false)?;
        let layers = model.layers.num_hidden_layers;
        let window = at.size("sliding_window", 4096, POSITIONS)?;
        let mut every = at.size("sliding_window_pattern", PATTERN, LAYERS)?;
        if let Some(kinds) = at.get::<Vec<String>>("layer_types")? {
            let allowed = format!("{layers} of {KINDS:?}, the second at equal distances");
            every = kinds.iter().position(|kind| kind == KINDS[1]).map_or(layers + 1, |first| first + 1);
            let expected = (0..layers).map(|layer| KINDS[usize::from((layer + 1).is_multiple_of(every))]);
            at.check("layer_types", format!("{kinds:?}"), expected.eq(kinds.iter().map(String::as_str)), &allowed)?;
        }
        let rotary = at.optional_section("rope_parameters")?.optional_section(KINDS[0])?;
        rotary.only("rope_type", "default")?;
        let theta = match rotary.get("rope_theta")? {
            Some(theta) => theta,
            None => at.get("rope_local_base_freq")?.unwrap_or(LOCAL_THETA),
        };
        at.check("rope_local_base_freq", theta, theta.is_finite() && theta > 1.0, "above 1")?;
        let scalar =
            at.value("query_pre_attn_scalar", 256.0, |scalar: f64| scalar > 0.0 && scalar.is_finite(), "above 0")?;
        let score_factor = (model.layers.head_dim as f64 / scalar).sqrt();
        let style = LayerStyle {
            result_norms: true,
            offset_norms,
            gelu: true,
            row_factor: Some((model.layers.hidden_size as f64).sqrt() as f32),
            score_factor: (score_factor != 1.0).then_some(score_factor as f32),
        };
        Ok((Some(LocalLayers { every, window, theta: theta as f32 }), style))
    }

    /// Reads the stop tokens and the sampling; config.json has the stop tokens that generation_config.json lacks.
    fn generation(
        file: &ConfigSection<'_>,
        config: &ConfigSection<'_>,
        vocabulary: usize,
    ) -> Result<(Vec<u32>, Sampling), CheckpointError> {
        let stop = match stop_ids(file, "eos_token_id", vocabulary)? {
            Some(ids) => ids,
            None => stop_ids(config, "eos_token_id", vocabulary)?
                .ok_or_else(|| config.refusal("eos_token_id", "absent", "an id or a list of ids"))?,
        };
        let absent = Sampling { temperature: 1.0, top_k: 50, top_p: 1.0, repetition_penalty: 1.0 };
        Ok((stop, sampling(file, &[""], "do_sample", (absent, false))?))
    }
}
