//! Sizes of the layers over patches, and of the solve. Defaults are those of the classes `DiT` and `Aggregator` in the
//! published code.

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{HEADS, INNER, LAYERS, WIDTH, WINDOW};

/// Most latents of a patch.
const MOST_PATCH: usize = 64;
/// Number of parts of the time in the tables below.
const PARTS: f32 = 32.0;
/// Times of the steps, in parts, for numbers of steps that have a table: short steps first.
const TABLES: [&[u8]; 6] = [
    &[0, 2, 4, 8, 16, 32],
    &[0, 2, 4, 6, 8, 16, 32],
    &[0, 2, 4, 6, 8, 16, 24, 32],
    &[0, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32],
    &[0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32],
];

/// Sizes of a stack of layers in which all rows see each other.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchLayersConfig {
    /// Width of a row.
    pub hidden_size: usize,
    /// Number of layers.
    pub depth: usize,
    /// Number of attention heads.
    pub num_heads: usize,
    /// Inner width of a feed-forward block.
    pub inner: usize,
    /// True if queries and keys are normed head by head.
    pub qk_norm: bool,
}

impl PatchLayersConfig {
    /// Reads a section; `hidden_size` is the width of an absent field.
    pub fn read(at: &ConfigSection<'_>, hidden_size: usize) -> Result<Self, CheckpointError> {
        let num_heads = at.size("num_heads", 16, HEADS)?;
        // Rotation pairs the halves of a head.
        let hidden_size = at.multiple("hidden_size", hidden_size, WIDTH, ("twice num_heads", 2 * num_heads))?;
        let ratio = at.value("mlp_ratio", 4.0, |ratio: f64| ratio > 0.0 && ratio <= 64.0, "above 0 and at most 64")?;
        let inner = (hidden_size as f64 * ratio) as usize;
        at.check("mlp_ratio", ratio, INNER.contains(&inner), "an inner width of 1 to 262144")?;
        let norm = at.get::<String>("qk_norm")?;
        let known = norm.as_deref().is_none_or(|norm| norm == "rms_norm");
        at.check("qk_norm", norm.as_deref().unwrap_or_default(), known, "rms_norm, or null")?;
        for field in ["pe_attn_head", "spk_dim"] {
            at.check(field, "set", !at.has(field), "null: all heads are rotated, and no row is a speaker's")?;
        }
        Ok(Self { hidden_size, depth: at.size("depth", 28, LAYERS)?, num_heads, inner, qk_norm: norm.is_some() })
    }

    /// Width of a head.
    pub fn head(&self) -> usize {
        self.hidden_size / self.num_heads
    }
}

/// Sizes of the solve of a patch.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchFlowConfig {
    /// Layers that evaluate the slopes.
    pub layers: PatchLayersConfig,
    /// Numbers of a latent.
    pub latent: usize,
    /// Latents of a patch.
    pub patch: usize,
    /// Earlier latents that an evaluation sees; zeros before the first.
    pub history: usize,
    /// Width of the language model's row.
    pub condition: usize,
    /// Number of steps.
    pub steps: usize,
    /// Strength of the guidance.
    pub guidance: f32,
}

impl PatchFlowConfig {
    /// Reads `layers`, and sizes of patches out of `sizes`, for latents of `latent` numbers and rows of `condition`. The
    /// number of steps and the strength of the guidance may be among the sizes.
    pub fn read(
        layers: &ConfigSection<'_>,
        sizes: &ConfigSection<'_>,
        (latent, condition): (usize, usize),
    ) -> Result<Self, CheckpointError> {
        let patch = sizes.size("patch_size", 4, 1..=MOST_PATCH)?;
        Ok(Self {
            layers: PatchLayersConfig::read(layers, 1024)?,
            latent: layers.equal("in_channels", latent, ("the width of a latent", latent))?,
            patch,
            history: sizes.multiple("history_patch_size", patch, WINDOW, ("patch_size", patch))?,
            condition,
            steps: sizes.size("steps", 10, 1..=256)?,
            guidance: sizes.value("cfg_strength", 2.0, |by: f32| (0.0..=10.0).contains(&by), "from 0 to 10")?,
        })
    }

    /// Times of the steps' bounds. They are swayed: their lengths grow as those of a cosine.
    pub fn points(&self) -> Vec<f32> {
        let table = TABLES.iter().find(|table| table.len() == self.steps + 1);
        let even = |at: usize| at as f32 / self.steps as f32;
        let plain = |at: usize| table.map_or_else(|| even(at), |table| f32::from(table[at]) / PARTS);
        let swayed = |time: f32| time - ((std::f32::consts::FRAC_PI_2 * time).cos() - 1.0 + time);
        (0..=self.steps).map(|at| swayed(plain(at))).collect()
    }
}
