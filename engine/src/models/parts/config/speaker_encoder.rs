//! Speaker encoders.

use super::limits::{FACTOR, LAYERS, WIDTH};
use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;

/// The speaker encoder, an ECAPA-TDNN.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeakerEncoderConfig {
    /// Mel bins of a frame.
    pub mel_dim: usize,
    /// Width of the output row.
    pub enc_dim: usize,
    /// Channels after each layer.
    pub enc_channels: Vec<usize>,
    /// Number of taps of each layer.
    pub enc_kernel_sizes: Vec<usize>,
    /// Dilation of each layer.
    pub enc_dilations: Vec<usize>,
    /// Channels of the attention over time.
    pub enc_attention_channels: usize,
    /// Number of parts of a block's channels.
    pub enc_res2net_scale: usize,
    /// Channels of a block's squeeze-excitation gate.
    pub enc_se_channels: usize,
}

/// Values of absent fields.
#[derive(Debug, Clone, Copy)]
pub struct SpeakerDefaults {
    /// Channels of all layers but the last, which has three times as many.
    pub channels: usize,
    /// Channels of the attention and of the gates.
    pub inner: usize,
    /// Number of parts of a block's channels.
    pub scale: usize,
}

impl SpeakerEncoderConfig {
    /// Reads the encoder of spectrograms with `mel_dim` bins. `enc_dim`, the width of its output, is read by the family.
    pub fn read(
        at: &ConfigSection<'_>,
        (mel_dim, enc_dim): (usize, usize),
        absent: SpeakerDefaults,
    ) -> Result<Self, CheckpointError> {
        let SpeakerDefaults { channels, inner, scale } = absent;
        let channels = at.sizes("enc_channels", &[channels, channels, channels, channels, 3 * channels], WIDTH)?;
        let (layers, last) = (channels.len(), channels.last().copied().unwrap_or_default());
        let between = channels.get(1..layers.saturating_sub(1)).unwrap_or_default();
        let fits = !between.is_empty()
            && between.iter().all(|&each| each == channels[0])
            && between.iter().sum::<usize>() == last;
        let allowed = "at least 3, all but the last equal, and the last the sum of those between";
        at.check("enc_channels", format!("{channels:?}"), fits, allowed)?;
        let each = |field, absent: &[usize]| {
            let holds = |values: &[usize]| values.len() == layers && values.iter().all(|value| FACTOR.contains(value));
            at.list(field, absent, holds, "one of 1 to 64 for each of enc_channels")
        };
        let scale = at.size("enc_res2net_scale", scale, 2..=*LAYERS.end())?;
        let whole = channels[0].is_multiple_of(scale);
        at.check(
            "enc_channels.0",
            channels[0],
            whole,
            &format!("a positive multiple of enc_res2net_scale, which is {scale}"),
        )?;
        Ok(Self {
            mel_dim,
            enc_dim,
            enc_kernel_sizes: each("enc_kernel_sizes", &[5, 3, 3, 3, 1])?,
            enc_dilations: each("enc_dilations", &[1, 2, 3, 4, 1])?,
            enc_attention_channels: at.size("enc_attention_channels", inner, WIDTH)?,
            enc_res2net_scale: scale,
            enc_se_channels: at.size("enc_se_channels", inner, WIDTH)?,
            enc_channels: channels,
        })
    }
}
