//! Solver of the mel spectrogram: the times of its evaluations, the extent of a window, and the guidance that makes one
//! slope of two.

use std::f32::consts::FRAC_PI_2;

use super::config::DitConfig;
use super::solver::Rk4;

/// Number of time points, first and last included; the reference's default, which no published configuration changes.
const POINTS: usize = 10;
/// Guidance strength: extrapolation beyond the guided slope, away from the unguided one. Also the reference's default.
const GUIDANCE: f32 = 0.5;

/// Creates the solver with the reference's times: short steps first, since they decide the spectrogram's shape.
pub fn solver() -> Rk4 {
    let at = |i: usize| {
        let even = i as f32 / (POINTS - 1) as f32;
        even - ((FRAC_PI_2 * even).cos() - 1.0 + even)
    };
    Rk4::new((0..POINTS).map(at).collect())
}

/// Combines a window's slopes: the first half of `rows` is guided, the second half unguided.
pub fn guide(rows: &[f32]) -> Vec<f32> {
    let (guided, null) = rows.split_at(rows.len() / 2);
    guided.iter().zip(null).map(|(guided, null)| guided + (guided - null) * GUIDANCE).collect()
}

/// Codes that a block is solved with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First code of the window.
    pub from: usize,
    /// First code of the block.
    pub block: usize,
    /// End of the block (exclusive).
    pub block_end: usize,
    /// End of the window (exclusive).
    pub to: usize,
}

impl Window {
    /// Window of the block that begins with code `block`, given `codes` codes so far; `None` if it must wait for more.
    /// After `ended` it does not wait.
    ///
    /// It has as many blocks on either side as one evaluation of the block depends on. A whole solve evaluates many
    /// times in a row and depends on everything, so its result differs from a window's; the engine uses the window's.
    pub fn of(config: &DitConfig, block: usize, codes: usize, ended: bool) -> Option<Self> {
        let size = config.block_codes();
        let (before, after) = config.window_blocks();
        let to = block + (1 + after) * size;
        (codes >= to || (ended && codes > block)).then(|| Self {
            from: block.saturating_sub(before * size),
            block,
            block_end: codes.min(block + size),
            to: codes.min(to),
        })
    }

    /// Number of codes in the window.
    pub fn codes(&self) -> usize {
        self.to - self.from
    }
}
