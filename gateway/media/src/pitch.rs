//! Pitch of a voice: how well the sound repeats itself.

/// Samples of the window at 16 kHz, 64 ms.
pub(crate) const WINDOW: usize = 1_024;
/// Samples of the window at half the rate.
const HALF: usize = WINDOW / 2 - 2;
/// Periods of a voice at half the rate, in samples: 500 to 70 Hz.
const PERIODS: std::ops::RangeInclusive<usize> = 16..=114;
/// Sums that a processor adds at once.
const LANES: usize = 16;

/// Returns the highest correlation of the sound with itself a period of a voice later: 0 to 1, at most 0.2 for white noise, and above 0.6
/// in nearly every syllable. `sound` is the latest [`WINDOW`] samples at 16 kHz; other lengths have no pitch.
pub(crate) fn periodicity(sound: &[f32]) -> f32 {
    if sound.len() != WINDOW {
        return 0.0;
    }
    let mut half = [0.0; HALF];
    for (to, three) in half.iter_mut().zip(sound[1..].windows(3).step_by(2)) {
        *to = 0.25 * three[0] + 0.5 * three[1] + 0.25 * three[2];
    }
    // Powers of the first samples, so that those of both parts of each period are differences.
    let mut powers = [0.0; HALF + 1];
    let mut sum = 0.0_f64;
    for (to, sample) in powers[1..].iter_mut().zip(&half) {
        sum += f64::from(sample * sample);
        *to = sum;
    }
    let correlation = |period: usize| {
        let product = dot(&half[..HALF - period], &half[period..]);
        let power = (powers[HALF - period] * (sum - powers[period])).sqrt() as f32;
        // Silence has no pitch.
        product / (power + 1e-9)
    };
    PERIODS.map(correlation).fold(0.0, f32::max)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
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
