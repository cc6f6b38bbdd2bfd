//! Tonality: the share of a sound's power that the frequencies and amplitudes of the frames before do not predict.

use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{RealFftPlanner, RealToComplex};

/// Power below which nothing is predicted, -90 dBFS in one bin.
const SILENCE: f32 = 1e-9;

/// Bins beside a peak that belong to it, by the shape of the window.
const BESIDE: usize = 2;

/// The two strongest peaks of a spectrum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TwoPeaks {
    /// Share of the power that both have, 0 to 1.
    pub share: f32,
    /// Their frequencies as shares of the sampling rate, the lower one first.
    pub frequencies: [f32; 2],
}

/// Comparison of three successive spectra.
pub(crate) struct Tonality {
    window: Vec<f32>,
    fft: Arc<dyn RealToComplex<f32>>,
    input: Vec<f32>,
    scratch: Vec<Complex32>,
    /// Spectra of now, and of one and two frames before.
    spectra: [Vec<Complex32>; 3],
    /// Powers of the spectrum of now.
    powers: Vec<f32>,
}

impl std::fmt::Debug for Tonality {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tonality").field("window", &self.window.len()).finish_non_exhaustive()
    }
}

impl Tonality {
    /// Compares windows of `length` samples.
    pub fn new(length: usize) -> Self {
        let fft = RealFftPlanner::new().plan_fft_forward(length);
        let hann = |i: usize| 0.5 - 0.5 * (std::f32::consts::TAU * (i as f32 + 0.5) / length as f32).cos();
        let spectrum = fft.make_output_vec();
        Self {
            window: (0..length).map(hann).collect(),
            input: fft.make_input_vec(),
            scratch: fft.make_scratch_vec(),
            powers: vec![0.0; spectrum.len()],
            spectra: [spectrum.clone(), spectrum.clone(), spectrum],
            fft,
        }
    }

    /// Returns the unpredicted share of the power, 0 for lasting tones to 1, of the last window of `recent`. The calls before had windows
    /// that ended one and two frames earlier.
    pub fn unpredicted(&mut self, recent: &[f32]) -> f32 {
        let from = recent.len().saturating_sub(self.window.len());
        for ((to, sample), weight) in self.input.iter_mut().zip(&recent[from..]).zip(&self.window) {
            *to = sample * weight;
        }
        self.spectra.rotate_right(1);
        let [now, before, earlier] = &mut self.spectra;
        if self.fft.process_with_scratch(&mut self.input, now, &mut self.scratch).is_err() {
            // Only buffers of a wrong length fail.
            return 1.0;
        }
        let (mut error, mut power) = (SILENCE, SILENCE);
        for (((now, before), earlier), now_power) in now.iter().zip(&*before).zip(&*earlier).zip(&mut self.powers) {
            // A tone turns by the same angle from frame to frame.
            let turned = before * before * earlier.conj();
            // As long as the one before: without `norm`, whose care for extreme numbers takes ten times as long.
            let lengths = before.norm_sqr() * earlier.norm_sqr();
            let predicted = if lengths > 0.0 { turned * lengths.sqrt().recip() } else { Complex32::ZERO };
            error += (now - predicted).norm_sqr();
            *now_power = now.norm_sqr();
            power += *now_power + predicted.norm_sqr();
        }
        error / power
    }

    /// Takes the frame for silence, without its spectrum.
    pub fn skip(&mut self) {
        self.spectra.rotate_right(1);
        self.spectra[0].fill(Complex32::ZERO);
        self.powers.fill(0.0);
    }

    /// Returns the two strongest peaks of the last window.
    pub fn two_peaks(&self) -> TwoPeaks {
        let first = strongest(self.powers.get(1..).unwrap_or_default()).map_or(0, |at| at + 1);
        let (below, above) = (first.saturating_sub(BESIDE), first + BESIDE + 1);
        let in_lower = strongest(self.powers.get(1..below).unwrap_or_default()).map(|at| at + 1);
        let in_upper = strongest(self.powers.get(above..).unwrap_or_default()).map(|at| at + above);
        let power = |at: usize| self.powers.get(at).copied().unwrap_or_default();
        let second =
            in_lower.into_iter().chain(in_upper).reduce(|low, high| if power(high) >= power(low) { high } else { low });
        let second = second.unwrap_or_default();
        let peak = |at: usize| (at.saturating_sub(BESIDE)..=at + BESIDE).map(power).sum::<f32>();
        let all = self.powers.iter().sum::<f32>() + SILENCE;
        let frequency = |at: usize| at as f32 / self.window.len() as f32;
        TwoPeaks {
            share: ((peak(first) + peak(second)) / all).min(1.0),
            frequencies: [frequency(first.min(second)), frequency(first.max(second))],
        }
    }
}

/// Returns the place of the greatest power, the last one of equal ones.
fn strongest(powers: &[f32]) -> Option<usize> {
    let (mut place, mut greatest) = (None, 0.0);
    for (at, power) in powers.iter().enumerate() {
        if *power >= greatest {
            (place, greatest) = (Some(at), *power);
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;
    use repartee_testkit::signal::{chirp, sine};

    use super::*;

    /// Unpredicted share at the end of `sound`, in frames of 256 samples.
    fn at_end(sound: &[f32]) -> f32 {
        let mut tonality = Tonality::new(512);
        (512..=sound.len()).step_by(256).map(|end| tonality.unpredicted(&sound[..end])).last().unwrap()
    }

    #[test]
    fn tones_are_predicted_and_noise_is_not() {
        let mut random = Random::new(3);
        let noise: Vec<f32> = (0..8_192).map(|_| random.unit() as f32 - 0.5).collect();
        assert!(at_end(&sine(437.0, 16_000, 8_192)) < 0.001);
        assert!(at_end(&noise) > 0.3);
        assert!(at_end(&[0.0; 8_192]) > 0.9, "silence is no tone");
    }

    #[test]
    fn keys_are_two_peaks() {
        let key: Vec<f32> =
            sine(770.0, 16_000, 1_024).iter().zip(sine(1_336.0, 16_000, 1_024)).map(|(a, b)| a + b).collect();
        let mut tonality = Tonality::new(1_024);
        tonality.unpredicted(&key);
        let TwoPeaks { share, frequencies } = tonality.two_peaks();
        assert!(share > 0.99, "{share}");
        for (found, sent) in frequencies.map(|frequency| frequency * 16_000.0).into_iter().zip([770.0, 1_336.0]) {
            assert!((found - sent).abs() < 10.0, "{found} Hz");
        }
    }

    #[test]
    fn rising_tone_is_not_predicted() {
        // As a voice's third harmonic rises within a syllable.
        assert!(at_end(&chirp(450.0, 900.0, 16_000, 8_192)) > 0.1);
    }
}
