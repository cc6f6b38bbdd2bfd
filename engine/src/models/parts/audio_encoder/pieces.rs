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
    /// The convolutions for some rows of the only chunk.
    StemRows(Range<usize>),
    /// A range of layers, each with all of its rows.
    Layers(Range<usize>),
    /// Queries, keys and values of rows in a layer.
    Project(usize, Range<usize>),
    /// Attention of some heads in a layer.
    Attend(usize, Range<usize>),
    /// The rest of a layer for some rows.
    Finish(usize, Range<usize>),
    /// Norm and projection.
    End,
}

/// Cuts `0..count`, which take `work` multiplications together, into ranges of about `most`.
pub fn ranges(count: usize, work: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = work.div_ceil(most.max(1)).clamp(1, count.max(1));
    let each = count.div_ceil(parts).max(1);
    (0..count).step_by(each).map(move |from| from..(from + each).min(count))
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

/// Units of a window of `frames` mel frames, with at most about `most` multiplications each.
pub fn pieces(shape: &EncoderShape, frames: usize, most: usize) -> Vec<Piece> {
    let full = shape.convolutions.rows(shape.chunk) * (frames / shape.chunk);
    let rows = full + shape.convolutions.rows(frames % shape.chunk);
    let (width, inner, layers) = (shape.layer.width, shape.layer.inner, shape.layers);
    let project = rows * 3 * width * width;
    let attend = 2 * rows * rows * width;
    let finish = rows * (width * width + 2 * width * inner);
    let layer = project + attend + finish;
    let stem = stem_work(shape, frames);
    let widths = std::iter::once(width).chain(shape.projection.iter().map(|(_, width)| *width));
    let end: usize = widths.zip(&shape.projection).map(|(input, (_, output))| rows * input * output).sum();
    if stem.saturating_add(layers * layer).saturating_add(end) <= most {
        return vec![Piece::Whole];
    }
    let chunks = frames.div_ceil(shape.chunk);
    let mut pieces: Vec<Piece> = match shape.convolutions {
        Convolutions::Conv1d if chunks == 1 => ranges(rows, stem, most).map(Piece::StemRows).collect(),
        Convolutions::Conv1d | Convolutions::Conv2d { .. } => ranges(chunks, stem, most).map(Piece::Stem).collect(),
    };
    if layer <= most {
        // The rows of a layer that are added later are kept between two units.
        let before = shape.skip.unwrap_or(0).min(layers);
        for part in [0..before, before..layers] {
            let cut = ranges(part.len(), part.len() * layer, most);
            pieces.extend(cut.map(|cut| Piece::Layers(part.start + cut.start..part.start + cut.end)));
        }
    } else {
        for at in 0..layers {
            pieces.extend(ranges(rows, project, most).map(|rows| Piece::Project(at, rows)));
            pieces.extend(ranges(shape.layer.heads, attend, most).map(|heads| Piece::Attend(at, heads)));
            pieces.extend(ranges(rows, finish, most).map(|rows| Piece::Finish(at, rows)));
        }
    }
    pieces.push(Piece::End);
    pieces
}
