//! How loud sound is.

/// Mean square of sound at -45 dBFS: what is quieter does not count as an answer.
const AUDIBLE: f32 = 3.162e-5;
/// Sound is judged in stretches of this many samples, at most 20 ms.
const STRETCH: usize = 160;

/// Whether any stretch of `samples` is above -45 dBFS.
pub fn is_audible(samples: &[f32]) -> bool {
    samples
        .chunks(STRETCH)
        .any(|stretch| stretch.iter().map(|sample| sample * sample).sum::<f32>() > AUDIBLE * stretch.len() as f32)
}
