//! Audio towers.

use super::limits::{HEADS, INNER, LAYERS, MEL_BINS, WIDTH, WINDOW};
use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;
use crate::models::parts::audio_encoder::layer::AudioLayerShape;
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};

/// The audio tower: convolutions over windows of mel frames, then a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioTowerConfig {
    /// Mel bins of an input frame.
    pub num_mel_bins: usize,
    /// Number of transformer layers.
    pub encoder_layers: usize,
    /// Attention heads of each layer.
    pub encoder_attention_heads: usize,
    /// Inner width of each feed-forward block.
    pub encoder_ffn_dim: usize,
    /// Width of a row in the layers.
    pub d_model: usize,
    /// Width of an output row, which is the language model's hidden size.
    pub output_dim: usize,
    /// Half the mel frames of a window; the convolutions see one window at a time.
    pub n_window: usize,
}

impl AudioTowerConfig {
    /// Reads the tower's section before a language model whose rows have `hidden_size` numbers, given with the field that says
    /// so. `n_window` is the default of that field.
    pub fn read(at: &ConfigSection<'_>, n_window: usize, hidden_size: (&str, usize)) -> Result<Self, CheckpointError> {
        let heads = at.size("encoder_attention_heads", 20, HEADS)?;
        let d_model = at.multiple("d_model", 1280, WIDTH, ("encoder_attention_heads", heads))?;
        // Half of a position is sines and half cosines, with wavelengths spread over (half - 1) steps.
        at.check("d_model", d_model, d_model >= 4 && d_model.is_multiple_of(2), "even, at least 4")?;
        at.only("activation_function", "gelu")?;
        Ok(Self {
            num_mel_bins: at.size("num_mel_bins", 128, MEL_BINS)?,
            encoder_layers: at.size("encoder_layers", 32, LAYERS)?,
            encoder_attention_heads: heads,
            encoder_ffn_dim: at.size("encoder_ffn_dim", 5120, INNER)?,
            d_model,
            output_dim: at.equal("output_dim", 3584, hidden_size)?,
            n_window: at.even("n_window", n_window, WINDOW)?,
        })
    }

    /// Shape of a tower whose rows attend to each other in a window of `2 * n_window` mel frames. `projection` has the
    /// names and output widths of the linear layers after the norm.
    pub fn encoder(
        &self,
        convolutions: Convolutions,
        key_bias: bool,
        projection: &[(&'static str, usize)],
    ) -> EncoderShape {
        EncoderShape {
            bins: self.num_mel_bins,
            window: 2 * self.n_window,
            chunk: 2 * self.n_window,
            convolutions,
            positions: Positions::Sinusoids,
            layers: self.encoder_layers,
            layer: AudioLayerShape {
                width: self.d_model,
                heads: self.encoder_attention_heads,
                inner: self.encoder_ffn_dim,
                key_bias,
            },
            reach: (None, None),
            skip: None,
            pairs: false,
            norm: "ln_post",
            projection: projection.to_vec(),
        }
    }
}
