//! Shape of an audio encoder: sizes, and what tells published encoders apart.

use super::layer::{AudioLayerShape, Reach};

/// Shape of an audio encoder.
#[derive(Debug, Clone)]
pub struct EncoderShape {
    /// Mel bins of an input frame.
    pub bins: usize,
    /// Mel frames of a window, whose rows attend to each other.
    pub window: usize,
    /// Mel frames of a chunk. The convolutions see one chunk at a time, and positions count from its first row. A window
    /// is a number of whole chunks.
    pub chunk: usize,
    /// Convolutions in front of the layers.
    pub convolutions: Convolutions,
    /// Positions of the rows in their chunk.
    pub positions: Positions,
    /// Number of layers.
    pub layers: usize,
    /// Sizes of a layer.
    pub layer: AudioLayerShape,
    /// Rows of its window that a row attends to.
    pub reach: Reach,
    /// Number of layers whose result is added to that of all of them; `None` for a plain stack.
    pub skip: Option<usize>,
    /// True if each two rows of a window become their mean after the layers; a row without a pair is dropped.
    pub pairs: bool,
    /// Name of the norm after the layers.
    pub norm: &'static str,
    /// Names and output widths of the linear layers after the norm, with a GELU between two.
    pub projection: Vec<(&'static str, usize)>,
}

/// Convolutions in front of the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convolutions {
    /// `conv1` and `conv2` over the time, each of three frames; the second has stride 2.
    Conv1d,
    /// `conv2d1` to `conv2d3` over bins and time, each of three by three and stride 2, then `conv_out` over channels and
    /// bins. A chunk that is not full is padded with zeros if a full one precedes it in its audio item.
    Conv2d {
        /// Channels of each convolution.
        channels: usize,
    },
}

impl Convolutions {
    /// Number of rows that `frames` mel frames of a chunk give.
    pub fn rows(self, frames: usize) -> usize {
        match self {
            Self::Conv1d => frames.div_ceil(2),
            // Each halves the frames and rounds up.
            Self::Conv2d { .. } => frames.div_ceil(8),
        }
    }
}

/// Positions of the rows in their chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Positions {
    /// Whisper's sines and cosines.
    Sinusoids,
    /// A table of the checkpoint, with this name.
    Table(&'static str),
    /// Rotations of queries and keys, with wavelengths of this base.
    Rotary(f32),
}

impl EncoderShape {
    /// Number of output rows of a window of `frames` mel frames.
    pub fn tokens(&self, frames: usize) -> usize {
        let rows = self.convolutions.rows(self.chunk) * (frames / self.chunk);
        self.pooled(rows + self.convolutions.rows(frames % self.chunk))
    }

    /// Number of output rows of a window with `rows` rows in the layers.
    pub(super) fn pooled(&self, rows: usize) -> usize {
        if self.pairs { rows / 2 } else { rows }
    }

    /// Width of an output row.
    pub fn output_width(&self) -> usize {
        self.projection.last().map_or(self.layer.width, |(_, width)| *width)
    }
}
