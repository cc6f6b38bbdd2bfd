//! Spectrogram of a recording that a voice is made of: logarithms of mel-filtered magnitudes; after `mel_spectrogram` of
//! HiFi-GAN, which several references copy.

use super::rows::{HostRows, Padding};
use super::vocoder::stft::{Stft, hann};
use crate::audio::mel_filters::filters;

/// Added to the power of each frequency.
const POWER_FLOOR: f32 = 1e-9;
/// Least magnitude of a bin.
const FLOOR: f32 = 1e-5;

/// Sizes of the spectrogram. Half of what a frame exceeds its hop by is mirrored at both ends.
#[derive(Debug, Clone, PartialEq)]
pub struct MagnitudeMel {
    /// Sampling rate, in Hz.
    pub rate: u32,
    /// Number of mel bins.
    pub bins: usize,
    /// Upper edge of the highest bin, in Hz.
    pub highest_hz: f64,
    /// Samples in a frame; even.
    pub frame: usize,
    /// Samples from one frame to the next, at most a frame.
    pub hop: usize,
}

impl MagnitudeMel {
    const fn mirrored(&self) -> usize {
        (self.frame - self.hop) / 2
    }

    /// Number of frames in a recording of `samples` samples; 0 if it is too short.
    pub fn frames(&self, samples: usize) -> usize {
        let mirrored = self.mirrored();
        if samples <= mirrored {
            return 0;
        }
        (samples + 2 * mirrored).checked_sub(self.frame).map_or(0, |rest| rest / self.hop + 1)
    }

    /// Computes the frames of a recording, which must be long enough for one.
    pub fn spectrogram(&self, samples: &[f32]) -> HostRows {
        let ends = self.mirrored();
        let padded = HostRows { width: 1, data: samples.to_vec() }.padded(ends, ends, Padding::Reflect).data;
        let filters = filters(self.bins, self.highest_hz, self.frame / 2 + 1, self.rate);
        let mut data = Vec::with_capacity(self.frames(samples.len()) * self.bins);
        Stft::new(hann(self.frame), self.hop).forward(&padded, |spectrum| {
            let magnitudes: Vec<f32> = spectrum.iter().map(|bin| (bin.norm_sqr() + POWER_FLOOR).sqrt()).collect();
            data.extend(filters.iter().map(|filter| filter.apply(&magnitudes).max(FLOOR).ln()));
        });
        HostRows { width: self.bins, data }
    }
}
