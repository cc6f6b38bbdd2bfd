//! Units of work of an encoder over one window: each has a bounded number of multiplications, so that other callers wait for no
//! more than one. A small window is one unit, and such windows are encoded as a batch.
//!
//! The units of a window follow from its shape and length alone. Rows are independent in all but the attention, and heads are
//! in it, so the numbers equal those of the whole window bit for bit.

use std::ops::Range;

use super::convolutions::TAPS;
use super::shape::{Convolutions, EncoderShape};

/// Most multiplications of a unit; some 20 ms of one thread with AVX-512, 10 of two.
pub const UNIT: usize = 500_000_000;

/// Unit of work over a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The whole encoder.
    Whole,
    /// The convolutions over some chunks.
    Stem(Range<usize>),
    /// The convolutions for some rows of a chunk.
    StemRows(usize, Range<usize>),
    /// A range of layers, each with all of its rows.
    Layers(Range<usize>),
    /// Queries, keys and values of rows in a layer.
    Project(usize, Range<usize>),
    /// Attention of some heads in a layer.
    Attend(usize, Range<usize>),
    /// The rest of a layer for some rows.
    Finish(usize, Range<usize>),
    /// Norm and projection of some rows, or of all if they cannot be cut.
    End(Range<usize>),
}

/// Cuts `0..count`, which take `work` multiplications together, into ranges of at most `most`, or of one. None has more than one
/// more than another, but the last one.
pub fn ranges(count: usize, work: usize, most: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    let of_one = work.div_ceil(count.max(1)).max(1);
    let parts = count.div_ceil((most / of_one).max(1)).max(1);
    let each = count.div_ceil(parts).max(1);
    (0..count).step_by(each).map(move |from| from..(from + each).min(count))
}

/// Work of an encoder over one window: its parts, and the multiplications of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderWork {
    /// Rows of each chunk but the last one, and their number.
    pub full_chunks: (usize, usize),
    /// Rows of the last chunk.
    pub last_chunk: usize,
    /// Multiplications of the convolutions over all chunks.
    pub stem: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of layers whose rows are kept; 0 if none are.
    pub kept: usize,
    /// Attention heads of a layer.
    pub heads: usize,
    /// Multiplications of a layer's queries, keys and values over all rows.
    pub project: usize,
    /// Multiplications of its attention.
    pub attend: usize,
    /// Multiplications of the rest of it.
    pub finish: usize,
    /// Multiplications after the layers.
    pub end: usize,
    /// Rows after the layers, if they can be cut; otherwise 1.
    pub end_rows: usize,
}

impl EncoderWork {
    /// Work of an encoder of Whisper's kind over `frames` mel frames.
    pub fn of_tower(shape: &EncoderShape, frames: usize) -> Self {
        let chunks = frames.div_ceil(shape.chunk).max(1);
        let full_chunks = (shape.convolutions.rows(shape.chunk), chunks - 1);
        let last_chunk = shape.convolutions.rows(frames - (chunks - 1) * shape.chunk);
        let rows = full_chunks.0 * full_chunks.1 + last_chunk;
        let (width, inner) = (shape.layer.width, shape.layer.inner);
        let widths = std::iter::once(width).chain(shape.projection.iter().map(|(_, width)| *width));
        Self {
            full_chunks,
            last_chunk,
            stem: stem_work(shape, frames),
            layers: shape.layers,
            kept: shape.skip.unwrap_or(0).min(shape.layers),
            heads: shape.layer.heads,
            project: rows * 3 * width * width,
            attend: 2 * rows * rows * width,
            finish: rows * (width * width + 2 * width * inner),
            end: widths.zip(&shape.projection).map(|(input, (_, output))| rows * input * output).sum(),
            end_rows: 1,
        }
    }

    /// Rows of all chunks.
    pub fn rows(&self) -> usize {
        self.full_chunks.0 * self.full_chunks.1 + self.last_chunk
    }

    fn layer(&self) -> usize {
        self.project + self.attend + self.finish
    }

