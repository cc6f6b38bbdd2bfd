//! Encoding of one window unit by unit. Between two units its numbers are on the host, so that the device is free for others.

use std::ops::Range;

use repartee_kernels::{Ops, ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey};

use super::attention::Positions;
use super::encoder::Conformer;
use super::shape::ConformerShape;
use crate::model::EncodingProgress;
use crate::models::parts::audio_encoder::pieces::{EncoderWork, Piece};
use crate::models::parts::rows::{HostRows, in_step};

/// Buffers of a step.
type Buffers<'a> = (&'a mut RowSpec, &'a mut ReadBack);
/// Frames of a row.
const FRAMES: usize = 1 << ConformerShape::HALVINGS;
/// Taps of a convolution in front.
const TAPS: usize = 9;

impl ConformerShape {
    /// Work over a window of `frames` frames.
    pub fn work(&self, frames: usize) -> EncoderWork {
        let (frames, bins) = (Self::halved(frames), Self::halved(self.bins));
        let (rows, width, heads) = (frames[Self::HALVINGS], self.width, self.heads);
        let convolution = |at: usize| {
            let input = if at == 1 { 1 } else { self.channels };
            frames[at] * bins[at] * TAPS * input * self.channels
        };
        let block = 2 * width * self.inner;
        let widths = std::iter::once(width).chain(self.adapter.iter().copied());
        EncoderWork {
            full_chunks: (0, 0),
            last_chunk: rows,
            stem: (1..=Self::HALVINGS).map(convolution).sum::<usize>()
                + rows * self.channels * bins[Self::HALVINGS] * width,
            layers: self.layers,
            kept: 0,
            heads,
            project: rows * (block + 3 * width * width),
            // A head's numbers and those of positions, for scores and for values; and the matrix to the latter.
            attend: rows * (2 * rows * (width + heads * width) + width * width),
            finish: rows * (block + 4 * width * width + self.taps * width),
            end: rows * widths.zip(&self.adapter).map(|(input, output)| input * output).sum::<usize>(),
            end_rows: rows,
        }
    }
}

impl<O: Ops> Conformer<O> {
    /// Number of units of work of a window of `frames` frames.
    pub fn units(&self, frames: usize) -> usize {
        self.shape.work(frames).units(self.most)
    }

    /// Bytes of the numbers between two units of a window of `frames` frames; 0 if it is one unit.
    pub fn unfinished_bytes(&self, frames: usize) -> usize {
        if self.units(frames) == 1 {
            return 0;
        }
        // Rows, finished rows, queries, keys, values, their attention; or results.
        ConformerShape::rows(frames) * (6 * self.shape.width + self.output()) * size_of::<f32>()
    }

    /// Runs the next `units` units of a window, `[frames, bins]`. Returns its rows once all are done.
    pub fn advance(
        &self,
        ops: &O,
        mel: &[f32],
        progress: &mut EncodingProgress,
        units: usize,
        (spec, back): Buffers<'_>,
    ) -> Option<Vec<f32>> {
        let all = self.shape.work(mel.len() / self.shape.bins).pieces(self.most);
        for piece in all.iter().skip(progress.units).take(units) {
            let ended = match piece {
                Piece::Whole => Some(self.encode(ops, mel, spec, back)),
                _ => self.run_piece(ops, piece, mel, progress, (spec, back)),
            };
            progress.units += 1;
            if ended.is_some() {
                return ended;
            }
        }
        None
    }

