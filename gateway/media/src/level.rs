//! Level of samples, and the threshold of audible sound.

/// Mean square of a signal at -45 dBFS: quieter sound does not count as speech.
const AUDIBLE: f32 = 3.162e-5;
/// Mean square of a signal at -60 dBFS: quieter sound is silence, also before the onset of a soft consonant.
const SILENT: f32 = 1e-6;
/// Length of a level window in samples, at most 20 ms.
const WINDOW: usize = 160;

/// Root mean square of `samples`; non-finite samples count as silence.
pub(crate) fn rms(samples: &[f32]) -> f32 {
    let sum: f32 = samples.iter().filter(|sample| sample.is_finite()).map(|sample| sample * sample).sum();
    (sum / samples.len().max(1) as f32).sqrt()
}

/// True if any window of `samples` is above -45 dBFS.
pub fn is_audible(samples: &[f32]) -> bool {
    samples.chunks(WINDOW).any(is_loud)
}

/// Index after the last window of `samples` above -45 dBFS; `None` if all are quieter.
pub fn audible_end(samples: &[f32]) -> Option<usize> {
    let last = (0..samples.len()).step_by(WINDOW).rev();
    let mut ends = last.map(|begin| (begin, samples.len().min(begin + WINDOW)));
    ends.find(|(begin, end)| is_loud(&samples[*begin..*end])).map(|(_, end)| end)
}

/// Number of samples before the first window above -60 dBFS.
pub(crate) fn silent_start(samples: &[f32]) -> usize {
    let is_silent = |window: &&[f32]| !exceeds(window, SILENT);
    samples.chunks(WINDOW).take_while(is_silent).map(<[f32]>::len).sum()
}

fn is_loud(window: &[f32]) -> bool {
    exceeds(window, AUDIBLE)
}

fn exceeds(window: &[f32], mean_square: f32) -> bool {
    window.iter().map(|sample| sample * sample).sum::<f32>() > mean_square * window.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audible_part_ends_with_its_window() {
        let sound = [vec![0.0; 3 * WINDOW], vec![0.1; WINDOW / 2], vec![0.0; 5 * WINDOW]].concat();
        assert_eq!(audible_end(&sound), Some(4 * WINDOW));
        assert_eq!(audible_end(&[0.1; 3 * WINDOW + 7]), Some(3 * WINDOW + 7));
        assert_eq!((audible_end(&[0.005; 900]), audible_end(&[])), (None, None));
    }

    #[test]
    fn silence_ends_with_the_first_louder_window() {
        // -62 and -54 dBFS.
        let sound = [vec![0.0; WINDOW], vec![0.0008; WINDOW], vec![0.002; WINDOW], vec![0.0; WINDOW]].concat();
        assert_eq!(silent_start(&sound), 2 * WINDOW);
        assert_eq!((silent_start(&sound[..WINDOW + 7]), silent_start(&[])), (WINDOW + 7, 0));
    }
}
