//! Logarithmic mel spectrogram of a recording at 16 kHz as Kaldi's `fbank` makes it, without dither: whole frames of 25 ms each
//! 10 ms, without their mean, with preemphasis, and a taper that is a power of Hann's.

use std::f64::consts::TAU;

use realfft::RealFftPlanner;

/// Sampling rate, in Hz.
pub const RATE: u32 = 16_000;
/// Samples of a frame, and from one frame to the next.
const FRAME: usize = 400;
const HOP: usize = 160;
/// Samples of a transform: the next power of two.
const N_FFT: usize = 512;
/// Share of a sample that is subtracted from the next one.
const PREEMPHASIS: f32 = 0.97;
/// Power of the taper.
const TAPER_POWER: f64 = 0.85;
/// Lowest frequency of the filters; the highest is half the rate.
const LOWEST_HZ: f64 = 20.0;

fn mel(hertz: f64) -> f64 {
    1127.0 * (1.0 + hertz / 700.0).ln()
}

/// Number of frames in a recording of `samples` samples.
pub fn frames(samples: usize) -> usize {
    if samples < FRAME { 0 } else { (samples - FRAME) / HOP + 1 }
}

/// Computes `[frames, bins]`.
pub fn spectrogram(samples: &[f32], bins: usize) -> Vec<f32> {
    let last = (FRAME - 1) as f64;
    let taper = |n: usize| (0.5 - 0.5 * (TAU * n as f64 / last).cos()).powf(TAPER_POWER) as f32;
    let taper: Vec<f32> = (0..FRAME).map(taper).collect();
    // Triangles on the scale itself, unlike Slaney's; the highest frequency of the transform has no part.
    let (lowest, highest) = (mel(LOWEST_HZ), mel(f64::from(RATE) / 2.0));
    let step = (highest - lowest) / (bins + 1) as f64;
    let weights: Vec<f64> = (0..bins * N_FFT / 2)
        .map(|at| {
            let (bin, frequency) = (at / (N_FFT / 2), at % (N_FFT / 2));
            let at = (mel(frequency as f64 * f64::from(RATE) / N_FFT as f64) - lowest) / step - bin as f64;
            at.min(2.0 - at).max(0.0)
        })
        .collect();
    let transform = RealFftPlanner::<f32>::new().plan_fft_forward(N_FFT);
    let (mut input, mut spectrum) = (transform.make_input_vec(), transform.make_output_vec());
    let mut scratch = transform.make_scratch_vec();
    let mut levels = Vec::with_capacity(frames(samples.len()) * bins);
    for frame in samples.windows(FRAME).step_by(HOP) {
        let mean = frame.iter().sum::<f32>() / FRAME as f32;
        input.fill(0.0);
        for (n, taper) in taper.iter().enumerate() {
            input[n] = (frame[n] - mean - PREEMPHASIS * (frame[n.saturating_sub(1)] - mean)) * taper;
        }
        let done = transform.process_with_scratch(&mut input, &mut spectrum, &mut scratch);
        done.expect("every buffer was made by the transform, which fails on wrong lengths only");
        let power: Vec<f64> = spectrum.iter().map(|bin| f64::from(bin.norm_sqr())).collect();
        levels.extend(weights.chunks_exact(N_FFT / 2).map(|filter| {
            let passed: f64 = filter.iter().zip(&power).map(|(weight, power)| weight * power).sum();
            (passed as f32).max(f32::EPSILON).ln()
        }));
    }
    levels
}
