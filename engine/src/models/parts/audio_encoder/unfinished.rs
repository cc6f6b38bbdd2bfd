//! Encoding of one window unit by unit. Between two units its numbers are on the host, so that the device is free for others.

use std::ops::Range;

use repartee_kernels::{Ops, ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey};

use super::convolutions::{Chunk, starts};
use super::layer::LayerSegments;
use super::pieces::{EncoderWork, Piece};
use super::shape::{Convolutions, EncoderShape};
use super::tower::{AudioTower, Span, TowerPositions};
use crate::model::{EncodingProgress, WindowInput};
use crate::models::parts::rows::{HostRows, in_step};

/// Mel frames on each side of a piece whose rows see beyond it; an even number. Their rows are dropped.
const HALO: usize = 4;

/// Buffers of a step.
type Buffers<'a> = (&'a mut RowSpec, &'a mut ReadBack);

/// Part of a chunk with the frames that some of its rows see, and the number of its first rows that are dropped: the
/// convolutions see zeros before them.
fn part_of<'a>(chunk: &Chunk<'a>, rows: &Range<usize>, shape: &EncoderShape) -> (Chunk<'a>, usize) {
    let (from, to) = match shape.convolutions {
        Convolutions::Conv1d => ((2 * rows.start).saturating_sub(HALO), 2 * rows.end + HALO),
        // Each convolution reads one row above its own and one below. A row more above keeps the zeros there away from those
        // that are wanted; the frame below the last row is a row's own.
        Convolutions::Conv2d { .. } => (8 * rows.start.saturating_sub(1), 8 * rows.end),
    };
    let to = to.min(chunk.frames);
    // An image ends in frames of zeros.
    let mel = &chunk.mel[from * shape.bins..(to * shape.bins).min(chunk.mel.len())];
    let first = shape.convolutions.rows(from);
    let own = match shape.convolutions {
        Convolutions::Conv1d => shape.convolutions.rows(to - from),
        Convolutions::Conv2d { .. } => rows.end - first,
    };
    (Chunk { mel, frames: to - from, rows: own, first: chunk.first + first }, rows.start - first)
}

impl<O: Ops> AudioTower<O> {
    /// Number of units of work of a window of `frames` mel frames.
    pub fn units(&self, frames: usize) -> usize {
        EncoderWork::of_tower(self.shape(), frames).units(self.most)
    }

    /// Bytes of the numbers between two units of the longest window; 0 if it is one unit.
    pub fn unfinished_bytes(&self) -> usize {
        let shape = self.shape();
        if self.units(shape.window) == 1 {
            return 0;
        }
        let rows = shape.convolutions.rows(shape.chunk) * shape.window.div_ceil(shape.chunk);
        // Rows, those that are added later, queries, keys, values, their attention.
        rows * shape.layer.width * (5 + usize::from(shape.skip.is_some())) * size_of::<f32>()
    }

    /// Runs the next `units` units of a window. Returns its rows once all are done. After a panic the progress is that before
    /// the unit.
    pub fn advance(
        &self,
        ops: &O,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
        (spec, back): Buffers<'_>,
    ) -> Option<Vec<f32>> {
        let work = EncoderWork::of_tower(self.shape(), window.data.len() / self.shape().bins);
        let all = work.pieces(self.most);
        for piece in all.iter().skip(progress.units).take(units) {
            if *piece == Piece::Whole {
                progress.units += 1;
                return self.encode(ops, std::slice::from_ref(window), spec, back).pop();
            }
            let chunks = self.chunks(window.data, self.image_frames(window));
            let ended = self.run_piece(ops, piece, &chunks, progress, (spec, back));
            progress.units += 1;
            if ended.is_some() {
                return ended;
            }
        }
        None
    }

