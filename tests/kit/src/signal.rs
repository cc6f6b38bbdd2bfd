//! Test signals and measurements of signals.

use std::f64::consts::TAU;

/// Returns `length` samples of a tone at -6 dBFS peak.
pub fn sine(frequency: f64, rate: u32, length: usize) -> Vec<f32> {
    (0..length).map(|i| (0.5 * (TAU * frequency * i as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// Returns `length` samples of a tone at -6 dBFS peak that rises from `from` to `to` Hz. Every moment has another
/// pitch, so gaps, repetitions and swaps are detectable.
pub fn chirp(from: f64, to: f64, rate: u32, length: usize) -> Vec<f32> {
    let (rate, duration) = (f64::from(rate), length as f64 / f64::from(rate));
    let phase = |t: f64| TAU * (from * t + (to - from) * t * t / (2.0 * duration));
    (0..length).map(|i| (0.5 * phase(i as f64 / rate).sin()) as f32).collect()
}

/// Returns `length` samples that count from 1 in 24-bit steps: each is exact in `f32` and encodes its index.
pub fn counted(length: usize) -> Vec<f32> {
    (1..=length).map(|i| i as f32 / (1 << 24) as f32).collect()
}

/// Returns the root mean square in dBFS.
pub fn level_db(samples: &[f32]) -> f32 {
    let mean = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32;
    10.0 * mean.max(1e-12).log10()
}

/// Returns the frequency of a tone in Hz, from its first and last rising zero crossing; 0 without two crossings.
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

/// Returns the [dominant frequency](dominant_frequency) of each whole window of `window` samples.
pub fn frequencies(samples: &[f32], rate: u32, window: usize) -> Vec<f64> {
    samples.chunks_exact(window).map(|window| dominant_frequency(window, rate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chirp_rises_evenly() {
        let found = frequencies(&chirp(300.0, 3_300.0, 24_000, 24_000), 24_000, 480);
        assert_eq!(found.len(), 50);
        for (index, found) in found.iter().enumerate() {
            let expected = 300.0 + 60.0 * (index as f64 + 0.5);
            assert!((found - expected).abs() < 15.0, "{found} Hz instead of {expected} in window {index}");
        }
    }

    #[test]
    fn counted_samples_are_distinct() {
        let samples = counted(100_000);
        assert!(samples.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(samples[99_999], 100_000.0 / 16_777_216.0);
    }
}
