//! Rate, block and bands of the canceller.

/// Sample rate of input, playback and output, in Hz.
pub const RATE: u32 = 16_000;
/// Samples of a block, 10 ms.
pub(crate) const BLOCK: usize = RATE as usize / 100;
/// Number of bands.
pub(super) const BANDS: usize = 20;
/// Powers of the bands.
pub(super) type Bands = [f32; BANDS];

/// Sample, or silence in place of what is no number.
pub(super) fn finite(sample: f32) -> f32 {
    if sample.is_finite() { sample.clamp(-2.0, 2.0) } else { 0.0 }
}
