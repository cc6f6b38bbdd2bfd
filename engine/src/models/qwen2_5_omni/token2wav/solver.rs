//! The solve of a mel spectrogram: which times it is evaluated at, what a window of it holds, and how the two rows of an evaluation
//! become one slope.

use std::f32::consts::FRAC_PI_2;

use super::config::DitConfig;
use crate::models::parts::ode::Rk4;

/// Points of time, first and last included; the reference's default, which no published configuration changes.
const POINTS: usize = 10;
/// How far the slope goes beyond the guided one, away from the one without guidance. Likewise.
const GUIDANCE: f32 = 0.5;

/// The solver with the reference's times: short steps first, where the spectrogram's shape is decided.
pub fn solver() -> Rk4 {
    let at = |i: usize| {
        let even = i as f32 / (POINTS - 1) as f32;
        even - ((FRAC_PI_2 * even).cos() - 1.0 + even)
    };
    Rk4::new((0..POINTS).map(at).collect())
}

/// The slope of a window out of its guided rows and as many without guidance after them.
pub fn guide(rows: &[f32]) -> Vec<f32> {
    let (guided, null) = rows.split_at(rows.len() / 2);
    guided.iter().zip(null).map(|(guided, null)| guided + (guided - null) * GUIDANCE).collect()
}

/// The codes that a block is solved with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First code of the window.
    pub from: usize,
    /// First code of the block.
    pub block: usize,
    /// The code after the block.
    pub block_end: usize,
    /// The code after the window.
    pub to: usize,
}

impl Window {
    /// The window of the block that begins with code `block`, of `codes` codes that there are; `None` while it waits for more, which an
    /// ended response does not.
    ///
    /// It has as many blocks on either side as one evaluation of the block depends on. A whole solve evaluates many times in a row and
    /// depends on everything: the window's solve is another one, and the one that is served.
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

    /// Codes in it.
    pub fn codes(&self) -> usize {
        self.to - self.from
    }
}
