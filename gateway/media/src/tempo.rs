//! Speed of speech without a change of pitch, by overlapping similar waves (WSOLA, Verhelst and Roelands 1993).
//!
//! The output is made of stretches of the input that are cross-faded. The place of a stretch follows from the speed; within
//! some milliseconds it is moved to where the wave continues the one before it best.

use std::f32::consts::PI;
use std::ops::RangeInclusive;

/// Speeds that are served.
pub const SPEEDS: RangeInclusive<f64> = 0.5..=2.0;
/// Samples of a cross-fade, and of the output between two of them, as a part of a second: 12.5 ms.
const STRIDE: u32 = 80;
/// Samples that a stretch may be moved by, each way, as a part of a second: 10 ms, a period of the lowest voices.
const REACH: u32 = 100;
/// Step of the first search, in samples.
const COARSE: usize = 4;

/// Changes the speed of a stream of samples. The output depends on the input alone, not on how it is split.
#[derive(Debug)]
pub struct Tempo {
    speed: f64,
    stride: usize,
    reach: usize,
    /// Weights of the wave that begins in a cross-fade.
    fade: Vec<f32>,
    /// Input from sample `from` on.
    input: Vec<f32>,
    from: usize,
    /// Samples of the whole input so far.
    taken: usize,
    /// Stretches so far, and the place in the input that continues the last one.
    stretches: usize,
    next: usize,
}

impl Tempo {
    /// Creates a stretcher of samples at `rate` Hz; the speed is brought into [`SPEEDS`].
    pub fn new(rate: u32, speed: f64) -> Self {
        let [stride, reach] = [STRIDE, REACH].map(|part| (rate / part).max(2) as usize);
        let fade = (0..stride).map(|at| 0.5 - 0.5 * (PI * (at as f32 + 0.5) / stride as f32).cos());
        let speed = if speed.is_finite() { speed.clamp(*SPEEDS.start(), *SPEEDS.end()) } else { 1.0 };
        Self { speed, stride, reach, fade: fade.collect(), input: Vec::new(), from: 0, taken: 0, stretches: 0, next: 0 }
    }

    /// Takes samples; returns those that are certain now.
    pub fn push(&mut self, samples: Vec<f32>) -> Vec<f32> {
        if self.speed == 1.0 {
            return samples;
        }
        self.taken += samples.len();
        self.input.extend(samples);
        let mut output = Vec::new();
        while self.needed() <= self.taken {
            self.stretch(&mut output);
        }
        self.drop_used();
        output
    }

    /// Returns the rest, after which no samples follow: all output together is as long as the input divided by the speed.
    pub fn finish(&mut self) -> Vec<f32> {
        let whole = (self.taken as f64 / self.speed).round() as usize;
        let left = whole.saturating_sub(self.stretches * self.stride);
        let mut output = Vec::new();
        while self.speed != 1.0 && output.len() < left {
            // Silence stands behind the input.
            let silent = self.needed().saturating_sub(self.from + self.input.len());
            self.input.extend(std::iter::repeat_n(0.0, silent));
            self.stretch(&mut output);
        }
        output.truncate(left);
        output
    }

    /// Place in the input that the next stretch stands for.
    fn place(&self) -> usize {
        (self.stretches as f64 * self.stride as f64 * self.speed).round() as usize
    }

    /// Samples of input before the next stretch is certain.
    fn needed(&self) -> usize {
        (self.place() + self.reach).max(self.next) + 2 * self.stride
    }

    /// Appends the next stretch to the output.
    fn stretch(&mut self, output: &mut Vec<f32>) {
        let begin = if self.stretches == 0 { 0 } else { self.best() };
        let (new, old) = (begin - self.from, self.next - self.from);
        let waves = self.input[new..].iter().zip(&self.input[old..]).zip(&self.fade);
        if self.stretches == 0 {
            output.extend_from_slice(&self.input[..self.stride]);
        } else {
            output.extend(waves.map(|((new, old), fade)| old + (new - old) * fade));
        }
        self.next = begin + self.stride;
        self.stretches += 1;
    }

    /// Begin of the wave near the next place that is most like the continuation of the last stretch.
    fn best(&self) -> usize {
        let place = self.place();
        let (least, most) = (place.saturating_sub(self.reach).max(self.from), place + self.reach);
        let better = |(best, most_alike): (usize, f32), at: usize, step: usize| {
            let other = self.correlation(at, step);
            if other > most_alike { (at, other) } else { (best, most_alike) }
        };
        let coarse = (least..=most).step_by(COARSE).fold((place, f32::NEG_INFINITY), |best, at| better(best, at, 2));
        let near = coarse.0.saturating_sub(COARSE - 1).max(least)..=(coarse.0 + COARSE - 1).min(most);
        near.fold((coarse.0, f32::NEG_INFINITY), |best, at| better(best, at, 1)).0
    }

