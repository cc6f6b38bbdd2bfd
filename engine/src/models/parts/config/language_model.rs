//! Language models: thinkers, talkers and code predictors.

use repartee_kernels::AttentionShape;

use super::limits::{CODES, INNER, LAYERS, POSITIONS, VOCABULARY, WIDTH};
use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;
use crate::models::parts::decoder::DecoderShape;
use crate::models::parts::rotary::RotaryScaling;

/// Sizes of a transformer's layers.
#[derive(Debug, Clone, PartialEq)]
pub struct LayersConfig {
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
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies.
    pub rope_scaling: RotaryScaling,
}

/// Fields of rotary positions that a family serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryFields {
    /// The base alone: scaled positions are refused.
    Plain,
    /// Scaled positions too; if kinds of layers have sections of their own, those of this kind.
    Scaled(&'static str),
}

/// Values of absent fields.
#[derive(Debug, Clone, Copy)]
pub struct LayersDefaults {
    /// Width of a row.
    pub hidden_size: usize,
    /// Inner width of the feed-forward block.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads, and of key and value heads.
    pub heads: (usize, usize),
    /// Width of a head; `None`: the query heads share the hidden size evenly.
    pub head_dim: Option<usize>,
    /// Epsilon of norms.
    pub rms_norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Fields of rotary positions that are served.
    pub rotary: RotaryFields,
    /// Field of the gate's activation, and its only value.
    pub activation: (&'static str, &'static str),
}

/// Defaults of the talkers' configuration classes.
pub const TALKER: LayersDefaults = LayersDefaults {
    hidden_size: 1024,
    intermediate_size: 2048,
    num_hidden_layers: 20,
    heads: (16, 2),
    head_dim: None,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000.0,
    rotary: RotaryFields::Plain,
    activation: ("hidden_act", "silu"),
};

/// Defaults that the thinkers' configuration classes share.
pub const THINKER: LayersDefaults = LayersDefaults {
    intermediate_size: 18_944,
    num_hidden_layers: 28,
    heads: (28, 4),
    rope_theta: 1_000_000.0,
    ..TALKER
};

/// Defaults of the code predictors' configuration classes.
const CODE_PREDICTOR: LayersDefaults =
    LayersDefaults { intermediate_size: 3072, num_hidden_layers: 5, heads: (16, 8), head_dim: Some(128), ..TALKER };

impl LayersConfig {
    /// Reads the layers of a section, with `absent` for absent fields.
    pub fn read(at: &ConfigSection<'_>, absent: &LayersDefaults) -> Result<Self, CheckpointError> {
        let hidden_size = at.size("hidden_size", absent.hidden_size, WIDTH)?;
        let (heads, kv_heads) = absent.heads;
        let (num_attention_heads, num_key_value_heads, head_dim) =
            at.attention(hidden_size, (heads, kv_heads, absent.head_dim))?;
        at.only(absent.activation.0, absent.activation.1)?;
        let (rope_theta, rope_scaling) = match absent.rotary {
            RotaryFields::Plain => (at.rope_theta(absent.rope_theta)?, RotaryScaling::None),
            RotaryFields::Scaled(layers) => {
                let positions = at.size("max_position_embeddings", 32_768, POSITIONS)?;
                at.rope(absent.rope_theta, layers, positions)?
            }
        };
        Ok(Self {
            hidden_size,
            intermediate_size: at.size("intermediate_size", absent.intermediate_size, INNER)?,
            num_hidden_layers: at.size("num_hidden_layers", absent.num_hidden_layers, LAYERS)?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            rms_norm_eps: at.epsilon("rms_norm_eps", absent.rms_norm_eps)?,
            rope_theta,
            rope_scaling,
        })
    }

    /// Shape of plain layers with an attention window of `window` positions; `None` for all positions.
    pub fn shape(&self, window: Option<usize>) -> DecoderShape {
        let attention = AttentionShape {
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            window,
            chunk: None,
        };
        DecoderShape {
            eps: self.rms_norm_eps as f32,
            theta: Some(self.rope_theta as f32),
            scaling: self.rope_scaling,
            ..DecoderShape::plain(self.hidden_size, self.num_hidden_layers, attention)
        }
    }
}

