//! Sizes of the decoder of latents. Names are those of the published `AudioVAEconfig`.

use repartee_kernels::AttentionShape;

use crate::checkpoint::CheckpointError;
use crate::models::parts::config::limits::{FACTOR, FRAME, LAYERS, RATE, WIDTH, WINDOW};
use crate::models::parts::config::{ConfigSection, LayersConfig, LayersDefaults, THINKER, switched_window};
use crate::models::parts::decoder::DecoderShape;

/// Highest sampling rate, in Hz.
const MOST_RATE: usize = 48_000;
/// Windows of a transform that a sample lies in.
const OVERLAP: usize = 4;

/// Defaults of `Qwen2Config`.
const BACKBONE: LayersDefaults = LayersDefaults {
    hidden_size: 4096,
    intermediate_size: 22_016,
    num_hidden_layers: 32,
    heads: (32, 32),
    rope_theta: 10_000.0,
    ..THINKER
};

/// Sizes of the decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentCodecConfig {
    /// Sampling rate, in Hz.
    pub sample_rate: u32,
    /// Numbers of a latent.
    pub latent_dim: usize,
    /// Rows of a latent.
    pub rows: usize,
    /// Samples of a row.
    pub hop: usize,
    /// Sizes of the layers.
    pub layers: LayersConfig,
    /// Rows up to its own that a row attends to.
    pub window: Option<usize>,
}

impl LatentCodecConfig {
    /// Reads a section.
    pub fn read(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let decoder = at.section("dec_kwargs")?;
        let backbone = decoder.section("backbone")?;
        let layers = LayersConfig::read(&backbone, &BACKBONE)?;
        let window = switched_window(&backbone)?;
        if window.is_some() {
            let full = backbone.size("max_window_layers", 28, 0..=*LAYERS.end())?;
            backbone.check("max_window_layers", full, full == 0, "0: all layers have the window")?;
        }
        let allowed = |window: &usize| WINDOW.contains(window);
        backbone.check("sliding_window", window.unwrap_or_default(), window.iter().all(allowed), "1 to 8192")?;
        // -1 stands for none.
        let rows = at.value("patch_size", 4, |rows: i64| rows == -1 || (1..=64).contains(&rows), "-1, or 1 to 64")?;
        // The gateway converts from no higher rates.
        let rate = at.size("sample_rate", 44_100, *RATE.start()..=MOST_RATE)?;
        Ok(Self {
            sample_rate: u32::try_from(rate).unwrap_or_default(),
            latent_dim: decoder.size("latent_dim", 64, WIDTH)?,
            rows: usize::try_from(rows).unwrap_or(*FACTOR.start()),
            // As many samples as hops are left if both ends are cut evenly.
            hop: decoder.even("output_dim", 320, *FRAME.start()..=*FRAME.end() / OVERLAP)?,
            layers,
            window,
        })
    }

    /// Shape of the layers.
    pub fn decoder(&self) -> DecoderShape {
        let shape = self.layers.shape(self.window);
        DecoderShape { qkv_bias: true, attention: AttentionShape { window: self.window, ..shape.attention }, ..shape }
    }

    /// Samples of a transform.
    pub fn n_fft(&self) -> usize {
        OVERLAP * self.hop
    }

    /// Samples of a latent.
    pub fn samples(&self) -> usize {
        self.rows * self.hop
    }
}
