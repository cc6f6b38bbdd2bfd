//! config.json of dense text decoders, by the architecture that it names.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::limits::{HEADS, POSITIONS};
use crate::models::parts::config::{
    ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, TALKER, switched_window,
};
use crate::models::parts::decoder::DecoderShape;
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
    absent: (2048, 32_000),
};

/// Every supported architecture.
pub const ARCHITECTURES: [Architecture; 4] = [
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
];

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
            ..TALKER
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
        let decoder = DecoderShape { qkv_bias, qk_norm, ..model.layers.shape(window) };
        let generation = generation_file(checkpoint)?;
        let (stop, sampling) = Self::generation(&generation.top()?, &at, model.vocab_size)?;
        Ok(Self { tie_word_embeddings: at.switch("tie_word_embeddings", false)?, model, decoder, stop, sampling })
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
