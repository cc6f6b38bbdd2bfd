//! Window of a block: the codes that it is solved with.

use super::config::DitConfig;

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
