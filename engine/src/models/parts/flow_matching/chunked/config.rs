//! Sizes of the transformer over chunks and of the layers before it. Names and defaults are those of
//! `CausalMaskedDiffWithDiT` and `DiT` in CosyVoice's `flow`.

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{CODES, FACTOR, HEAD_DIM, HEADS, LAYERS, MEL_BINS, WIDTH, WINDOW};
use crate::models::parts::step_layers::StepLayers;

/// Taps of the convolutions that give frames their positions, which the reference fixes.
pub const POSITION_TAPS: usize = 31;
/// Groups of their channels, fixed too.
pub const POSITION_GROUPS: usize = 16;
/// Taps of the second convolution over codes.
pub const CODE_TAPS: usize = 3;

/// Sizes of the transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkDitConfig {
    /// Width of a row.
    pub dim: usize,
    /// Number of layers.
    pub depth: usize,
    /// Number of attention heads; the first is rotated, the others have no positions.
    pub heads: usize,
    /// Width of a head.
    pub dim_head: usize,
    /// Inner width of a feed-forward block, as a multiple of the row width.
    pub ff_mult: usize,
    /// Mel bins of a frame; a code's embedding is as wide.
    pub mel: usize,
    /// Number of codes.
    pub vocab_size: usize,
    /// Frames of a code.
    pub token_mel_ratio: usize,
    /// Codes after a code that its frames depend on.
    pub pre_lookahead_len: usize,
    /// Channels of the convolution that looks ahead.
    pub lookahead_channels: usize,
    /// Width of a voice's vector.
    pub spk_embed_dim: usize,
    /// Codes of a chunk. A frame attends to its own chunk and to those before it.
    pub chunk_codes: usize,
    /// Strength of the guidance.
    pub guidance: f32,
}

impl ChunkDitConfig {
    /// Reads the section `flow`.
    pub fn read(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let mel = at.size("output_size", 80, MEL_BINS)?;
        let same = ("flow.output_size", mel);
        at.equal("input_size", 80, same)?;
        at.only("output_type", "mel")?;
        let ahead = at.section("pre_lookahead_layer")?;
        let decoder = at.section("decoder")?;
        let dit = decoder.section("estimator")?;
        ["mel_dim", "mu_dim", "spk_dim", "out_channels"].iter().try_for_each(|field| {
            dit.equal(field, 80, same)?;
            Ok::<_, CheckpointError>(())
        })?;
        ahead.equal("in_channels", 80, same)?;
        dit.only("long_skip_connection", false)?;
        let solve = decoder.section("cfm_params")?.optional_section("content")?;
        solve.only("solver", "euler")?;
        solve.only("t_scheduler", "cosine")?;
        let ratio = at.size("token_mel_ratio", 2, FACTOR)?;
        let pre_lookahead_len = at.size("pre_lookahead_len", 3, 0..=64)?;
        let by = ("flow.token_mel_ratio", ratio);
        Ok(Self {
            dim: dit.multiple("dim", 1024, WIDTH, ("16, the groups of a convolution", POSITION_GROUPS))?,
            depth: dit.size("depth", 8, LAYERS)?,
            heads: dit.size("heads", 8, HEADS)?,
            dim_head: dit.even("dim_head", 64, HEAD_DIM)?,
            ff_mult: dit.size("ff_mult", 4, FACTOR)?,
            mel,
            vocab_size: at.size("vocab_size", 6561, CODES)?,
            token_mel_ratio: ratio,
            pre_lookahead_len: ahead.equal("pre_lookahead_len", 3, ("flow.pre_lookahead_len", pre_lookahead_len))?,
            lookahead_channels: ahead.size("channels", 1024, WIDTH)?,
            spk_embed_dim: at.size("spk_embed_dim", 192, WIDTH)?,
            chunk_codes: dit.multiple("static_chunk_size", 50, WINDOW, by)? / ratio,
            guidance: solve.value(
                "inference_cfg_rate",
                0.7,
                |rate: f32| (0.0..=10.0).contains(&rate),
                "from 0 to 10",
            )?,
        })
    }

    /// Layers of an evaluation with units of at most `most` multiplications.
    pub fn step_layers(&self, most: usize) -> StepLayers {
        let inner = self.heads * self.dim_head;
        let row_work = self.dim * (4 * inner + 2 * self.ff_mult * self.dim);
        StepLayers { count: self.depth, width: self.dim, row_work, most }
    }

    /// Frames of a chunk.
    pub fn chunk(&self) -> usize {
        self.chunk_codes * self.token_mel_ratio
    }

    /// Frames before a chunk whose rows its first rows depend on, beside attention: as far as two convolutions reach.
    pub fn reach(&self) -> usize {
        2 * (POSITION_TAPS - 1)
    }
}
