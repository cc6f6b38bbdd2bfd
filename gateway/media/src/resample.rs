//! Streaming sample-rate conversion of a mono signal, in pieces of any size.
//!
//! The filter is a windowed sinc for any ratio, so the delay is the same few milliseconds for every pair of rates. It works
//! on blocks of fixed size, so any split of the input gives the same samples. Where output samples lie at few different
//! positions between input samples, as from 24 to 16 kHz at two, there is a filter for each, and nothing is interpolated.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Async, FixedAsync, Resampler as _, SincInterpolationParameters, SincInterpolationType, WindowFunction};
use thiserror::Error;

/// Supported sample rates, in Hz.
pub const RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;
/// Number of filter taps: half of them is the delay, 2.7 ms at 24 kHz.
const TAPS: usize = 128;
/// Largest number of positions with a filter each: as many as 44.1 kHz has to 16 or 48. A pair of rates with more interpolates.
const MAX_POSITIONS: u32 = 160;
/// Least number of filters for the time between two samples. The signal is shifted by one of these parts: 8 µs at 8 kHz.
const MIN_FILTERS: u32 = 16;
/// Length of an input block, in ms.
const BLOCK_MS: usize = 5;

/// Error of sample-rate conversion.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResampleError {
    /// Sample rate outside of [`RATES`].
    #[error("sample rates are 8000 to 48000 Hz, got {0}")]
    UnsupportedRate(u32),
    /// Failure of the library: a bug in this crate.
    #[error("resampler: {0}")]
    Library(String),
}

/// Streaming converter of one signal. The output is aligned with the input: the filter's delay is removed at the start, and
/// [`Resampler::flush`] returns the delayed rest.
pub struct Resampler {
    /// Filter; `None` if both rates are equal.
    filter: Option<Filter>,
}

struct Filter {
    inner: Async<f32>,
    /// Output rate divided by input rate.
    ratio: f64,
    /// Input samples per block.
    block: usize,
    /// Input of an incomplete block.
    pending: Vec<f32>,
    /// Output of the last push.
    output: Vec<f32>,
    /// Buffer for the output of a block.
    scratch: Vec<f32>,
    /// Output samples of the filter's delay that remain to be dropped.
    delay: usize,
    /// Input samples since the last flush.
    input_count: u64,
    /// Output samples since the last flush.
    output_count: u64,
}

impl std::fmt::Debug for Resampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resampler").field("ratio", &self.filter.as_ref().map_or(1.0, |filter| filter.ratio)).finish()
    }
}

impl Resampler {
    /// Creates a converter from `from` to `to` Hz.
    pub fn new(from: u32, to: u32) -> Result<Self, ResampleError> {
        if let Some(&bad) = [from, to].iter().find(|rate| !RATES.contains(rate)) {
            return Err(ResampleError::UnsupportedRate(bad));
        }
        if from == to {
            return Ok(Self { filter: None });
        }
        let ratio = f64::from(to) / f64::from(from);
        let block = from as usize * BLOCK_MS / 1_000;
        let parameters = parameters(from, to);
        let inner = Async::new_sinc(ratio, 1.0, &parameters, block, 1, FixedAsync::Input)
            .map_err(|error| ResampleError::Library(error.to_string()))?;
        let (delay, scratch) = (inner.output_delay(), vec![0.0; inner.output_frames_max()]);
        let (pending, output) = (Vec::new(), Vec::new());
        let filter = Filter { inner, ratio, block, pending, output, scratch, delay, input_count: 0, output_count: 0 };
        Ok(Self { filter: Some(filter) })
    }

    /// Converts any number of samples; returns the completed output.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<f32>, ResampleError> {
        self.convert(samples).map(<[f32]>::to_vec)
    }

    /// Like [`Self::push`], but without an allocation: the result borrows from `samples` or from the converter.
    pub fn convert<'a>(&'a mut self, samples: &'a [f32]) -> Result<&'a [f32], ResampleError> {
        match &mut self.filter {
            None => Ok(samples),
            Some(filter) => filter.push(samples),
        }
    }

    /// True if both rates are equal.
    pub fn is_identity(&self) -> bool {
        self.filter.is_none()
    }

    /// Begins a new signal: what is left of the last one is dropped.
    pub fn reset(&mut self) {
        if let Some(filter) = &mut self.filter {
            filter.reset();
        }
    }

    /// Ends the signal: returns the remaining output, and resets. In total, `n` samples become `n * to / from`, rounded.
    pub fn flush(&mut self) -> Result<Vec<f32>, ResampleError> {
        match &mut self.filter {
            None => Ok(Vec::new()),
            Some(filter) => filter.flush(),
        }
    }
}

