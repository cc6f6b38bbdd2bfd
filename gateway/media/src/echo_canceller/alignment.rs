//! Delay of the echo, and drift between the clocks: peaks of a correlation whose spectrum is flat.

use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealToComplex};

use super::units::{BLOCK, RATE};
use crate::transforms::{back, plan, transform};

/// Samples of the input in one window, 220 ms.
pub(super) const WINDOW: usize = 22 * BLOCK;
/// Longest delay, 800 ms.
pub(super) const LONGEST: usize = RATE as usize * 8 / 10;
/// Length of a transform: window and delays.
const SIZE: usize = 1 << 14;
/// First and last bin that count, 200 Hz and 3.5 kHz: drift smears the rest.
const BINS: std::ops::Range<usize> = 200 * SIZE / RATE as usize..3_500 * SIZE / RATE as usize;
/// Flatness of the spectrum: 1 is flat, 0 leaves it as it is.
const FLATNESS: f32 = 0.9;
/// Share of the last windows' correlation in the next.
const KEPT: f32 = 0.6;
/// Ratio of the peak to the root mean square of a correlation, for a certain delay, and for one where it is expected.
const CERTAIN: f32 = 9.0;
const EXPECTED: f32 = 5.0;
/// Farthest from a known delay that a peak still is the same, 2 ms.
const NEAR: f64 = 32.0;
/// Windows in a line through their delays.
const POINTS: usize = 24;

/// Result of one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Found {
    /// No delay stands out.
    Nothing,
    /// The known delay holds.
    Same,
    /// The delay in samples of a new path.
    New(usize),
}

/// Search for the delay between playback and input.
pub(super) struct Alignment {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    time: Vec<f32>,
    near: Vec<Complex32>,
    far: Vec<Complex32>,
    scratch: Vec<Complex32>,
    /// Correlation of the latest windows by delay.
    correlation: Vec<f32>,
    delay: Option<f64>,
    /// Windows in a row that contradict the delay, and the delay of the last.
    contradicted: (u32, f64),
    /// Delays by time, in samples, since the path is known.
    points: [(f64, f64); POINTS],
    count: usize,
}

impl std::fmt::Debug for Alignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alignment").field("delay", &self.delay).finish_non_exhaustive()
    }
}

impl Alignment {
    pub fn new() -> Self {
        let (forward, inverse) = plan(SIZE);
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        Self {
            time: forward.make_input_vec(),
            near: forward.make_output_vec(),
            far: forward.make_output_vec(),
            scratch: vec![Complex32::default(); scratch],
            forward,
            inverse,
            correlation: vec![0.0; LONGEST],
            delay: None,
            contradicted: (0, 0.0),
            points: [(0.0, 0.0); POINTS],
            count: 0,
        }
    }

