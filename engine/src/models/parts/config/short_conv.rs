//! Language models of which some layers have a short convolution in place of attention.

use repartee_kernels::AttentionShape;

use super::limits::{INNER, POSITIONS, VOCABULARY, WIDTH};
use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;
use crate::models::parts::decoder::{DecoderShape, LayerNames, ShortConvLayers};

/// A language model of which some layers have a short convolution, as LFM2's.
#[derive(Debug, Clone, PartialEq)]
pub struct ShortConvConfig {
    /// Number of ids.
    pub vocab_size: usize,
    /// Shape of the layers.
    pub decoder: DecoderShape,
    /// Inner width of the feed-forward blocks.
    pub inner: usize,
    /// Most positions of a prompt and its response.
    pub max_position_embeddings: usize,
}

impl ShortConvConfig {
    /// Reads a section, with the defaults of `Lfm2Config` in transformers; `names` are those of the layers' tensors.
    pub fn read(at: &ConfigSection<'_>, names: LayerNames) -> Result<Self, CheckpointError> {
        let hidden = at.size("hidden_size", 2560, WIDTH)?;
        let (heads, kv_heads, head_dim) = at.attention(hidden, (32, 8, None))?;
        let layers = at.size("num_hidden_layers", 32, 1..=ShortConvLayers::MOST_LAYERS)?;
        at.only("conv_bias", false)?;
        let taps = at.value("conv_L_cache", 3, |taps| (2..=16).contains(&taps), "2 to 16")?;
        let known = |kind: &str| ["conv", "full_attention", "sliding_attention"].contains(&kind);
        let holds = |kinds: &[String]| kinds.len() == layers && kinds.iter().all(|kind| known(kind));
        let allowed = "a list of conv, full_attention or sliding_attention for each of num_hidden_layers";
        let kinds: Vec<String> = match at.get::<Vec<usize>>("full_attn_idxs")?.filter(|_| !at.has("layer_types")) {
            Some(full) => {
                (0..layers).map(|at| if full.contains(&at) { "full_attention" } else { "conv" }.into()).collect()
            }
            None => at.list("layer_types", &[], holds, allowed)?,
        };
        let convolutions =
            kinds.iter().enumerate().filter(|(_, kind)| *kind == "conv").fold(0, |all, (at, _)| all | (1 << at));
        let attention = AttentionShape { heads, kv_heads, head_dim, window: None, chunk: None };
        Ok(Self {
            vocab_size: at.size("vocab_size", 65_536, VOCABULARY)?,
            inner: inner(at, "intermediate_size")?,
            max_position_embeddings: at.size("max_position_embeddings", 128_000, POSITIONS)?,
            decoder: DecoderShape {
                eps: at.epsilon("norm_eps", 1e-5)? as f32,
                theta: Some(at.rope_theta(1e6)? as f32),
                qk_norm: true,
                convolutions: Some(ShortConvLayers { layers: convolutions, taps }),
                names,
                ..DecoderShape::plain(hidden, layers, attention)
            },
        })
    }
}

/// Inner width of LFM2's feed-forward blocks, which the file gives before it is adjusted.
fn inner(at: &ConfigSection<'_>, field: &str) -> Result<usize, CheckpointError> {
    let size = at.size(at.first_of(&["block_ff_dim", field]), 12_288, INNER)?;
    if !at.switch("block_auto_adjust_ff_dim", true)? {
        return Ok(size);
    }
    let by = at.value("block_ffn_dim_multiplier", 1.0, |by| by > 0.0 && by <= 16.0, "above 0, at most 16")?;
    Ok(gated(size, by, at.size("block_multiple_of", 256, INNER)?))
}

/// Width of a gated block in the place of one without a gate: two thirds, times `by`, up to a multiple.
pub fn gated(size: usize, by: f64, multiple: usize) -> usize {
    (((2 * size / 3) as f64 * by) as usize).next_multiple_of(multiple)
}
