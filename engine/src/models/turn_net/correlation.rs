//! Normalised autocorrelation of each frame, from which a pitch of 62 to 400 Hz can be read.
//!
//! The sound is compared at 4 kHz, each sample the mean of four. Around the middle of a frame lie 48 ms; their first
//! 32 ms are compared with those a lag later.

/// Samples at 16 kHz whose mean is one sample here.
const DOWN: usize = 4;
/// Samples from one frame to the next.
const HOP: usize = 40;
/// Lags, in samples.
const SHORTEST: usize = 10;
const LONGEST: usize = 64;
/// Number of lags.
pub const LAGS: usize = LONGEST - SHORTEST + 1;
/// Samples that are compared.
const BASE: usize = 128;
/// Samples of a frame.
const SPAN: usize = BASE + LONGEST;
/// Added to the energies: silence correlates with nothing.
const POWER_EPS: f32 = 1e-2;

/// Returns `[frames, LAGS]` of a sound at 16 kHz with unit variance.
pub fn correlation(sound: &[f32], frames: usize) -> Vec<f32> {
    // Silence before the first frame's middle and behind the last one.
    let mut low = vec![0.0; SPAN / 2];
    low.extend(sound.as_chunks::<DOWN>().0.iter().map(|part| part.iter().sum::<f32>() / DOWN as f32));
    low.resize(low.len().max((frames * HOP).saturating_sub(HOP)) + SPAN, 0.0);
    let mut all = Vec::with_capacity(frames * LAGS);
    for frame in 0..frames {
        let frame = &low[frame * HOP..][..SPAN];
        let base = &frame[..BASE];
        let energy = dot(base, base);
        // The energy of the later part moves along by a sample a lag, in double precision: differences of sums cancel.
        let mut later = frame[SHORTEST..SHORTEST + BASE].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        for lag in SHORTEST..=LONGEST {
            let product = dot(base, &frame[lag..lag + BASE]);
            all.push(product / ((energy + POWER_EPS) * (later.max(0.0) as f32 + POWER_EPS)).sqrt());
            if lag < LONGEST {
                later += f64::from(frame[lag + BASE]).powi(2) - f64::from(frame[lag]).powi(2);
            }
        }
    }
    all
}

/// Returns the dot product of two slices of [`BASE`] samples, in lanes that vectorise.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use std::f32::consts::TAU;

    use super::*;

    #[test]
    fn tone_correlates_at_its_period() {
        // 160 Hz: a period of 25 samples at 4 kHz.
        let sound: Vec<f32> = (0..16_000).map(|sample| (sample as f32 * 160.0 / 16_000.0 * TAU).sin() * 1.4).collect();
        let all = correlation(&sound, 100);
        assert_eq!(all.len(), 100 * LAGS);
        let frame = &all[50 * LAGS..51 * LAGS];
        let best = (0..LAGS).max_by(|a, b| frame[*a].total_cmp(&frame[*b])).unwrap() + SHORTEST;
        assert!(best == 25 || best == 50, "{best}");
        assert!(frame[25 - SHORTEST] > 0.99, "{frame:?}");
    }

    #[test]
    fn silence_correlates_with_nothing() {
        assert!(correlation(&[0.0; 16_000], 100).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn short_sound_has_all_frames() {
        assert_eq!(correlation(&[0.5; 7], 100).len(), 100 * LAGS);
    }
}
