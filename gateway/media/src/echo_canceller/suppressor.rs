//! Suppression of what the filter leaves of the echo, band by band.

use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealToComplex};

use super::bound::EchoBound;
use super::units::{BANDS, BLOCK, Bands};
use crate::transforms::{back, plan, transform};

/// First bins of the bands, of 50 Hz, and the end of the last.
const EDGES: [usize; BANDS + 1] = [2, 4, 6, 8, 10, 12, 14, 17, 20, 24, 28, 33, 39, 46, 54, 64, 76, 90, 106, 126, 150];
/// Margin of the echo in power over its bound, and over what the filter usually leaves.
const BOUND_MARGIN: f32 = 8.0;
const LEAK_MARGIN: f32 = 10.0;
/// Share of an echo that a new filter leaves.
const FIRST_LEAK: f32 = 1.0;
/// Steps of the estimated share to lower and higher ones.
const LEAK_DOWN: f32 = 0.05;
const LEAK_UP: f32 = 1.01;
/// Decay of the echo from block to block: a room rings.
const RING: f32 = 0.87;
/// Least power of a band whose echo tells anything.
const AUDIBLE: f32 = 1e-4;
/// Ratio of the sound to the expected echo, below which all is echo.
const STANDS_OUT: f32 = 2.0;
/// Share of a gain that stays when a band gets softer.
const RELEASE: f32 = 0.4;

/// Two blocks of one signal, the older one first.
type Frame = [f32; 2 * BLOCK];

/// Suppressor of one call. Its output is one block late.
pub(super) struct Suppressor {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// Root of a window of Hann.
    window: Frame,
    input: Frame,
    cleaned: Frame,
    echo: Frame,
    played: Frame,
    /// Second half of the last output.
    tail: [f32; BLOCK],
    bound: EchoBound,
    leaks: Bands,
    held: Bands,
    gains: Bands,
    time: Vec<f32>,
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl std::fmt::Debug for Suppressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suppressor").field("leaks", &self.leaks).finish_non_exhaustive()
    }
}

/// Block of each signal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    /// Sound of the caller's microphone.
    pub input: &'a [f32; BLOCK],
    /// Sound with the echo subtracted.
    pub cleaned: &'a [f32; BLOCK],
    /// Echo that was subtracted; `None` without a filter.
    pub echo: Option<&'a [f32; BLOCK]>,
    /// Playback, at no delay.
    pub played: &'a [f32; BLOCK],
}

impl Suppressor {
    pub fn new() -> Self {
        let (forward, inverse) = plan(2 * BLOCK);
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        let silent = [0.0; 2 * BLOCK];
        Self {
            time: forward.make_input_vec(),
            spectrum: forward.make_output_vec(),
            scratch: vec![Complex32::default(); scratch],
            forward,
            inverse,
            window: std::array::from_fn(|at| (std::f32::consts::PI * (at as f32 + 0.5) / (2 * BLOCK) as f32).sin()),
            input: silent,
            cleaned: silent,
            echo: silent,
            played: silent,
            tail: [0.0; BLOCK],
            bound: EchoBound::new(),
            leaks: [FIRST_LEAK; BANDS],
            held: [0.0; BANDS],
            gains: [1.0; BANDS],
        }
    }

    /// Forgets what the filter left: it begins anew.
    pub fn reset_filter(&mut self) {
        self.leaks.fill(FIRST_LEAK);
    }

    /// Resets the bound on the echo.
    pub fn reset(&mut self) {
        self.bound.reset();
    }

    /// Returns the block of the last output without suppression.
    pub fn unsuppressed(&self) -> &[f32] {
        &self.cleaned[..BLOCK]
    }

    /// Passes a block while there is nothing to suppress; writes the block before it to `out`.
    pub fn pass(&mut self, input: &[f32; BLOCK], out: &mut [f32; BLOCK]) {
        for at in 0..BLOCK {
            let (rise, fall) = (self.window[at], self.window[at + BLOCK]);
            out[at] = self.tail[at] + self.cleaned[at + BLOCK] * rise * rise;
            self.tail[at] = input[at] * fall * fall;
        }
        for frame in [&mut self.input, &mut self.cleaned] {
            shift(frame, input);
        }
        for frame in [&mut self.echo, &mut self.played] {
            shift(frame, &[0.0; BLOCK]);
        }
        self.gains.fill(1.0);
    }

    /// Suppresses the echo of a block; writes the block before it to `out`. `is_lost`: true if the input is no sound of the caller.
    pub fn suppress(&mut self, block: Block<'_>, is_lost: bool, out: &mut [f32; BLOCK]) {
        shift(&mut self.input, block.input);
        shift(&mut self.cleaned, block.cleaned);
        shift(&mut self.echo, block.echo.unwrap_or(&[0.0; BLOCK]));
        shift(&mut self.played, block.played);
        let played = self.powers(self.played);
        let input = self.powers(self.input);
        let bound = *self.bound.push(&played, (!is_lost).then_some(&input));
        let echo = self.powers(self.echo);
        // Last: its spectrum is the output's.
        let sound = self.powers(self.cleaned);
        let (mut sounds, mut expects) = (0.0, 0.0);
        for band in 0..BANDS {
            self.held[band] = echo[band].max(self.held[band] * RING);
            let mut expected = bound[band] * BOUND_MARGIN;
            if block.echo.is_some() {
                if echo[band] > AUDIBLE && !is_lost {
                    let leak = sound[band] / echo[band];
                    self.leaks[band] = match leak < self.leaks[band] {
                        true => self.leaks[band] + LEAK_DOWN * (leak - self.leaks[band]),
                        false => (self.leaks[band] * LEAK_UP).min(1.0),
                    };
                }
                expected = expected.min(self.held[band] * self.leaks[band] * LEAK_MARGIN);
            }
            let gain = (1.0 - expected / sound[band].max(1e-9)).max(0.0);
            self.gains[band] = gain.max(RELEASE * self.gains[band] * f32::from(gain > 0.0));
            sounds += sound[band];
            expects += expected;
        }
        if sounds < STANDS_OUT * expects {
            self.gains.fill(0.0);
        }
        for (band, gain) in self.gains.iter().enumerate() {
            let from = if band == 0 { 0 } else { EDGES[band] };
            let to = if band + 1 == BANDS { BLOCK + 1 } else { EDGES[band + 1] };
            self.spectrum[from..to].iter_mut().for_each(|value| *value *= *gain);
        }
        back(&*self.inverse, &mut self.spectrum, &mut self.time, &mut self.scratch);
        self.time.iter_mut().zip(&self.window).for_each(|(sample, window)| *sample *= window);
        let (rising, falling) = self.time.split_at(BLOCK);
        out.iter_mut().zip(self.tail.iter().zip(rising)).for_each(|(out, (tail, rising))| *out = tail + rising);
        self.tail.copy_from_slice(falling);
    }

    /// Returns the powers of the bands of a frame, whose spectrum stays.
    fn powers(&mut self, frame: Frame) -> Bands {
        for ((to, from), window) in self.time.iter_mut().zip(&frame).zip(&self.window) {
            *to = from * window;
        }
        transform(&*self.forward, &mut self.time, &mut self.spectrum, &mut self.scratch);
        let spectrum = &self.spectrum;
        std::array::from_fn(|band| spectrum[EDGES[band]..EDGES[band + 1]].iter().map(Complex32::norm_sqr).sum::<f32>())
    }
}

fn shift(frame: &mut Frame, block: &[f32; BLOCK]) {
    frame.copy_within(BLOCK.., 0);
    frame[BLOCK..].copy_from_slice(block);
}