    /// Compares a window of the input, which ends at sample `now`, with the reference of that window and of the [`LONGEST`] before it.
    /// `near` yields [`WINDOW`] samples and `far` [`LONGEST`] more.
    pub fn compare(&mut self, near: impl Iterator<Item = f32>, far: impl Iterator<Item = f32>, now: f64) -> Found {
        self.time.fill(0.0);
        self.time.iter_mut().zip(near.take(WINDOW)).for_each(|(to, from)| *to = from);
        transform(&*self.forward, &mut self.time, &mut self.near, &mut self.scratch);
        self.time.fill(0.0);
        self.time.iter_mut().zip(far.take(WINDOW + LONGEST)).for_each(|(to, from)| *to = from);
        transform(&*self.forward, &mut self.time, &mut self.far, &mut self.scratch);
        for (bin, (near, far)) in self.near.iter_mut().zip(&self.far).enumerate() {
            let product = far * near.conj();
            let size = product.norm().powf(FLATNESS);
            let counts = BINS.contains(&bin) && size > 1e-9;
            *near = if counts { product / size } else { Complex32::default() };
        }
        back(&*self.inverse, &mut self.near, &mut self.time, &mut self.scratch);
        // Lag `l` of the product is a delay of `LONGEST - l`.
        let level = (self.time[..LONGEST].iter().map(|value| value * value).sum::<f32>() / LONGEST as f32).sqrt();
        if level <= 1e-12 {
            return Found::Nothing;
        }
        let mut peak = (0, 0.0_f32);
        for (delay, kept) in self.correlation.iter_mut().enumerate() {
            *kept = KEPT * *kept + (1.0 - KEPT) * self.time[LONGEST - delay] / level;
            if kept.abs() > peak.1 {
                peak = (delay, kept.abs());
            }
        }
        let level = (self.correlation.iter().map(|value| value * value).sum::<f32>() / LONGEST as f32).sqrt();
        let known = self.delay.and_then(|delay| self.peak_near(delay)).filter(|(_, size)| *size >= EXPECTED * level);
        let certain = peak.1 >= CERTAIN * level;
        if let Some((delay, size)) = known
            && (!certain || size >= 0.6 * peak.1)
        {
            self.contradicted.0 = 0;
            self.add_point(now, delay);
            return Found::Same;
        }
        if !certain {
            return Found::Nothing;
        }
        let delay = self.interpolated(peak.0);
        let again = (delay - self.contradicted.1).abs() <= NEAR;
        self.contradicted = (if again { self.contradicted.0 + 1 } else { 1 }, delay);
        if self.delay.is_some() && self.contradicted.0 < 3 {
            return Found::Nothing;
        }
        (self.delay, self.contradicted.0, self.count) = (Some(delay), 0, 0);
        self.add_point(now, delay);
        Found::New(peak.0)
    }

    /// Returns the strongest delay near `delay`, and its strength.
    fn peak_near(&self, delay: f64) -> Option<(f64, f32)> {
        let from = (delay - NEAR).max(0.0) as usize;
        let to = ((delay + NEAR) as usize).min(LONGEST);
        let strength = |at: &usize| self.correlation[*at].abs();
        let best = (from..to).max_by(|a, b| strength(a).total_cmp(&strength(b)))?;
        Some((self.interpolated(best), strength(&best)))
    }

    /// Returns the peak of a parabola through the values around `at`.
    fn interpolated(&self, at: usize) -> f64 {
        let value = |at: usize| f64::from(self.correlation.get(at).copied().unwrap_or(0.0).abs());
        let (before, peak, after) = (value(at.wrapping_sub(1)), value(at), value(at + 1));
        let bend = before - 2.0 * peak + after;
        at as f64 + if bend < 0.0 { (0.5 * (before - after) / bend).clamp(-0.5, 0.5) } else { 0.0 }
    }

    fn add_point(&mut self, now: f64, delay: f64) {
        self.points[self.count % POINTS] = (now, delay);
        self.count += 1;
        if let Some(known) = &mut self.delay {
            *known += 0.5 * (delay - *known);
        }
    }

    /// Returns the drift of the delay in samples a sample, if it is known well enough. A change of the warp starts anew.
    pub fn drift(&mut self) -> Option<f64> {
        if self.count < 5 {
            return None;
        }
        let points = &self.points[..self.count.min(POINTS)];
        // The median of the slopes of all pairs: single outliers do not count.
        let mut slopes = [0.0; POINTS * POINTS / 2];
        let mut length = 0;
        for (number, (time, delay)) in points.iter().enumerate() {
            for (later, after) in &points[number + 1..] {
                let apart: f64 = later - time;
                if apart.abs() > f64::from(RATE) / 2.0 {
                    slopes[length] = (after - delay) / apart;
                    length += 1;
                }
            }
        }
        if length < 3 {
            return None;
        }
        let slopes = &mut slopes[..length];
        let (_, slope, _) = slopes.select_nth_unstable_by(length / 2, f64::total_cmp);
        Some(*slope)
    }

    /// Forgets the delays so far, whose drift is compensated from now on.
    pub fn restart_drift(&mut self) {
        self.count = 0;
    }

    /// Forgets what the windows before said.
    pub fn reset(&mut self) {
        self.correlation.fill(0.0);
        (self.delay, self.contradicted, self.count) = (None, (0, 0.0), 0);
    }
}