    /// True if the whole window is one unit.
    fn is_whole(&self, most: usize) -> bool {
        self.stem.saturating_add(self.layers * self.layer()).saturating_add(self.end) <= most
    }

    /// Multiplications of a row of the convolutions.
    fn stem_row(&self) -> usize {
        self.stem.div_ceil(self.rows().max(1))
    }

    /// True if a chunk's convolutions are more than a unit.
    fn cuts_chunks(&self, most: usize) -> bool {
        self.stem_row() * self.full_chunks.0.max(self.last_chunk) > most
    }

    /// Rows of chunks, in order.
    fn chunks(&self) -> impl Iterator<Item = usize> {
        let Self { full_chunks: (rows, count), last_chunk, .. } = *self;
        (0..=count).map(move |at| if at < count { rows } else { last_chunk })
    }

    /// The two ranges of layers between which rows are kept.
    fn spans(&self) -> [Range<usize>; 2] {
        [0..self.kept, self.kept..self.layers]
    }

    /// Number of units with at most about `most` multiplications each: as many as [`EncoderWork::pieces`] lists.
    pub fn units(&self, most: usize) -> usize {
        if self.is_whole(most) {
            return 1;
        }
        let stem: usize = if self.cuts_chunks(most) {
            let of_chunk = |rows: usize| ranges(rows, rows * self.stem_row(), most).len();
            self.full_chunks.1 * of_chunk(self.full_chunks.0) + of_chunk(self.last_chunk)
        } else {
            ranges(self.full_chunks.1 + 1, self.stem, most).len()
        };
        let layers: usize = if self.layer() <= most {
            self.spans().iter().map(|span| ranges(span.len(), span.len() * self.layer(), most).len()).sum()
        } else {
            let of_rows = |work| ranges(self.rows(), work, most).len();
            self.layers * (of_rows(self.project) + ranges(self.heads, self.attend, most).len() + of_rows(self.finish))
        };
        stem + layers + ranges(self.end_rows, self.end, most).len()
    }

    /// Units with at most about `most` multiplications each.
    pub fn pieces(&self, most: usize) -> Vec<Piece> {
        if self.is_whole(most) {
            return vec![Piece::Whole];
        }
        let mut pieces: Vec<Piece> = if self.cuts_chunks(most) {
            let cut = |(at, rows): (usize, usize)| {
                ranges(rows, rows * self.stem_row(), most).map(move |rows| Piece::StemRows(at, rows))
            };
            self.chunks().enumerate().flat_map(cut).collect()
        } else {
            ranges(self.full_chunks.1 + 1, self.stem, most).map(Piece::Stem).collect()
        };
        if self.layer() <= most {
            for span in self.spans() {
                let cut = ranges(span.len(), span.len() * self.layer(), most);
                pieces.extend(cut.map(|cut| Piece::Layers(span.start + cut.start..span.start + cut.end)));
            }
        } else {
            for at in 0..self.layers {
                pieces.extend(ranges(self.rows(), self.project, most).map(|rows| Piece::Project(at, rows)));
                pieces.extend(ranges(self.heads, self.attend, most).map(|heads| Piece::Attend(at, heads)));
                pieces.extend(ranges(self.rows(), self.finish, most).map(|rows| Piece::Finish(at, rows)));
            }
        }
        pieces.extend(ranges(self.end_rows, self.end, most).map(Piece::End));
        pieces
    }
}

/// Multiplications of the convolutions over `frames` mel frames.
fn stem_work(shape: &EncoderShape, frames: usize) -> usize {
    let (bins, width) = (shape.bins, shape.layer.width);
    match shape.convolutions {
        Convolutions::Conv1d => frames * TAPS * bins * width + frames.div_ceil(2) * TAPS * width * width,
        Convolutions::Conv2d { channels: c } => {
            // A fourth of the pixels after each.
            let pixels = frames * bins;
            let convolutions = pixels / 4 * 9 * c + (pixels / 16 + pixels / 64) * 9 * c * c;
            convolutions + frames.div_ceil(8) * c * bins.div_ceil(8) * width
        }
    }
}
