//! Spectrogram for the speaker encoder: logarithms of mel-filtered magnitudes; after `mel_spectrogram`.

use crate::audio::mel_filters::filters;
use crate::models::parts::rows::{HostRows, Padding};
use crate::models::parts::vocoder::stft::{Stft, hann};

/// Sample rate in Hz; hard-coded in the reference, as are the other sizes.
pub const RATE: u32 = 24_000;
/// Number of mel bins.
pub const BINS: usize = 128;
/// Upper edge of the highest bin.
const HIGHEST_HZ: f64 = 12_000.0;
/// Samples in a frame.
const FRAME: usize = 1024;
/// Samples from one frame to the next.
const HOP: usize = 256;
/// Samples mirrored at both ends.
const MIRRORED: usize = (FRAME - HOP) / 2;
/// Added to the power of each frequency.
const POWER_FLOOR: f32 = 1e-9;
/// Least magnitude of a bin.
const FLOOR: f32 = 1e-5;

/// Number of frames in a recording of `samples` samples; 0 if it is too short.
pub fn frames(samples: usize) -> usize {
    if samples <= MIRRORED { 0 } else { (samples + 2 * MIRRORED).saturating_sub(FRAME) / HOP + 1 }
}

/// Computes the frames of a recording, which must be long enough for one.
pub fn spectrogram(samples: &[f32]) -> HostRows {
    let padded = HostRows { width: 1, data: samples.to_vec() }.padded(MIRRORED, MIRRORED, Padding::Reflect).data;
    let filters = filters(BINS, HIGHEST_HZ, FRAME / 2 + 1, RATE);
    let mut data = Vec::with_capacity(frames(samples.len()) * BINS);
    Stft::new(hann(FRAME), HOP).forward(&padded, |spectrum| {
        let magnitudes: Vec<f32> = spectrum.iter().map(|bin| (bin.norm_sqr() + POWER_FLOOR).sqrt()).collect();
        data.extend(filters.iter().map(|filter| filter.apply(&magnitudes).max(FLOOR).ln()));
    });
    HostRows { width: BINS, data }
}