    /// Correlation of the wave at `at` with the continuation, of every `step`th sample.
    fn correlation(&self, at: usize, step: usize) -> f32 {
        let wave = self.input[at - self.from..][..self.stride].iter().step_by(step);
        let next = self.input[self.next - self.from..][..self.stride].iter().step_by(step);
        let (mut product, mut energy) = (0.0, 1e-9);
        for (wave, next) in wave.zip(next) {
            product += wave * next;
            energy += wave * wave;
        }
        product / energy.sqrt()
    }

    /// Drops input that no further stretch needs.
    fn drop_used(&mut self) {
        let kept = self.place().saturating_sub(self.reach).min(self.next);
        let old = kept.saturating_sub(self.from).min(self.input.len());
        // Each sample is moved once on average.
        if 2 * old >= self.input.len() {
            self.input.drain(..old);
            self.from += old;
        }
    }
}

/// Duration of the input that was heard once `played` of the output was played at a speed; both in the same unit.
pub fn heard(speed: f64, played: u64) -> u64 {
    (played as f64 * speed).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use repartee_testkit::signal::{dominant_frequency, level_db, sine};

    use super::*;

    const RATE: u32 = 24_000;

    fn paced(input: &[f32], speed: f64, cuts: &[usize]) -> Vec<f32> {
        let (mut tempo, mut rest, mut output) = (Tempo::new(RATE, speed), input, Vec::new());
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            output.extend(tempo.push(piece.to_vec()));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        output.extend(tempo.finish());
        output
    }

    #[test]
    fn duration_changes_and_pitch_stays() {
        for speed in [0.5, 0.8, 1.25, 1.7, 2.0] {
            for tone in [110.0, 220.0, 441.0] {
                let input = sine(tone, RATE, 48_000);
                let output = paced(&input, speed, &[1_920]);
                assert_eq!(output.len(), (48_000.0 / speed).round() as usize);
                let middle = &output[output.len() / 4..output.len() * 3 / 4];
                let (found, off) = (dominant_frequency(middle, RATE), level_db(middle) - level_db(&input));
                assert!((found - tone).abs() < 4.0 && off.abs() < 0.5, "{speed} {tone}: {found} Hz, {off} dB");
            }
        }
    }

    #[test]
    fn speed_one_changes_nothing() {
        let input = sine(300.0, RATE, 5_000);
        assert!(paced(&input, 1.0, &[700]) == input);
        assert!(paced(&[], 1.5, &[1]).is_empty());
    }

    #[test]
    fn sound_keeps_its_place() {
        // A tenth of a second of a tone in each half second.
        let tone = sine(250.0, RATE, 96_000);
        let input: Vec<f32> =
            tone.iter().zip(0..).map(|(tone, at)| if at % 12_000 < 2_400 { *tone } else { 0.0 }).collect();
        for speed in [0.5, 1.5, 2.0] {
            let output = paced(&input, speed, &[960]);
            let level = |at: f64| level_db(&output[(at / speed) as usize - 150..][..300]);
            for begin in (1..7).map(|number| f64::from(number) * 12_000.0) {
                let levels = [1_200.0, 4_000.0, 11_000.0].map(|behind| level(begin + behind));
                assert!(levels[0] > -12.0 && levels[1] < -60.0 && levels[2] < -60.0, "{speed}: {levels:?}");
            }
            assert_eq!(heard(speed, 1_000), (1_000.0 * speed) as u64);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut tempo = Tempo::new(RATE, 0.5);
        for _ in 0..500 {
            tempo.push(vec![0.1; 1_920]);
            assert!(tempo.input.len() < RATE as usize, "{} samples are kept", tempo.input.len());
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_output(
            speed in 0.5..2.0, seconds in 1..12_000_usize, cuts in prop::collection::vec(1..3_000_usize, 1..6),
        ) {
            let input: Vec<f32> = sine(170.0, RATE, seconds).iter().zip(sine(523.0, RATE, seconds)).map(|(a, b)| a * b).collect();
            prop_assert!(paced(&input, speed, &cuts) == paced(&input, speed, &[usize::MAX]));
        }
    }
}
