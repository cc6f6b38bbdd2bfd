//! Audibility: sound is audible if its root mean square over 10 ms is above -45 dBFS.

use crate::sample_rate::RATE;

/// The root mean square of -45 dBFS.
const AUDIBLE: f32 = 5.623e-3;
/// Samples of a level window: 10 ms.
pub const WINDOW: usize = RATE as usize / 100;

/// True if the level of `samples` is above -45 dBFS.
pub fn is_audible(samples: &[f32]) -> bool {
    let power = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32;
    power > AUDIBLE * AUDIBLE
}

/// Returns the index of the first sample of the first audible window.
pub fn first_audible(samples: &[f32]) -> Option<usize> {
    samples.chunks(WINDOW).position(is_audible).map(|window| window * WINDOW)
}

/// Returns the index after the last audible window.
pub fn audible_end(samples: &[f32]) -> Option<usize> {
    let last = samples.chunks(WINDOW).collect::<Vec<_>>().iter().rposition(|window| is_audible(window))?;
    Some(((last + 1) * WINDOW).min(samples.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audible_part_is_found() {
        let sound = [vec![0.005; 3 * WINDOW], vec![0.006; 2 * WINDOW], vec![0.0; 100]].concat();
        assert_eq!((first_audible(&sound), audible_end(&sound)), (Some(3 * WINDOW), Some(5 * WINDOW)));
        assert_eq!((first_audible(&[0.005; 500]), audible_end(&[])), (None, None));
    }
}
