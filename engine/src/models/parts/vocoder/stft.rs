//! Short-time Fourier transform of samples, and its inverse over streams of spectra.
//!
//! The inverse of a stream, in any split, has the same bits as one transform of the whole: each spectrum's windowed
//! frame is added to the samples that it covers, in order, and a sample is emitted once the last frame that covers it
//! has been added. It is divided by the sum of the squared windows that cover it, both ends included.

use std::f64::consts::TAU;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Sum of squared windows below which a sample is not divided: no frame reaches it.
const LEAST_WEIGHT: f32 = 1e-11;

/// Periodic Hann window of `length` samples.
pub fn hann(length: usize) -> Vec<f32> {
    (0..length).map(|n| (0.5 - 0.5 * (TAU * n as f64 / length as f64).cos()) as f32).collect()
}

/// Transform of frames of samples, each multiplied by a window.
pub struct Stft {
    window: Vec<f32>,
    hop: usize,
    transform: Arc<dyn RealToComplex<f32>>,
}

impl Stft {
    /// Creates a transform of frames as long as `window`, `hop` samples apart.
    pub fn new(window: Vec<f32>, hop: usize) -> Self {
        let transform = RealFftPlanner::new().plan_fft_forward(window.len());
        Self { window, hop, transform }
    }

    /// Calls `each` with the spectrum of every whole frame, half the frame's length plus one numbers.
    pub fn forward(&self, samples: &[f32], mut each: impl FnMut(&[Complex<f32>])) {
        let (mut frame, mut spectrum) = (self.transform.make_input_vec(), self.transform.make_output_vec());
        let mut scratch = self.transform.make_scratch_vec();
        for seen in samples.windows(self.window.len()).step_by(self.hop) {
            frame.iter_mut().zip(seen.iter().zip(&self.window)).for_each(|(out, (sample, by))| *out = sample * by);
            let done = self.transform.process_with_scratch(&mut frame, &mut spectrum, &mut scratch);
            done.expect("every buffer was made by the transform, which fails on wrong lengths only");
            each(&spectrum);
        }
    }
}

/// Inverse transform with overlap and addition, shared by all streams.
pub struct InverseStft {
    window: Vec<f32>,
    hop: usize,
    /// Samples cut off each end.
    cut: usize,
    transform: Arc<dyn ComplexToReal<f32>>,
}

/// Stream of an [`InverseStft`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InverseStftStream {
    /// Sums of frames from the first sample that is not emitted on, each with the sum of the squared windows.
    open: Vec<(f32, f32)>,
    /// Samples to cut before the next one.
    cut: usize,
    begun: bool,
}

impl InverseStft {
    /// Creates a transform to frames as long as `window`, an even number of samples, `hop` samples apart. `cut` samples of each end are dropped:
    /// half a frame if the frames are centred on their samples, half a frame less half a hop if there are as many
    /// samples as hops.
    pub fn new(window: Vec<f32>, hop: usize, cut: usize) -> Self {
        debug_assert!(hop > 0 && cut + hop <= window.len(), "a frame outlasts its hop and the cut");
        let transform = RealFftPlanner::new().plan_fft_inverse(window.len());
        Self { window, hop, cut, transform }
    }

    /// Samples from one frame to the next.
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// Numbers of a spectrum.
    pub fn bins(&self) -> usize {
        self.window.len() / 2 + 1
    }

    /// Adds the frame of a spectrum, and appends the samples that are then complete to `samples`. The imaginary parts
    /// of the lowest and the highest bin are ignored, as by the references.
    pub fn push(&self, stream: &mut InverseStftStream, spectrum: &[Complex<f32>], samples: &mut Vec<f32>) {
        let mut spectrum = spectrum.to_vec();
        let last = self.bins() - 1;
        for bin in [0, last] {
            spectrum[bin].im = 0.0;
        }
        let mut frame = self.transform.make_output_vec();
        let done = self.transform.process(&mut spectrum, &mut frame);
        done.expect("the buffers have the transform's lengths, and the outer bins are real");
        if !std::mem::replace(&mut stream.begun, true) {
            stream.cut = self.cut;
        }
        stream.open.resize(frame.len(), (0.0, 0.0));
        let scale = 1.0 / frame.len() as f32;
        for ((sum, weight), (sample, by)) in stream.open.iter_mut().zip(frame.iter().zip(&self.window)) {
            *sum += sample * scale * by;
            *weight += by * by;
        }
        self.emit(stream, self.hop, samples);
    }

    /// Ends a stream: appends its last samples, and resets it.
    pub fn finish(&self, stream: &mut InverseStftStream, samples: &mut Vec<f32>) {
        // The rest covers a frame less a hop.
        let rest = stream.open.len().saturating_sub(self.cut);
        self.emit(stream, rest, samples);
        *stream = InverseStftStream::default();
    }

    fn emit(&self, stream: &mut InverseStftStream, count: usize, samples: &mut Vec<f32>) {
        let complete = stream.open.drain(..count);
        let skipped = stream.cut.min(count);
        stream.cut -= skipped;
        let divided = |(sum, weight): (f32, f32)| if weight > LEAST_WEIGHT { sum / weight } else { sum };
        samples.extend(complete.skip(skipped).map(divided));
    }
}

