//! Sizes of a codec that is decoded in windows.

use crate::checkpoint::CheckpointError;
use crate::models::parts::audio_encoder::layer::{AudioLayerShape, Reach};
use crate::models::parts::config::ConfigSection;
use crate::models::parts::config::limits::{HEADS, INNER, LAYERS, WIDTH};

/// A stack of layers.
#[derive(Debug, Clone, Copy)]
pub struct StackConfig {
    /// Number of layers.
    pub layers: usize,
    /// Sizes of a layer.
    pub layer: AudioLayerShape,
    /// Rows of a window that a row attends to.
    pub reach: Reach,
}

impl StackConfig {
    /// Reads a stack of rows of `d_model` numbers, whose fields begin with `name`; `causal` for an absent field.
    pub fn read(at: &ConfigSection<'_>, name: &str, causal: bool) -> Result<Self, CheckpointError> {
        let field = |leaf: &str| format!("{name}_{leaf}");
        let heads = at.size(&field("attention_heads"), 12, HEADS)?;
        let width = at.multiple("d_model", 768, WIDTH, (&format!("twice {}", field("attention_heads")), 2 * heads))?;
        let inner = at.size(&field("ffn_dim"), 3072, INNER)?;
        let causal = at.switch(&field("causal"), causal)?;
        Ok(Self {
            layers: at.size(&field("layers"), 8, LAYERS)?,
            layer: AudioLayerShape { width, heads, inner, key_bias: false },
            reach: reach(at, &field("attn_window_size"), (causal, [-1, -1]))?,
        })
    }

    /// Reads the stack of a vocoder, whose fields have names of their own.
    pub fn read_vocoder(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let heads = at.size("vocoder_attention_heads", 4, HEADS)?;
        let width = at.multiple("vocoder_dim", 512, WIDTH, ("twice vocoder_attention_heads", 2 * heads))?;
        let inner = at.size("vocoder_intermediate_dim", 4096, INNER)?;
        Ok(Self {
            layers: at.size("vocoder_num_layers", 30, LAYERS)?,
            layer: AudioLayerShape { width, heads, inner, key_bias: false },
            reach: reach(at, "vocoder_attn_window_size", (false, [40, 10]))?,
        })
    }
}

/// Reads the rows before and after a row that it attends to; -1 stands for all.
fn reach(at: &ConfigSection<'_>, field: &str, (causal, absent): (bool, [i64; 2])) -> Result<Reach, CheckpointError> {
    let holds = |two: &[i64]| two.len() == 2 && two.iter().all(|rows| (-1..=65_536).contains(rows));
    let two = at.list(field, &absent, holds, "two numbers from -1 to 65536")?;
    let side = |rows: i64| usize::try_from(rows).ok();
    Ok((side(two[0]), if causal { Some(0) } else { side(two[1]) }))
}

/// Sizes of the codec's decoder.
#[derive(Debug, Clone)]
pub struct WindowCodecConfig {
    /// Entries of each codebook.
    pub entries: Vec<usize>,
    /// Layers over two rows a code.
    pub decoder: StackConfig,
    /// Layers over the rows of the spectrogram.
    pub vocoder: StackConfig,
    /// Numbers of a row of the spectrogram.
    pub bins: usize,
    /// Base of the rotary wavelengths.
    pub theta: f32,
    /// Samples of a transform, and from one to the next.
    pub istft: (usize, usize),
}

impl WindowCodecConfig {
    /// Rows of the spectrogram for a code.
    pub const ROWS: usize = 4;

    /// Samples of a code.
    pub fn samples_per_code(&self) -> usize {
        Self::ROWS * self.istft.1
    }

    /// Numbers of a spectrum.
    pub fn spectrum(&self) -> usize {
        self.istft.0 + 2
    }
}

/// Codes of a window, by the stage's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSizes {
    /// Codes of the window before that are decoded again.
    pub left: usize,
    /// Last codes of a window whose samples come of the next one.
    pub right: usize,
    /// New codes of a window.
    pub new: usize,
}