    /// Runs a unit over a window of some chunks.
    fn run_piece(
        &self,
        ops: &O,
        piece: &Piece,
        chunks: &[Chunk<'_>],
        progress: &mut EncodingProgress,
        (spec, back): Buffers<'_>,
    ) -> Option<Vec<f32>> {
        let shape = self.shape();
        let width = shape.layer.width;
        let rows: usize = chunks.iter().map(|chunk| chunk.rows).sum();
        match piece {
            Piece::Whole => {}
            Piece::Stem(range) => {
                let mine = chunks[range.clone()].to_vec();
                let rows: usize = mine.iter().map(|chunk| chunk.rows).sum();
                self.run(ops, &[mine], &Span { before: None, layers: 0..0, ends: false }, (spec, back));
                progress.rows.extend_from_slice(&back.numbers[..rows * width]);
            }
            Piece::StemRows(chunk, range) => {
                let (piece, skipped) = part_of(&chunks[*chunk], range, shape);
                self.run(ops, &[vec![piece]], &Span { before: None, layers: 0..0, ends: false }, (spec, back));
                let mine = skipped * width..(skipped + range.len()) * width;
                progress.rows.extend_from_slice(&back.numbers[mine]);
            }
            Piece::Layers(layers) => {
                let span = Span { before: Some((&progress.rows, &[])), layers: layers.clone(), ends: false };
                self.run(ops, &[chunks.to_vec()], &span, (spec, back));
                progress.rows.copy_from_slice(&back.numbers[..rows * width]);
                self.keep(layers.end, progress);
            }
            Piece::Project(layer, range) => {
                let projected = self.project(ops, *layer, range, chunks, &progress.rows, (spec, back));
                progress.projected.iter_mut().zip(projected).for_each(|(all, some)| all.extend(some));
            }
            Piece::Attend(_, heads) => {
                let attended = self.attend(ops, heads, rows, progress, (spec, back));
                let (from, columns) = (heads.start * width / shape.layer.heads, attended.width);
                progress.attended.resize(rows * width, 0.0);
                for (to, some) in progress.attended.chunks_exact_mut(width).zip(attended.data.chunks_exact(columns)) {
                    to[from..from + columns].copy_from_slice(some);
                }
            }
            Piece::Finish(layer, range) => {
                let at = range.start * width..range.end * width;
                let input = HostRows { width, data: progress.attended[at.clone()].to_vec() };
                let before = HostRows { width, data: progress.rows[at.clone()].to_vec() };
                let input = HostRows::concat_columns(&[&input, &before]);
                let finished = in_step(ops, &input, ("encoder finish", *layer), (spec, back), |ops, both| {
                    let [attended, x] = [0, width].map(|from| ops.narrow(&both, from, width));
                    self.layers[*layer].finish(ops, &attended, &x)
                });
                progress.rows[at].copy_from_slice(&finished.data);
                if range.end == rows {
                    progress.projected.iter_mut().for_each(Vec::clear);
                    progress.attended.clear();
                    self.keep(layer + 1, progress);
                }
            }
            Piece::End(_) => {
                let tokens = shape.pooled(rows);
                let span = Span { before: Some((&progress.rows, &progress.skipped)), layers: 0..0, ends: true };
                self.run(ops, &[chunks.to_vec()], &span, (spec, back));
                return Some(back.numbers[..tokens * shape.output_width()].to_vec());
            }
        }
        None
    }

    /// Keeps the rows after `layers` layers, if they are added later.
    fn keep(&self, layers: usize, progress: &mut EncodingProgress) {
        if self.shape().skip == Some(layers) {
            progress.skipped.clone_from(&progress.rows);
        }
    }

    /// Queries, keys and values of a range of a window's rows.
    fn project(
        &self,
        ops: &O,
        layer: usize,
        range: &Range<usize>,
        chunks: &[Chunk<'_>],
        rows: &[f32],
        (spec, back): Buffers<'_>,
    ) -> [Vec<f32>; 3] {
        let (width, count) = (self.shape().layer.width, range.len());
        let bucket = ops.bucket(count);
        // Chunks of which the range has rows, at their positions.
        let within = starts(chunks.iter().map(|chunk| chunk.rows)).filter_map(|(first, rows)| {
            let (from, to) = (first.max(range.start), (first + rows).min(range.end));
            (from < to).then(|| SequenceRows { table: &[0], position: from - first, rows: to - from })
        });
        let within: Vec<_> = within.collect();
        let mut layout = SpecLayout::default();
        let at = layout.list(bucket * width);
        let rotated =
            matches!(self.positions, TowerPositions::Rotary(_)).then(|| layout.batch(bucket, within.len() + 1, 1));
        layout.clear_spec(spec);
        spec.set_floats(at, &rows[range.start * width..range.end * width]);
        if let Some(rotated) = rotated {
            spec.set_batch(rotated, &within, 0);
        }
        let key = StepKey { stage: "encoder project", rows: bucket, variant: layer };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            let batch = rotated.map(|rotated| ops.batch_at(spec, rotated));
            let rotary = match &self.positions {
                TowerPositions::Rotary(frequencies) => batch.as_ref().map(|batch| (batch, frequencies)),
                TowerPositions::Added(_) => None,
            };
            outputs.rows.extend(self.layers[layer].project(ops, &ops.floats(spec, at, width), rotary));
        });
        ops.collect(ticket, back);
        [0, 1, 2].map(|part| back.numbers[part * bucket * width..][..count * width].to_vec())
    }

    /// Attention of some heads over a window of `rows` rows; returns their columns.
    fn attend(
        &self,
        ops: &O,
        heads: &Range<usize>,
        rows: usize,
        progress: &EncodingProgress,
        (spec, back): Buffers<'_>,
    ) -> HostRows {
        let shape = self.shape();
        let (width, dim) = (shape.layer.width, shape.layer.width / shape.layer.heads);
        let (columns, bucket) = (heads.len() * dim, ops.bucket(rows));
        let mut layout = SpecLayout::default();
        let parts = [(); 3].map(|()| layout.list(bucket * columns));
        let segments = layout.segments(bucket, bucket);
        layout.clear_spec(spec);
        for (at, all) in parts.iter().zip(&progress.projected) {
            let some = all.chunks_exact(width).flat_map(|row| &row[heads.start * dim..heads.end * dim]);
            spec.set_floats_each(*at, some.copied());
        }
        spec.set_segments(segments, &[rows]);
        let key = StepKey { stage: "encoder attend", rows: bucket, variant: heads.len() };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            let projected = parts.map(|at| ops.floats(spec, at, columns));
            let lengths = &ops.index(spec, segments.words());
            let segments = LayerSegments { lengths, rotary: None, reach: shape.reach };
            outputs.rows.extend(self.layers.first().map(|layer| layer.attend(ops, &projected, &segments, heads.len())));
        });
        ops.collect(ticket, back);
        HostRows { width: columns, data: back.numbers[..rows * columns].to_vec() }
    }
}