/// Filters from `from` to `to` Hz: those of the positions that occur, if they are few.
fn parameters(from: u32, to: u32) -> SincInterpolationParameters {
    let parameters = SincInterpolationParameters::new(TAPS, WindowFunction::BlackmanHarris2);
    let positions = to / greatest_common_divisor(from, to);
    if positions > MAX_POSITIONS {
        return parameters;
    }
    let filters = MIN_FILTERS.next_multiple_of(positions);
    parameters.oversampling_factor(filters as usize).interpolation(SincInterpolationType::Nearest)
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

impl Filter {
    fn push(&mut self, samples: &[f32]) -> Result<&[f32], ResampleError> {
        self.input_count += samples.len() as u64;
        // Reuses both allocations.
        let (mut pending, mut output) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.output));
        pending.extend_from_slice(samples);
        output.clear();
        let blocks = pending.chunks_exact(self.block);
        let whole = pending.len() - blocks.remainder().len();
        for block in blocks {
            self.convert(block, &mut output)?;
        }
        pending.drain(..whole);
        self.output_count += output.len() as u64;
        (self.pending, self.output) = (pending, output);
        Ok(&self.output)
    }

    fn flush(&mut self) -> Result<Vec<f32>, ResampleError> {
        let missing =
            ((self.input_count as f64 * self.ratio).round() as u64).saturating_sub(self.output_count) as usize;
        let mut output = Vec::with_capacity(missing + self.scratch.len());
        while output.len() < missing {
            let mut block = std::mem::take(&mut self.pending);
            block.resize(self.block, 0.0);
            self.convert(&block, &mut output)?;
        }
        output.truncate(missing);
        self.reset();
        Ok(output)
    }

    fn reset(&mut self) {
        self.inner.reset();
        self.pending.clear();
        (self.delay, self.input_count, self.output_count) = (self.inner.output_delay(), 0, 0);
    }

    /// Converts one block and appends its output.
    fn convert(&mut self, block: &[f32], output: &mut Vec<f32>) -> Result<(), ResampleError> {
        let library = |message: &dyn std::fmt::Display| ResampleError::Library(message.to_string());
        let room = self.scratch.len();
        let input = InterleavedSlice::new(block, 1, block.len()).map_err(|error| library(&error))?;
        let mut into = InterleavedSlice::new_mut(&mut self.scratch, 1, room).map_err(|error| library(&error))?;
        let (_, written) = self.inner.process_into_buffer(&input, &mut into, None).map_err(|error| library(&error))?;
        let skipped = self.delay.min(written);
        self.delay -= skipped;
        output.extend_from_slice(&self.scratch[skipped..written]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use repartee_testkit::random::Random;
    use repartee_testkit::signal::{chirp, dominant_frequency, level_db, sine};

    use super::*;

    fn whole(from: u32, to: u32, input: &[f32]) -> Vec<f32> {
        let mut resampler = Resampler::new(from, to).unwrap();
        let mut output = resampler.push(input).unwrap();
        output.extend(resampler.flush().unwrap());
        output
    }

    #[test]
    fn tone_keeps_frequency_and_level_between_rates() {
        let rates = [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000];
        for from in rates {
            for to in rates {
                let output = whole(from, to, &sine(1_000.0, from, from as usize));
                assert_eq!(output.len(), to as usize, "{from} to {to}");
                let middle = &output[to as usize / 10..to as usize * 9 / 10];
                assert!((dominant_frequency(middle, to) - 1_000.0).abs() < 0.5, "{from} to {to}");
                assert!((level_db(middle) - level_db(&sine(1_000.0, to, to as usize))).abs() < 0.1, "{from} to {to}");
            }
        }
    }

    #[test]
    fn signal_shifts_less_than_a_sample() {
        for (from, to) in [(8_000, 16_000), (24_000, 16_000), (44_100, 16_000), (48_000, 8_000), (24_000, 48_000)] {
            // A chirp, because a tone looks the same a period later.
            let [input, expected] = [from, to].map(|rate| chirp(80.0, 120.0, rate, rate as usize));
            let output = whole(from, to, &input);
            let middle = to as usize / 10..to as usize * 9 / 10;
            let error: Vec<f32> = middle.map(|i| output[i] - expected[i]).collect();
            // The error of a tone of 80 Hz at -9 dB that is shifted by one sample of the lower rate.
            let allowed = -9.0 + 20.0 * (std::f32::consts::TAU * 80.0 / from.min(to) as f32).log10();
            assert!(level_db(&error) < allowed, "{from} to {to}: {} dB, allowed {allowed}", level_db(&error));
        }
    }

    #[test]
    fn frequencies_above_nyquist_are_removed() {
        let output = whole(48_000, 16_000, &sine(11_000.0, 48_000, 48_000));
        assert!(level_db(&output[1_600..14_400]) < -70.0);
    }

    /// Level of what is left of `samples` without their best sine and cosine of `frequency`, relative to them, in dB.
    fn distortion_db(samples: &[f32], frequency: f64, rate: u32) -> f64 {
        let wave = |i: usize| (std::f64::consts::TAU * frequency * i as f64 / f64::from(rate)).sin_cos();
        let sum = |of: &dyn Fn(f64, f64, f64) -> f64| {
            let terms = samples.iter().enumerate().map(|(i, &sample)| {
                let (sine, cosine) = wave(i);
                of(sine, cosine, f64::from(sample))
            });
            terms.sum::<f64>()
        };
        let (ss, sc, cc) = (sum(&|s, _, _| s * s), sum(&|s, c, _| s * c), sum(&|_, c, _| c * c));
        let (ys, yc) = (sum(&|s, _, y| y * s), sum(&|_, c, y| y * c));
        let scale = ss * cc - sc * sc;
        let (a, b) = ((ys * cc - yc * sc) / scale, (yc * ss - ys * sc) / scale);
        let rest = sum(&|s, c, y| (y - a * s - b * c).powi(2));
        10.0 * (rest / sum(&|_, _, y| y * y)).log10()
    }

    #[test]
    fn tones_are_not_distorted() {
        // With a filter for each position, and (22.05 to 16 kHz) between filters.
        for (from, to) in [
            (8_000, 16_000),
            (16_000, 24_000),
            (24_000, 16_000),
            (24_000, 8_000),
            (24_000, 44_100),
            (44_100, 16_000),
            (22_050, 16_000),
        ] {
            for frequency in [100.0, 1_000.0, 3_000.0] {
                let output = whole(from, to, &sine(frequency, from, from as usize));
                let middle = &output[to as usize / 10..to as usize * 9 / 10];
                let distortion = distortion_db(middle, frequency, to);
                assert!(distortion < -100.0, "{from} to {to}, {frequency} Hz: {distortion:.0} dB");
            }
        }
    }

    #[test]
    fn little_signal_is_held_back() {
        let mut resampler = Resampler::new(24_000, 16_000).unwrap();
        let ready: usize = (0..50).map(|_| resampler.push(&[0.1; 480]).unwrap().len()).sum();
        assert!(16_000 - ready < 16_000 * 8 / 1_000, "{} samples held back", 16_000 - ready);
    }

    #[test]
    fn equal_rates_pass_through_untouched() {
        let input = sine(300.0, 16_000, 777);
        assert_eq!(whole(16_000, 16_000, &input), input);
    }

    #[test]
    fn flush_begins_a_new_signal() {
        let input = sine(300.0, 24_000, 5_000);
        let mut resampler = Resampler::new(24_000, 16_000).unwrap();
        for _ in 0..2 {
            let mut output = resampler.push(&input).unwrap();
            output.extend(resampler.flush().unwrap());
            assert_eq!(output, whole(24_000, 16_000, &input));
        }
        assert!(resampler.flush().unwrap().is_empty());
    }

    #[test]
    fn rates_out_of_range_are_errors() {
        assert_eq!(Resampler::new(7_999, 16_000).unwrap_err(), ResampleError::UnsupportedRate(7_999));
        assert_eq!(Resampler::new(16_000, 96_000).unwrap_err(), ResampleError::UnsupportedRate(96_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_split_gives_the_same_samples(
            from in prop::sample::select(vec![8_000u32, 24_000, 44_100, 48_000]),
            cuts in prop::collection::vec(0usize..2_000, 0..20),
            seed in 0u64..1_000,
        ) {
            let mut random = Random::new(seed);
            let input: Vec<f32> = (0..6_000).map(|_| random.unit() as f32 - 0.5).collect();
            let mut resampler = Resampler::new(from, 16_000).unwrap();
            let (mut output, mut rest) = (Vec::new(), &input[..]);
            for cut in cuts {
                let (piece, remainder) = rest.split_at(cut.min(rest.len()));
                output.extend(resampler.push(piece).unwrap());
                rest = remainder;
            }
            output.extend(resampler.push(rest).unwrap());
            output.extend(resampler.flush().unwrap());
            prop_assert_eq!(output, whole(from, 16_000, &input));
        }
    }
}
