//! Noise reducer: softens steady noise beside the caller, bin by bin, and leaves voices.
//!
//! The power of the noise follows the sound where no voice is likely: the estimator of Gerkmann and Hendriks, "Unbiased MMSE-based noise
//! power estimation with low complexity and low tracking delay" (IEEE Transactions on Audio, Speech and Language Processing, 2012). The gain
//! is Wiener's, by the decision-directed ratio of voice and noise of Ephraim and Malah (1984), with a floor: what is taken for noise stays
//! audible, so that soft consonants are not lost to the model. Noise that is not steady stays as it is: of many voices at once the gaps
//! would be softened, and what is left would be more like one voice.
//!
//! Samples are as many behind it as before it, once it is [flushed](NoiseReducer::flush), at the same places.

use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealToComplex};

use super::noise_steadiness::NoiseSteadiness;
use super::transforms::{back, plan, transform};

/// Decibels by which noise beside a close microphone is softened at most: it hears little noise, and less change keeps its voice.
pub const NEAR_FIELD_DB: f32 = 6.0;
/// Decibels by which noise of a room is softened at most.
pub const FAR_FIELD_DB: f32 = 12.0;
/// Samples of a block, 10 ms at 16 kHz.
const BLOCK: usize = 160;
/// Bins of a spectrum, of 50 Hz.
const BINS: usize = BLOCK + 1;
/// Ratio of voice and noise that is expected where there is a voice: 15 dB.
const EXPECTED: f32 = 31.6;
/// Share of the last noise in the next, and of the smoothed likelihood of a voice.
const NOISE_KEPT: f32 = 0.8;
const LIKELY_KEPT: f32 = 0.9;
/// Likelihood of a voice that is believed for as long as it lasts.
const STUCK: f32 = 0.99;
/// Share of the last ratio of voice and noise in the next.
const RATIO_KEPT: f32 = 0.98;
/// Least ratio, -25 dB.
const LEAST_RATIO: f32 = 0.003;
/// Least power of noise in a bin, far below the steps of 16 bits.
const SILENCE: f32 = 1e-9;
/// First bin that tells the steadiness of the noise, of 100 Hz: below it is rumble.
const FIRST_BIN: usize = 2;
/// Steadiness below which noise counts as left as it is, and above which it counts as reduced.
const LEFT: f32 = 0.25;
const REDUCED: f32 = 0.75;
/// Blocks from whose mean the first estimate comes.
const FIRST: u32 = 8;

/// Noise reducer of one stream at 16 kHz. Its output is 10 ms late until it is [flushed](Self::flush).
pub struct NoiseReducer {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// Root of a window of Hann.
    window: [f32; 2 * BLOCK],
    /// Decibels by which noise is softened at most.
    most_db: f32,
    /// Least gain, by the steadiness of the noise.
    floor: f32,
    steadiness: NoiseSteadiness,
    is_reducing: bool,
    pending: Vec<f32>,
    /// Latest two blocks, and second half of the last output.
    frame: [f32; 2 * BLOCK],
    tail: [f32; BLOCK],
    /// Blocks so far.
    blocks: u32,
    noise: [f32; BINS],
    likely: [f32; BINS],
    /// Power of the last output.
    voice: [f32; BINS],
    /// Output that precedes the input, and input inside, in samples.
    ahead: usize,
    inside: usize,
    time: Vec<f32>,
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl std::fmt::Debug for NoiseReducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoiseReducer").field("most_db", &self.most_db).finish_non_exhaustive()
    }
}

impl NoiseReducer {
    /// Creates a reducer that lowers noise by at most `most_db`.
    pub fn new(most_db: f32) -> Self {
        let (forward, inverse) = plan(2 * BLOCK);
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        Self {
            time: forward.make_input_vec(),
            spectrum: forward.make_output_vec(),
            scratch: vec![Complex32::default(); scratch],
            forward,
            inverse,
            window: std::array::from_fn(|at| (std::f32::consts::PI * (at as f32 + 0.5) / (2 * BLOCK) as f32).sin()),
            most_db,
            floor: 1.0,
            steadiness: NoiseSteadiness::new(),
            is_reducing: true,
            pending: Vec::with_capacity(BLOCK),
            frame: [0.0; 2 * BLOCK],
            tail: [0.0; BLOCK],
            blocks: 0,
            noise: [SILENCE; BINS],
            likely: [0.0; BINS],
            voice: [0.0; BINS],
            ahead: BLOCK,
            inside: 0,
        }
    }