#[cfg(test)]
mod tests {
    use repartee_kernels::random::uniform;

    use super::*;

    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        (0..count).map(|i| 2.0 * uniform(seed, i as u64, 0, 0) - 1.0).collect()
    }

    fn spectra(stft: &Stft, samples: &[f32]) -> Vec<Vec<Complex<f32>>> {
        let mut spectra = Vec::new();
        stft.forward(samples, |spectrum| spectra.push(spectrum.to_vec()));
        spectra
    }

    fn inverse(transform: &InverseStft, spectra: &[Vec<Complex<f32>>]) -> Vec<f32> {
        let (mut stream, mut samples) = (InverseStftStream::default(), Vec::new());
        spectra.iter().for_each(|spectrum| transform.push(&mut stream, spectrum, &mut samples));
        transform.finish(&mut stream, &mut samples);
        assert_eq!(stream, InverseStftStream::default());
        samples
    }

    /// Sums written out, in double precision: the inverse at sample `at` of the uncut result.
    fn plain(window: &[f32], hop: usize, spectra: &[Vec<Complex<f32>>], at: usize) -> f64 {
        let length = window.len();
        let (mut sum, mut weight) = (0.0, 0.0);
        for (frame, spectrum) in spectra.iter().enumerate() {
            let Some(n) = at.checked_sub(frame * hop).filter(|&n| n < length) else { continue };
            let bin = |(k, bin): (usize, &Complex<f32>)| {
                let angle = TAU * (k * n) as f64 / length as f64;
                let once = k == 0 || 2 * k == length;
                let imaginary = if once { 0.0 } else { f64::from(bin.im) };
                (f64::from(bin.re) * angle.cos() - imaginary * angle.sin()) * if once { 1.0 } else { 2.0 }
            };
            let by = f64::from(window[n]);
            sum += by * spectrum.iter().enumerate().map(bin).sum::<f64>() / length as f64;
            weight += by * by;
        }
        if weight > f64::from(LEAST_WEIGHT) { sum / weight } else { sum }
    }

    #[test]
    fn inverse_equals_sums_written_out() {
        for (length, hop, cut) in [(16, 4, 8), (16, 4, 6), (12, 3, 0), (20, 10, 5)] {
            let window = hann(length);
            let transform = InverseStft::new(window.clone(), hop, cut);
            let random = numbers(1, 7 * 2 * transform.bins());
            let spectra: Vec<Vec<Complex<f32>>> = random
                .chunks(2 * transform.bins())
                .map(|row| row.chunks(2).map(|pair| Complex::new(pair[0], pair[1])).collect())
                .collect();
            let samples = inverse(&transform, &spectra);
            assert_eq!(samples.len(), (spectra.len() - 1) * hop + length - 2 * cut);
            for (at, sample) in samples.iter().enumerate() {
                let truth = plain(&window, hop, &spectra, at + cut);
                let within = 1e-4 * truth.abs().max(1.0);
                assert!((f64::from(*sample) - truth).abs() < within, "{length} {hop} {cut}: {at}: {sample} {truth}");
            }
        }
    }

    #[test]
    fn inverse_undoes_the_transform() {
        let (length, hop) = (32, 8);
        let samples = numbers(2, 40 * hop);
        let padded = [vec![0.0; length / 2], samples.clone(), vec![0.0; length / 2]].concat();
        let spectra = spectra(&Stft::new(hann(length), hop), &padded);
        let again = inverse(&InverseStft::new(hann(length), hop, length / 2), &spectra);
        assert_eq!(again.len(), samples.len());
        assert!(again.iter().zip(&samples).all(|(a, b)| (a - b).abs() < 1e-5));
    }

    #[test]
    fn any_split_equals_one_transform() {
        let (length, hop, cut) = (16, 4, 6);
        let transform = InverseStft::new(hann(length), hop, cut);
        let all = spectra(&Stft::new(hann(length), hop), &numbers(3, 30 * hop));
        let whole = inverse(&transform, &all);
        // A stream that is kept anywhere between two spectra, as a stage keeps it.
        for split in 1..all.len() {
            let (mut stream, mut samples) = (InverseStftStream::default(), Vec::new());
            for part in all.chunks(split) {
                let mut kept = stream.clone();
                part.iter().for_each(|spectrum| transform.push(&mut kept, spectrum, &mut samples));
                stream = kept;
            }
            transform.finish(&mut stream, &mut samples);
            assert_eq!(samples, whole, "{split} spectra at a time");
        }
        // Each spectrum completes a hop, once the cut has passed.
        let (mut stream, mut samples) = (InverseStftStream::default(), Vec::new());
        for (pushed, spectrum) in all.iter().enumerate() {
            transform.push(&mut stream, spectrum, &mut samples);
            assert_eq!(samples.len(), ((pushed + 1) * hop).saturating_sub(cut));
        }
    }
}
