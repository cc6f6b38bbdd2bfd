//! Pitch of a voice: how well the sound repeats itself.

/// Samples of the window at 16 kHz, 64 ms.
pub(crate) const WINDOW: usize = 1_024;
/// Samples of the window at half the rate.
const HALF: usize = WINDOW / 2 - 2;
/// Periods of a voice at half the rate, in samples: 500 to 70 Hz.
const PERIODS: std::ops::RangeInclusive<usize> = 16..=114;
/// Sums that a processor adds at once.
const LANES: usize = 8;

/// Returns the highest correlation of the sound with itself a period of a voice later: 0 to 1, at most 0.2 for white noise, and above 0.6
/// in nearly every syllable. `sound` is the latest [`WINDOW`] samples at 16 kHz; other lengths have no pitch.
pub(crate) fn periodicity(sound: &[f32]) -> f32 {
    if sound.len() != WINDOW {
        return 0.0;
    }
    let mut half = [0.0; HALF];
    for (to, at) in half.iter_mut().zip((2..).step_by(2)) {
        *to = 0.25 * sound[at - 1] + 0.5 * sound[at] + 0.25 * sound[at + 1];
    }
    PERIODS.map(|period| correlation(&half[..HALF - period], &half[period..])).fold(0.0, f32::max)
}

fn correlation(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [[0.0; LANES]; 3];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[0][lane] += a[lane] * b[lane];
            sums[1][lane] += a[lane] * a[lane];
            sums[2][lane] += b[lane] * b[lane];
        }
    }
    let [ab, aa, bb] = sums.map(|lanes| lanes.iter().sum::<f32>());
    // Silence has no pitch.
    ab / ((aa * bb).sqrt() + 1e-9)
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;
    use repartee_testkit::signal::sine;

    use super::*;
    use crate::testdata::speech;

    #[test]
    fn syllables_have_a_pitch_and_noise_has_none() {
        let mut random = Random::new(5);
        let noise: Vec<f32> = (0..WINDOW).map(|_| random.unit() as f32 - 0.5).collect();
        assert!(periodicity(&noise) < 0.25, "{}", periodicity(&noise));
        assert_eq!(periodicity(&[0.0; WINDOW]), 0.0);
        assert_eq!(periodicity(&[0.5; 100]), 0.0);
        assert!(periodicity(&sine(140.0, 16_000, WINDOW)) > 0.95);
        let voice = speech("question");
        let windows: Vec<f32> = voice.windows(WINDOW).step_by(256).map(periodicity).collect();
        let pitched = windows.iter().filter(|value| **value > 0.6).count();
        assert!(pitched * 3 > windows.len(), "{pitched} of {}", windows.len());
    }
}
