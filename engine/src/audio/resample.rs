//! Resampling of a recording by a windowed sinc, as `torchaudio.functional.resample` does by default.

use std::f64::consts::PI;

/// Zero crossings of the sinc on each side.
const CROSSINGS: f64 = 6.0;
/// Cut-off frequency, as a share of half the lower rate.
const ROLLOFF: f64 = 0.99;

/// Resamples mono samples from one rate to another, both in Hz and above zero.
pub fn resample(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    if from == to {
        return samples.to_vec();
    }
    let (input, output) = (u64::from(from), u64::from(to));
    let length = (samples.len() as u64 * output).div_ceil(input);
    let cutoff = f64::from(from.min(to)) * ROLLOFF;
    let scale = cutoff / f64::from(from);
    // Input samples on each side that the sinc reaches.
    let reach = (CROSSINGS / scale).ceil() as u64;
    let sample = |at: u64| {
        let centre = at * input / output;
        let end = (centre + reach + 2).min(samples.len() as u64);
        let sum: f64 = (centre.saturating_sub(reach)..end)
            .map(|tap| {
                // The difference of both times is exact up to here.
                let ahead = (tap * output) as f64 - (at * input) as f64;
                let crossings = ahead / (f64::from(from) * f64::from(to)) * cutoff;
                if crossings.abs() >= CROSSINGS {
                    return 0.0;
                }
                let window = (crossings * PI / (2.0 * CROSSINGS)).cos().powi(2);
                let sinc = if crossings == 0.0 { 1.0 } else { (crossings * PI).sin() / (crossings * PI) };
                f64::from(samples[tap as usize]) * sinc * window * scale
            })
            .sum();
        sum as f32
    };
    (0..length).map(sample).collect()
}
