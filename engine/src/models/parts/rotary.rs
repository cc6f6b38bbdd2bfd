//! Inverse frequencies of rotary positions, scaled for contexts that are longer than those of the first training.
//!
//! After `modeling_rope_utils.py` of transformers 5.23, in single precision where that is.

use std::f64::consts::TAU;

use repartee_kernels::shapes::rotary_frequencies;

/// Scaling of rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum RotaryScaling {
    /// Frequencies of the base alone.
    #[default]
    None,
    /// Every frequency is divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Long wavelengths are multiplied by a factor, short ones stay, and those between are blended.
    Llama3 {
        /// Factor of long wavelengths.
        factor: f32,
        /// Shortest long wavelength, as a share of the original context: it is the context divided by this.
        low: f32,
        /// Longest short wavelength, likewise.
        high: f32,
        /// Positions of the first training.
        original: f32,
    },
    /// YaRN: frequencies that turn often within the original context stay, rare ones are divided, and those between
    /// are blended.
    Yarn {
        /// Divisor of rare frequencies.
        factor: f32,
        /// Positions of the first training.
        original: f32,
        /// Turns from which on a frequency stays.
        fast: f32,
        /// Turns up to which a frequency is divided.
        slow: f32,
        /// Factor of rotated queries and keys.
        attention: f32,
        /// True if the bounds of the blend are whole numbers.
        truncate: bool,
    },
    /// Each frequency is divided by its entry of a tensor of the checkpoint.
    Stored,
}

impl RotaryScaling {
    /// Inverse frequencies of heads of this width; `stored` are the entries of [`RotaryScaling::Stored`].
    pub fn frequencies(self, head_dim: usize, theta: f32, stored: &[f32]) -> Vec<f32> {
        let mut all = rotary_frequencies(head_dim, theta);
        match self {
            Self::None => {}
            Self::Linear { factor } => all.iter_mut().for_each(|frequency| *frequency /= factor),
            Self::Llama3 { factor, low, high, original } => {
                for frequency in &mut all {
                    let wavelength = TAU as f32 / *frequency;
                    if wavelength > original / low {
                        *frequency /= factor;
                    } else if wavelength >= original / high {
                        let smooth = (original / wavelength - low) / (high - low);
                        *frequency = (1.0 - smooth) * *frequency / factor + smooth * *frequency;
                    }
                }
            }
            Self::Yarn { factor, original, fast, slow, truncate, .. } => {
                let last = head_dim as f64 - 1.0;
                let bound = |turns: f32| {
                    let turns = (f64::from(original) / (f64::from(turns) * TAU)).ln();
                    head_dim as f64 * turns / (2.0 * f64::from(theta).ln())
                };
                let (mut low, mut high) = (bound(fast), bound(slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(last));
                if low == high {
                    high += 0.001;
                }
                for (i, frequency) in all.iter_mut().enumerate() {
                    let divided = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
                    *frequency = *frequency / factor * divided + *frequency * (1.0 - divided);
                }
            }
            Self::Stored => all.iter_mut().zip(stored).for_each(|(frequency, factor)| *frequency /= factor),
        }
        all
    }

    /// Factor of the scores of attention: that of rotated queries times that of rotated keys.
    pub fn score_factor(self) -> f32 {
        if let Self::Yarn { attention, .. } = self { attention * attention } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_wavelengths_stay_and_long_ones_grow() {
        let plain = RotaryScaling::None.frequencies(64, 5e5, &[]);
        let llama = RotaryScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        let yarn = RotaryScaling::Yarn {
            factor: 8.0,
            original: 8192.0,
            fast: 32.0,
            slow: 1.0,
            attention: 1.2,
            truncate: true,
        };
        for scaling in [llama, yarn] {
            let scaled = scaling.frequencies(64, 5e5, &[]);
            assert_eq!((scaled[0], scaled[31]), (plain[0], plain[31] / 8.0), "{scaling:?}");
            let between = scaled.iter().zip(&plain).filter(|(scaled, plain)| {
                let ratio = **plain / **scaled;
                ratio > 1.001 && ratio < 7.999
            });
            assert!(between.count() > 2, "{scaling:?} blends");
        }
        let halved = RotaryScaling::Stored.frequencies(8, 1e4, &[1.0, 2.0, 4.0, 8.0]);
        let ratios: Vec<f32> =
            RotaryScaling::None.frequencies(8, 1e4, &[]).iter().zip(&halved).map(|(a, b)| a / b).collect();
        assert_eq!(ratios, [1.0, 2.0, 4.0, 8.0]);
    }
}