    /// Runs a unit over a window.
    fn run_piece(
        &self,
        ops: &O,
        piece: &Piece,
        mel: &[f32],
        progress: &mut EncodingProgress,
        (spec, back): Buffers<'_>,
    ) -> Option<Vec<f32>> {
        let (width, rows) = (self.shape.width, ConformerShape::rows(mel.len() / self.shape.bins));
        match piece {
            Piece::Whole => {}
            // The only chunk.
            Piece::Stem(_) => progress.rows = self.subsample(ops, &(0..rows), mel, (spec, back)),
            Piece::StemRows(_, range) => progress.rows.extend(self.subsample(ops, range, mel, (spec, back))),
            Piece::Layers(layers) => {
                let input = HostRows { width, data: std::mem::take(&mut progress.rows) };
                let key = ("conformer layers", layers.start);
                progress.rows = self.within(ops, &input, key, (spec, back), |x, at| {
                    self.layers[layers.clone()].iter().fold(x, |x, layer| layer.forward(ops, x, self.shape.heads, at))
                });
            }
            Piece::Project(layer, range) => {
                let at = range.start * width..range.end * width;
                let input = HostRows { width, data: progress.rows[at.clone()].to_vec() };
                let key = ("conformer project", *layer);
                let all = in_step(ops, &input, key, (spec, back), |ops, x| {
                    let (x, [q, k, v]) = self.layers[*layer].project(ops, x);
                    ops.concat_columns(&[&x, &q, &k, &v])
                });
                progress.rows[at].copy_from_slice(&all.columns(0, width).data);
                for (part, to) in progress.projected.iter_mut().enumerate() {
                    to.extend(all.columns((1 + part) * width, width).data);
                }
            }
            Piece::Attend(layer, heads) => {
                let head = width / self.shape.heads;
                let (from, columns) = (heads.start * head, heads.len() * head);
                let parts: Vec<HostRows> = progress
                    .projected
                    .iter()
                    .map(|all| HostRows {
                        width: columns,
                        data: all.chunks_exact(width).flat_map(|row| &row[from..from + columns]).copied().collect(),
                    })
                    .collect();
                let input = HostRows::concat_columns(&parts.iter().collect::<Vec<_>>());
                let key = ("conformer attend", layer * (self.shape.heads + 1) + heads.start);
                let attended = self.within(ops, &input, key, (spec, back), |x, at| {
                    let projected = [0, 1, 2].map(|part| ops.narrow(&x, part * columns, columns));
                    self.layers[*layer].attend(ops, &projected, heads.clone(), at)
                });
                progress.attended.resize(rows * width, 0.0);
                for (to, some) in progress.attended.chunks_exact_mut(width).zip(attended.chunks_exact(columns)) {
                    to[from..from + columns].copy_from_slice(some);
                }
            }
            Piece::Finish(layer, range) => {
                // The convolution sees rows on both sides.
                let reach = self.shape.taps / 2;
                let seen = range.start.saturating_sub(reach)..rows.min(range.end + reach);
                let part = |all: &[f32]| all[seen.start * width..seen.end * width].to_vec();
                let [attended, x] = [&progress.attended, &progress.rows].map(|all| HostRows { width, data: part(all) });
                let input = HostRows::concat_columns(&[&attended, &x]);
                let key = ("conformer finish", *layer);
                let finished = self.within(ops, &input, key, (spec, back), |both, at| {
                    let [attended, x] = [0, width].map(|from| ops.narrow(&both, from, width));
                    self.layers[*layer].finish(ops, &attended, &x, at.segments)
                });
                // The rows before are seen until all are finished.
                let mine = (range.start - seen.start) * width..(range.end - seen.start) * width;
                progress.skipped.extend_from_slice(&finished[mine]);
                if range.end == rows {
                    progress.rows = std::mem::take(&mut progress.skipped);
                    progress.projected.iter_mut().for_each(Vec::clear);
                    progress.attended.clear();
                }
            }
            Piece::End(range) => {
                let input = HostRows { width, data: progress.rows[range.start * width..range.end * width].to_vec() };
                let key = ("conformer adapter", 0);
                let adapted = in_step(ops, &input, key, (spec, back), |ops, x| self.adapt(ops, &x));
                progress.skipped.extend(adapted.data);
                return (range.end == rows).then(|| std::mem::take(&mut progress.skipped));
            }
        }
        None
    }

    /// Rows before the layers, of a range.
    fn subsample(&self, ops: &O, range: &Range<usize>, mel: &[f32], (spec, back): Buffers<'_>) -> Vec<f32> {
        let bins = self.shape.bins;
        // Each convolution reads one row above its own and one below. A row more above keeps the zeros there away from those
        // that are wanted; the frame below the last row is a row's own.
        let first = range.start.saturating_sub(1);
        let mel = &mel[first * FRAMES * bins..(range.end * FRAMES * bins).min(mel.len())];
        let mut layout = SpecLayout::default();
        let sections = self.subsampling.layout(ops, &mut layout, mel.len() / bins);
        layout.clear_spec(spec);
        self.subsampling.fill(spec, &sections, mel);
        let key = StepKey { stage: "conformer rows", rows: sections.rows(), variant: sections.variant() };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(self.begin(ops, spec, &sections));
        });
        ops.collect(ticket, back);
        let width = self.shape.width;
        back.numbers[(range.start - first) * width..(range.end - first) * width].to_vec()
    }

    /// Computes consecutive rows of a window, which see each other, in a step. Their positions count from 0.
    fn within(
        &self,
        ops: &O,
        input: &HostRows,
        (stage, variant): (&'static str, usize),
        (spec, back): Buffers<'_>,
        compute: impl Fn(O::T, &Positions<'_, O>) -> O::T,
    ) -> Vec<f32> {
        let (count, rows) = (input.count(), ops.bucket(input.count()));
        let mut layout = SpecLayout::default();
        let (x, zeros) = (layout.list(rows * input.width), layout.list(rows));
        let (batch, segments) = (layout.batch(rows, 1, 1), layout.segments(rows, 1));
        layout.clear_spec(spec);
        spec.set_floats(x, &input.data);
        spec.set_each(zeros, std::iter::repeat_n(0, rows));
        spec.set_batch(batch, &[SequenceRows { table: &[0], position: 0, rows: count }], 0);
        spec.set_segments(segments, &[count]);
        let ticket = ops.launch(StepKey { stage, rows, variant }, spec, &mut |ops, spec, outputs| {
            let batch = ops.batch_at(spec, batch);
            let at = Positions {
                batch: &batch,
                segments: &ops.index(spec, segments.words()),
                keys: &self.positions.keys(ops, &ops.index(spec, zeros), &batch),
                frequencies: self.positions.frequencies(),
            };
            outputs.rows.push(compute(ops.floats(spec, x, input.width), &at));
        });
        ops.collect(ticket, back);
        back.numbers[..count * (back.numbers.len() / rows)].to_vec()
    }
}
