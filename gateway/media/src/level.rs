//! How loud samples are, and the threshold of audible sound.

/// Mean square of a signal at -45 dBFS: what is quieter does not count as speech.
const AUDIBLE: f32 = 3.162e-5;
/// Length of a level window in samples, at most 20 ms.
const WINDOW: usize = 160;

/// Root mean square of `samples`; what is not finite counts as silence.
pub(crate) fn rms(samples: &[f32]) -> f32 {
    let sum: f32 = samples.iter().filter(|sample| sample.is_finite()).map(|sample| sample * sample).sum();
    (sum / samples.len().max(1) as f32).sqrt()
}

/// Whether any window of `samples` is above -45 dBFS.
pub fn is_audible(samples: &[f32]) -> bool {
    samples
        .chunks(WINDOW)
        .any(|window| window.iter().map(|sample| sample * sample).sum::<f32>() > AUDIBLE * window.len() as f32)
}
