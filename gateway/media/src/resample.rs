//! Streaming sample-rate conversion of one mono signal, in pieces of any size.
//!
//! The filter is a windowed sinc at any ratio, so that the delay is the same few milliseconds at every pair of rates. Its
//! blocks are of fixed size and independent of how the caller cuts the signal: any split gives the same samples.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Async, FixedAsync, Resampler as _, SincInterpolationParameters, WindowFunction};
use thiserror::Error;

/// Rates that are accepted, in Hz.
pub const RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;
/// Taps of the filter: half of them is the delay, 2.7 ms at 24 kHz.
const TAPS: usize = 128;
/// Input is processed in blocks of this many milliseconds.
const BLOCK_MS: usize = 5;

/// Why a signal cannot be resampled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResampleError {
    /// A rate is outside of [`RATES`].
    #[error("sample rates are 8000 to 48000 Hz, got {0}")]
    UnsupportedRate(u32),
    /// The library failed: a bug of ours.
    #[error("resampler: {0}")]
    Library(String),
}

/// Converts one signal. The output is aligned with the input: the filter's delay is taken off at the start and made up
/// for by [`Resampler::flush`].
pub struct Resampler {
    /// `None` when both rates are equal.
    filter: Option<Filter>,
}

struct Filter {
    inner: Async<f32>,
    /// Output over input.
    ratio: f64,
    /// Samples of one block.
    block: usize,
    /// Input that does not fill a block yet.
    pending: Vec<f32>,
    /// What the last push made.
    output: Vec<f32>,
    /// Where a block's output is written.
    scratch: Vec<f32>,
    /// Output samples of the filter's delay that are still to be left out.
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
    /// A converter from `from` to `to` Hz.
    pub fn new(from: u32, to: u32) -> Result<Self, ResampleError> {
        if let Some(&bad) = [from, to].iter().find(|rate| !RATES.contains(rate)) {
            return Err(ResampleError::UnsupportedRate(bad));
        }
        if from == to {
            return Ok(Self { filter: None });
        }
        let ratio = f64::from(to) / f64::from(from);
        let block = from as usize * BLOCK_MS / 1_000;
        let parameters = SincInterpolationParameters::new(TAPS, WindowFunction::BlackmanHarris2);
        let inner = Async::new_sinc(ratio, 1.0, &parameters, block, 1, FixedAsync::Input)
            .map_err(|error| ResampleError::Library(error.to_string()))?;
        let (delay, scratch) = (inner.output_delay(), vec![0.0; inner.output_frames_max()]);
        let (pending, output) = (Vec::new(), Vec::new());
        let filter = Filter { inner, ratio, block, pending, output, scratch, delay, input_count: 0, output_count: 0 };
        Ok(Self { filter: Some(filter) })
    }

    /// Converts any number of samples and returns those that are ready.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<f32>, ResampleError> {
        self.convert(samples).map(<[f32]>::to_vec)
    }

    /// As [`Self::push`], without an allocation of its own: what is ready lies in `samples` or in the converter.
    pub fn convert<'a>(&'a mut self, samples: &'a [f32]) -> Result<&'a [f32], ResampleError> {
        match &mut self.filter {
            None => Ok(samples),
            Some(filter) => filter.push(samples),
        }
    }

    /// Whether both rates are the same.
    pub fn is_identity(&self) -> bool {
        self.filter.is_none()
    }

    /// Ends the signal: returns what is left of it, and starts anew. In all, `n` samples become `n * to / from`, rounded.
    pub fn flush(&mut self) -> Result<Vec<f32>, ResampleError> {
        match &mut self.filter {
            None => Ok(Vec::new()),
            Some(filter) => filter.flush(),
        }
    }
}

impl Filter {
    fn push(&mut self, samples: &[f32]) -> Result<&[f32], ResampleError> {
        self.input_count += samples.len() as u64;
        // Both keep their memory from push to push.
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
        self.inner.reset();
        self.pending.clear();
        (self.delay, self.input_count, self.output_count) = (self.inner.output_delay(), 0, 0);
        Ok(output)
    }

    /// Appends the output for one block.
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
            // What a shift by one sample of the lower rate makes of a tone of 80 Hz at -9 dB.
            let allowed = -9.0 + 20.0 * (std::f32::consts::TAU * 80.0 / from.min(to) as f32).log10();
            assert!(level_db(&error) < allowed, "{from} to {to}: {} dB, allowed {allowed}", level_db(&error));
        }
    }

    #[test]
    fn frequencies_above_nyquist_are_removed() {
        let output = whole(48_000, 16_000, &sine(11_000.0, 48_000, 48_000));
        assert!(level_db(&output[1_600..14_400]) < -70.0);
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
