//! The threshold of audible sound.

/// Mean square of a signal at -45 dBFS: what is quieter does not count as speech.
const AUDIBLE: f32 = 3.162e-5;
/// Length of a level window in samples, at most 20 ms.
const WINDOW: usize = 160;

/// Whether any window of `samples` is above -45 dBFS.
pub fn is_audible(samples: &[f32]) -> bool {
    samples
        .chunks(WINDOW)
        .any(|window| window.iter().map(|sample| sample * sample).sum::<f32>() > AUDIBLE * window.len() as f32)
}
