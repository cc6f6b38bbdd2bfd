//! Upper bound of the echo in each band, without a known delay: what was played at each delay, times the most that the input has allowed.
//!
//! The input is never softer than the echo in it. So a delay at which loud playback met a soft input has a soft echo, if any.

use super::units::{BANDS, Bands};

/// Delays, in blocks of 10 ms.
const LAGS: usize = 84;
/// Gain in power before anything is known, 6 dB.
const FIRST: f32 = 4.0;
/// Part of the way to a lower ratio in one block, and the rise otherwise, 4 dB/s.
const DOWN: f32 = 0.4;
const UP: f32 = 1.01;
/// Least power of a band that tells anything, and its least share of the band's mean.
const AUDIBLE: f32 = 1e-4;
const LOUD: f32 = 0.3;
/// Decay of the bound from block to block: a room rings.
const RING: f32 = 0.8;

/// Bound on the echo of one call.
#[derive(Debug)]
pub(super) struct EchoBound {
    played: [Bands; LAGS],
    newest: usize,
    mean: Bands,
    gains: [Bands; LAGS],
    bound: Bands,
    /// True until the first block.
    is_new: bool,
}

impl EchoBound {
    pub fn new() -> Self {
        let silent = [0.0; BANDS];
        Self {
            played: [silent; LAGS],
            newest: 0,
            mean: silent,
            gains: [[FIRST; BANDS]; LAGS],
            bound: silent,
            is_new: true,
        }
    }

    /// Forgets what the input has allowed.
    pub fn reset(&mut self) {
        if !self.is_new {
            *self = Self::new();
        }
    }

    /// Takes the powers of a block of playback and of the input, unless the input was lost; returns the bound.
    pub fn push(&mut self, played: &Bands, input: Option<&Bands>) -> &Bands {
        self.is_new = false;
        self.newest = (self.newest + LAGS - 1) % LAGS;
        self.played[self.newest] = *played;
        for ((mean, bound), played) in self.mean.iter_mut().zip(&mut self.bound).zip(played) {
            *mean += 0.02 * (played - *mean);
            *bound *= RING;
        }
        for (lag, gains) in self.gains.iter_mut().enumerate() {
            let played = &self.played[(self.newest + lag) % LAGS];
            for band in 0..BANDS {
                let power = played[band];
                if let Some(input) = input.filter(|_| power > AUDIBLE.max(LOUD * self.mean[band])) {
                    let ratio = input[band] / power;
                    gains[band] = match ratio < gains[band] {
                        true => gains[band] + DOWN * (ratio - gains[band]),
                        false => (gains[band] * UP).min(FIRST),
                    };
                }
                self.bound[band] = self.bound[band].max(power * gains[band]);
            }
        }
        &self.bound
    }
}