    /// True if the noise is steady, so that it is softened; true before it is known.
    pub fn is_reducing(&self) -> bool {
        self.is_reducing
    }

    /// Takes a piece of the input, and replaces it by what is ready: 10 to 20 ms less at first, then as much.
    pub fn process(&mut self, samples: &mut Vec<f32>) {
        self.inside += samples.len();
        let input = std::mem::take(samples);
        let mut rest = &input[..];
        while !rest.is_empty() {
            let (taken, after) = rest.split_at(rest.len().min(BLOCK - self.pending.len()));
            self.pending
                .extend(taken.iter().map(|sample| if sample.is_finite() { sample.clamp(-2.0, 2.0) } else { 0.0 }));
            rest = after;
            if self.pending.len() == BLOCK {
                self.block(samples);
                self.pending.clear();
            }
        }
    }

    /// Appends all input that is inside to `samples`. What follows begins anew, with the same noise.
    pub fn flush(&mut self, samples: &mut Vec<f32>) {
        while self.inside > 0 {
            self.pending.resize(BLOCK, 0.0);
            self.block(samples);
            self.pending.clear();
        }
        self.ahead = BLOCK;
        (self.frame, self.tail) = ([0.0; 2 * BLOCK], [0.0; BLOCK]);
    }

    /// Processes the pending block, and appends the block before it to `out`.
    fn block(&mut self, out: &mut Vec<f32>) {
        self.frame.copy_within(BLOCK.., 0);
        self.frame[BLOCK..].copy_from_slice(&self.pending);
        for ((to, from), window) in self.time.iter_mut().zip(&self.frame).zip(&self.window) {
            *to = from * window;
        }
        transform(&*self.forward, &mut self.time, &mut self.spectrum, &mut self.scratch);
        // Lost packets are silent to the last bit, and tell nothing of the noise.
        if self.pending.iter().any(|sample| *sample != 0.0) {
            self.reduce();
        }
        back(&*self.inverse, &mut self.spectrum, &mut self.time, &mut self.scratch);
        let ready = self.tail.iter().zip(&self.time).zip(&self.window);
        let ready = ready.map(|((tail, sample), window)| tail + sample * window);
        let dropped = self.ahead.min(BLOCK);
        self.ahead -= dropped;
        let given = (BLOCK - dropped).min(self.inside);
        self.inside -= given;
        out.extend(ready.skip(dropped).take(given));
        for (at, tail) in self.tail.iter_mut().enumerate() {
            *tail = self.time[BLOCK + at] * self.window[BLOCK + at];
        }
    }

    /// Softens the noise of the spectrum, and follows it.
    fn reduce(&mut self) {
        self.blocks = self.blocks.saturating_add(1);
        let power = self.spectrum[FIRST_BIN..].iter().map(Complex32::norm_sqr).sum();
        if let Some(steadiness) = self.steadiness.push(power) {
            self.floor = 10_f32.powf(-self.most_db * steadiness / 20.0);
            self.is_reducing = if self.is_reducing { steadiness >= LEFT } else { steadiness > REDUCED };
        }
        for (bin, value) in self.spectrum.iter_mut().enumerate() {
            let power = value.norm_sqr();
            let noise = &mut self.noise[bin];
            if self.blocks <= FIRST {
                *noise += (power - *noise) / self.blocks as f32;
                *noise = noise.max(SILENCE);
            } else {
                // Of no prior knowledge: a voice is as likely as none.
                let exponent = (power / *noise * EXPECTED / (1.0 + EXPECTED)).min(60.0);
                let mut likely = 1.0 / (1.0 + (1.0 + EXPECTED) * (-exponent).exp());
                let smoothed = &mut self.likely[bin];
                *smoothed = LIKELY_KEPT * *smoothed + (1.0 - LIKELY_KEPT) * likely;
                if *smoothed > STUCK {
                    likely = likely.min(STUCK);
                }
                let found = likely * *noise + (1.0 - likely) * power;
                *noise = (NOISE_KEPT * *noise + (1.0 - NOISE_KEPT) * found).max(SILENCE);
            }
            let ratio = power / *noise;
            let prior =
                (RATIO_KEPT * self.voice[bin] / *noise + (1.0 - RATIO_KEPT) * (ratio - 1.0).max(0.0)).max(LEAST_RATIO);
            let gain = (prior / (1.0 + prior)).max(self.floor);
            *value *= gain;
            self.voice[bin] = value.norm_sqr();
        }
    }
}

#[cfg(test)]
#[path = "noise_reducer_tests.rs"]
mod tests;
