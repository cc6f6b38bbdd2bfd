//! Sizes of a diffusion transformer over blocks of frames.

use crate::models::parts::config::SpeakerEncoderConfig;
use crate::models::parts::step_layers::StepLayers;

/// Sizes of the diffusion transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct DitConfig {
    /// Width of a row.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of attention heads; the first is rotated, the others have no positions.
    pub num_attention_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Inner width of a feed-forward block, as a multiple of the row width.
    pub ff_mult: usize,
    /// Width of a code's embedding.
    pub emb_dim: usize,
    /// Base of the first head's rotary wavelengths.
    pub rope_theta: f64,
    /// Mel frames of a block. A frame attends to its own block, in some layers also to a neighbouring one.
    pub block_size: usize,
    /// Layers in which a block attends to the one after it.
    pub look_ahead_layers: Vec<usize>,
    /// Layers in which a block attends to the one before it.
    pub look_backward_layers: Vec<usize>,
    /// Mel frames of a code.
    pub repeats: usize,
    /// Number of codes; the embedding has one more.
    pub num_embeds: usize,
    /// Mel bins of a frame.
    pub mel_dim: usize,
    /// Width of a voice's conditioning row.
    pub enc_emb_dim: usize,
    /// Sizes of the speaker encoder.
    pub speaker: SpeakerEncoderConfig,
}

impl DitConfig {
    /// Layers of an evaluation with units of at most `most` multiplications.
    pub fn step_layers(&self, most: usize) -> StepLayers {
        let (hidden, inner) = (self.hidden_size, self.num_attention_heads * self.head_dim);
        let row_work = hidden * (4 * inner + 2 * self.ff_mult * hidden);
        StepLayers { count: self.num_hidden_layers, width: hidden, row_work, most }
    }

    /// Number of codes in a block.
    pub fn block_codes(&self) -> usize {
        self.block_size / self.repeats
    }

    /// Number of blocks before and after a block that its evaluation depends on: each layer that attends beyond its own
    /// block adds one.
    pub fn window_blocks(&self) -> (usize, usize) {
        (self.look_backward_layers.len(), self.look_ahead_layers.len())
    }
}