/// A decoder-only language model: a thinker's or a talker's.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageModelConfig {
    /// Rows of the embedding and of the output head.
    pub vocab_size: usize,
    /// Sizes of the layers.
    pub layers: LayersConfig,
    /// Maximum positions of the model.
    pub max_position_embeddings: usize,
}

impl LanguageModelConfig {
    /// Reads a section, with `vocab_size` and `layers` for absent fields.
    pub fn read(at: &ConfigSection<'_>, vocab_size: usize, layers: &LayersDefaults) -> Result<Self, CheckpointError> {
        Ok(Self {
            vocab_size: at.size("vocab_size", vocab_size, VOCABULARY)?,
            layers: LayersConfig::read(at, layers)?,
            max_position_embeddings: at.size("max_position_embeddings", 32_768, POSITIONS)?,
        })
    }
}

/// Reads the attention window in positions, if `use_sliding_window` is set.
pub fn switched_window(at: &ConfigSection<'_>) -> Result<Option<usize>, CheckpointError> {
    let switched = at.switch("use_sliding_window", false)?;
    switched.then(|| at.size("sliding_window", 4096, POSITIONS)).transpose()
}

/// Reads the attention window in positions, if a layer of the code predictor has one by `layer_types` or
/// `max_window_layers`.
pub fn layer_window(at: &ConfigSection<'_>) -> Result<Option<usize>, CheckpointError> {
    let layers = at.size("num_hidden_layers", CODE_PREDICTOR.num_hidden_layers, LAYERS)?;
    let full = at.size("max_window_layers", 28, 0..=*LAYERS.end())?;
    let windowed = match at.get::<Vec<String>>("layer_types")? {
        Some(types) => types.iter().any(|kind| kind == "sliding_attention"),
        None => layers > full,
    };
    Ok(at.optional_size("sliding_window", POSITIONS)?.filter(|_| windowed))
}

/// The code predictor: a small decoder over the codebooks of one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct CodePredictorConfig {
    /// Number of codes in a codebook.
    pub vocab_size: usize,
    /// Width of a row of the talker. If it differs from the layers' width, a projection precedes the layers.
    pub input_size: usize,
    /// Sizes of the layers.
    pub layers: LayersConfig,
    /// Codebooks of a frame, the first included.
    pub num_code_groups: usize,
    /// Attention window in positions; it holds a frame, so it changes nothing.
    pub sliding_window: Option<usize>,
}

impl CodePredictorConfig {
    /// Reads `talker_config.code_predictor_config` of a talker with `groups` codes in a frame, whose rows have
    /// `input_size` numbers (`None`: as many as the predictor's). A codebook of the codec has `codebook_size` entries.
    /// `sliding_window` is the attention window, which must hold a frame.
    pub fn read(
        at: &ConfigSection<'_>,
        (input_size, groups, codebook_size): (Option<usize>, usize, usize),
        sliding_window: Option<usize>,
    ) -> Result<Self, CheckpointError> {
        let layers = LayersConfig::read(at, &CODE_PREDICTOR)?;
        at.only("attention_bias", false)?;
        if let Some(window) = sliding_window {
            let allowed = format!("none, or at least the {groups} code groups");
            at.check("sliding_window", window, window >= groups, &allowed)?;
        }
        let vocab_size = at.size("vocab_size", 2048, CODES)?;
        let allowed = format!("at most {codebook_size}, as codebook_size of the codec's decoder");
        at.check("vocab_size", vocab_size, vocab_size <= codebook_size, &allowed)?;
        Ok(Self {
            vocab_size,
            input_size: input_size.unwrap_or(layers.hidden_size),
            num_code_groups: at.equal("num_code_groups", 32, ("talker_config.num_code_groups", groups))?,
            sliding_window,
            layers,
        })
    }
}
