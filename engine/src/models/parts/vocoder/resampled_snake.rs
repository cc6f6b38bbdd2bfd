//! Snake activation at twice the rate between two low-pass filters, BigVGAN's anti-aliased activation; after
//! `Qwen2_5OmniAntiAliasedActivation1d` of transformers.

use std::f64::consts::PI;

use repartee_kernels::{FILTER_TAPS, Ops, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Rows on either side that a result depends on.
pub const REACH: usize = 5;

/// The activation with its learnt parameters.
pub struct ResampledSnake<O: Ops> {
    frequency: O::Weight,
    magnitude: O::Weight,
}

impl<O: Ops> ResampledSnake<O> {
    /// Loads `act.alpha` and `act.beta`.
    pub fn load(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        let (frequency, magnitude) = w.at("act").snake(channels)?;
        Ok(Self { frequency, magnitude })
    }

    /// Activates rows, each segment by itself.
    pub fn forward(&self, ops: &O, x: &O::T, filter: &O::Weight, segments: &O::Index) -> O::T {
        ops.segment_snake_at(x, &self.frequency, &self.magnitude, filter, segments)
    }
}

/// Creates the low-pass filter that all activations of a model share.
pub fn filter<O: Ops>(w: &Weights<'_, O>) -> Result<O::Weight, LoadError> {
    let taps: Vec<f32> = low_pass().iter().map(|tap| *tap as f32).collect();
    w.made("filter", WeightLayout::Vector, &taps, &[FILTER_TAPS])
}

/// Kaiser-windowed sinc that passes the lower half of the band at twice the rate; its taps sum to 1.
fn low_pass() -> [f64; FILTER_TAPS] {
    const CUTOFF: f64 = 0.25;
    const HALF_WIDTH: f64 = 0.3;
    let half = FILTER_TAPS / 2;
    // Kaiser's formulas: the attenuation of this width, and the window's beta for it.
    let attenuation = 2.285 * (half - 1) as f64 * PI * 4.0 * HALF_WIDTH + 7.95;
    let beta = if attenuation > 50.0 {
        0.1102 * (attenuation - 8.7)
    } else {
        0.5842 * (attenuation - 21.0).max(0.0).powf(0.4) + 0.07886 * (attenuation - 21.0).max(0.0)
    };
    let mut taps = [0.0; FILTER_TAPS];
    for (i, tap) in taps.iter_mut().enumerate() {
        let across = 2.0 * i as f64 / (FILTER_TAPS - 1) as f64 - 1.0;
        let window = bessel(beta * (1.0 - across * across).max(0.0).sqrt()) / bessel(beta);
        // An even filter has no tap at its centre.
        let time = PI * 2.0 * CUTOFF * (i as f64 + 0.5 - half as f64);
        *tap = 2.0 * CUTOFF * window * time.sin() / time;
    }
    let sum: f64 = taps.iter().sum();
    taps.map(|tap| tap / sum)
}

/// Modified Bessel function of the first kind, order 0, by its series.
fn bessel(x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..50 {
        term *= (x / (2.0 * f64::from(n))).powi(2);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_pass_is_even_and_keeps_a_constant() {
        let taps = low_pass();
        for i in 0..FILTER_TAPS {
            assert!((taps[i] - taps[FILTER_TAPS - 1 - i]).abs() < 1e-12);
        }
        // Upsampling uses every other tap for a result, so both halves must pass a constant.
        let even: f64 = taps.iter().step_by(2).sum();
        assert!((even - 0.5).abs() < 1e-12, "{even}");
        assert!(taps[5] > 0.4 && taps[0].abs() < 0.01, "{taps:?}");
    }
}
