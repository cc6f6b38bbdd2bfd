//! Sizes of the transformer over windows and of the layers before it, from `token2latent`. Absent fields are the published ones.

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{CODES, FACTOR, HEADS, INNER, LAYERS, WIDTH};
use crate::models::parts::step_layers::StepLayers;

/// Taps of the convolution that gives frames their positions, which the reference fixes.
pub const POSITION_TAPS: usize = 31;
/// Groups of its channels, fixed too.
pub const POSITION_GROUPS: usize = 16;
/// Time points of a solve at most.
const MOST_POINTS: usize = 1024;

/// Sizes of the transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowDitConfig {
    /// Width of a row.
    pub dim: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads; all are rotated.
    pub heads: usize,
    /// Inner width of a feed-forward block.
    pub inner: usize,
    /// Numbers of a latent.
    pub latents: usize,
    /// Number of codes, and width of their embeddings.
    pub codes: (usize, usize),
    /// Latents of a code.
    pub ratio: usize,
    /// Numbers of a speaker's vector.
    pub speaker: usize,
    /// Time points of a solve, first and last included.
    pub points: usize,
    /// Strength of the guidance.
    pub guidance: f32,
}

impl WindowDitConfig {
    /// Reads the section `token2latent`, and `inference`.
    pub fn read(at: &ConfigSection<'_>, inference: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let transformer = at.optional_section("transformer")?;
        transformer.only("modulation", true)?;
        transformer.only("alibi_bias", false)?;
        transformer.only("rotary_bias", true)?;
        transformer.only("qk_norm", false)?;
        inference.only("rescale_logits", false)?;
        let heads = transformer.size("num_heads", 16, HEADS)?;
        let dim = transformer.multiple("hidden_size", 1024, WIDTH, ("twice num_heads", 2 * heads))?;
        let groups = format!("a multiple of {POSITION_GROUPS}, the groups of a convolution");
        transformer.check("hidden_size", dim, dim.is_multiple_of(POSITION_GROUPS), &groups)?;
        Ok(Self {
            dim,
            layers: transformer.size("num_layers", 12, LAYERS)?,
            heads,
            inner: transformer.size("ffn_hidden_size", 4096, INNER)?,
            latents: at.size("z_dim", 64, WIDTH)?,
            codes: (at.size("token_vocab_size", 16_384, CODES)?, at.size("token_input_dim", 512, WIDTH)?),
            ratio: at.even("upsample_factor", 4, FACTOR)?,
            speaker: at.size("spkr_embed_dim", 1024, WIDTH)?,
            points: inference.size("s_steps", 10, 2..=MOST_POINTS)?,
            guidance: inference.value("cfg_alpha", 1.0, |alpha: f32| (0.0..=10.0).contains(&alpha), "from 0 to 10")?,
        })
    }

    /// Layers of an evaluation with units of at most `most` multiplications.
    pub fn step_layers(&self, most: usize) -> StepLayers {
        let row_work = self.dim * (4 * self.dim + 2 * self.inner);
        StepLayers { count: self.layers, width: self.dim, row_work, most }
    }
}
