//! Test signals, and what they are measured by.

use std::f64::consts::TAU;

/// `length` samples of a tone at -6 dBFS peak.
pub fn sine(frequency: f64, rate: u32, length: usize) -> Vec<f32> {
    (0..length).map(|i| (0.5 * (TAU * frequency * i as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// Root mean square in dB of full scale.
pub fn level_db(samples: &[f32]) -> f32 {
    let mean = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32;
    10.0 * mean.max(1e-12).log10()
}

/// The frequency of a tone, from the times of its first and last rising zero crossing.
pub fn dominant_frequency(samples: &[f32], rate: u32) -> f64 {
    let crossings: Vec<f64> = samples
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] < 0.0 && pair[1] >= 0.0)
        .map(|(i, pair)| i as f64 + f64::from(pair[0] / (pair[0] - pair[1])))
        .collect();
    match crossings[..] {
        [first, .., last] => (crossings.len() - 1) as f64 * f64::from(rate) / (last - first),
        _ => 0.0,
    }
}
