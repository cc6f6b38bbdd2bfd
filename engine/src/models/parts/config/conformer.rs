//! FastConformer encoders in the configuration of NeMo, and the spectrogram that they take.

use super::limits::{FACTOR, FRAME, HEADS, LAYERS, MEL_BINS, RATE, WIDTH};
use super::section::ConfigSection;
use crate::audio::recording_mel::RecordingMelConfig;
use crate::checkpoint::CheckpointError;
use crate::models::parts::conformer::shape::ConformerShape;

/// Reads `preprocessor`; a window has at most `seconds` seconds.
pub fn mel(at: &ConfigSection<'_>, seconds: usize) -> Result<RecordingMelConfig, CheckpointError> {
    at.only("normalize", "per_feature")?;
    at.only("window", "hann")?;
    at.only("log", true)?;
    at.only("frame_splicing", 1)?;
    let rate = at.size("sample_rate", 16_000, RATE)?;
    let samples = |field: &str, absent: f64| -> Result<usize, CheckpointError> {
        let length = at.value(field, absent, |length| length > 1e-4 && length <= 1.0, "above 0.0001, at most 1 s")?;
        // As in the reference: rounded down.
        Ok(((length * rate as f64) as usize).max(2))
    };
    let (window, hop) = (samples("window_size", 0.02)?, samples("window_stride", 0.01)?);
    let n_fft = at.even("n_fft", window.next_power_of_two(), FRAME)?;
    at.check("n_fft", n_fft, n_fft >= window, "at least the samples of window_size")?;
    let value = at.value("pad_value", 0.0, f32::is_finite, "a finite number")?;
    Ok(RecordingMelConfig {
        rate: u32::try_from(rate).unwrap_or(u32::MAX),
        bins: at.size("features", 128, MEL_BINS)?,
        n_fft,
        window,
        hop,
        padding: (at.size("pad_to", 0, 0..=*FACTOR.end())?, value),
        most_samples: seconds * rate,
    })
}

/// Reads `encoder` for frames of `bins` numbers; `adapter` has the widths after each matrix of the adapter.
pub fn encoder(at: &ConfigSection<'_>, bins: usize, adapter: Vec<usize>) -> Result<ConformerShape, CheckpointError> {
    at.equal("feat_in", 128, ("features", bins))?;
    at.only("subsampling", "dw_striding")?;
    at.only("subsampling_factor", 1 << ConformerShape::HALVINGS)?;
    at.only("causal_downsampling", false)?;
    at.only("self_attention_model", "rel_pos")?;
    at.only("conv_norm_type", "batch_norm")?;
    at.only("untie_biases", true)?;
    for absent in ["reduction", "conv_context_size"] {
        at.check(absent, "a value", !at.has(absent), "null")?;
    }
    let contexts = at.get::<serde_json::Value>("att_context_size")?.map(|value| value.to_string()).unwrap_or_default();
    let whole = ["", "[-1,-1]", "[[-1,-1]]"].contains(&&contexts[..]);
    at.check("att_context_size", &contexts, whole, "[-1, -1]: attention to the whole recording")?;
    let width = at.even("d_model", 512, WIDTH)?;
    let heads = at.size("n_heads", 8, HEADS)?;
    at.check("n_heads", heads, width.is_multiple_of(heads), "a divisor of d_model")?;
    let out = at.get::<i64>("feat_out")?.unwrap_or(-1);
    at.check("feat_out", out, out <= 0 || usize::try_from(out) == Ok(width), "-1, or d_model")?;
    let odd = |taps: usize| FACTOR.contains(&taps) && taps % 2 == 1;
    Ok(ConformerShape {
        bins,
        width,
        layers: at.size("n_layers", 17, LAYERS)?,
        heads,
        inner: width * at.size("ff_expansion_factor", 4, FACTOR)?,
        taps: at.value("conv_kernel_size", 9, odd, "an odd number of taps")?,
        channels: at.size("subsampling_conv_channels", 256, WIDTH)?,
        scales_rows: at.switch("xscaling", false)?,
        adapter,
    })
}
