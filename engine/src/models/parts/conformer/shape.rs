//! Sizes of a FastConformer encoder.

/// Sizes of an encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConformerShape {
    /// Numbers of a frame.
    pub bins: usize,
    /// Width of a row.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// Attention heads of a layer.
    pub heads: usize,
    /// Inner width of the feed-forward blocks.
    pub inner: usize,
    /// Rows that a layer's convolution sees; odd.
    pub taps: usize,
    /// Channels of the convolutions in front of the layers.
    pub channels: usize,
    /// True if rows are multiplied by the square root of their width before the layers.
    pub scales_rows: bool,
    /// Widths of the rows after each matrix of the adapter.
    pub adapter: Vec<usize>,
}

impl ConformerShape {
    /// Times that the convolutions in front halve frames and bins.
    pub const HALVINGS: usize = 3;

    /// Rows, or bins, after each of the convolutions in front; the first entry is `count` itself.
    pub fn halved(count: usize) -> [usize; Self::HALVINGS + 1] {
        let mut counts = [count; Self::HALVINGS + 1];
        for at in 1..counts.len() {
            counts[at] = counts[at - 1].div_ceil(2);
        }
        counts
    }

    /// Rows of a window of `frames` frames.
    pub fn rows(frames: usize) -> usize {
        Self::halved(frames)[Self::HALVINGS]
    }

    /// Width of an encoded row.
    pub fn output(&self) -> usize {
        self.adapter.last().copied().unwrap_or(self.width)
    }
}
