//! Attention over blocks of cached keys and values, and attention within segments.
//!
//! Each row is computed by itself, position after position in ascending order, so that its result depends on its own
//! sequence alone: not on the block size, the batch or how the sequence was cut into chunks.

use super::math::{exp, sum_by};
use super::simd::{dispatch, multiply_add};
use crate::ops::{Attention, AttentionBatch};

/// Keys and values of one layer: `[block][position][width]` each.
#[derive(Debug)]
pub struct Cache {
    /// Positions in a block.
    pub block_len: usize,
    /// Numbers in one position's keys.
    pub width: usize,
    /// Keys.
    pub keys: Vec<f32>,
    /// Values.
    pub values: Vec<f32>,
}

impl Cache {
    /// Where `position` of the sequence with `table` lies; a short table is a ring.
    #[inline(always)]
    fn offset(&self, table: &[u32], position: usize) -> usize {
        let block = table[position / self.block_len % table.len()] as usize;
        (block * self.block_len + position % self.block_len) * self.width
    }

    /// Stores the rows' keys and values at their positions.
    pub fn store(&mut self, k: &[f32], v: &[f32], batch: &AttentionBatch) {
        for sequence in &batch.sequences {
            for i in 0..sequence.rows {
                let at = self.offset(&batch.tables[sequence.table.clone()], sequence.position + i);
                let from = (sequence.row + i) * self.width;
                self.keys[at..at + self.width].copy_from_slice(&k[from..from + self.width]);
                self.values[at..at + self.width].copy_from_slice(&v[from..from + self.width]);
            }
        }
    }
}

/// One query head over the positions whose keys and values begin at `offsets`.
#[inline(always)]
fn head<const FUSED: bool>(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    offsets: &[usize],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let n = q.len();
    let scale = 1.0 / (n as f32).sqrt();
    let mut top = f32::NEG_INFINITY;
    for (score, &at) in scores.iter_mut().zip(offsets) {
        let key = &keys[at..at + n];
        *score = scale * sum_by::<FUSED>(n, |i, s| multiply_add::<FUSED>(q[i], key[i], s));
        top = top.max(*score);
    }
    let mut total = 0.0;
    for score in scores.iter_mut() {
        *score = exp::<FUSED>(*score - top);
        total += *score;
    }
    out.fill(0.0);
    for (&score, &at) in scores.iter().zip(offsets) {
        for (o, &v) in out.iter_mut().zip(&values[at..at + n]) {
            *o = multiply_add::<FUSED>(score, v, *o);
        }
    }
    for o in out {
        *o /= total;
    }
}

#[inline(always)]
fn cached_loop<const FUSED: bool>(q: &[f32], cache: &Cache, batch: &AttentionBatch, shape: Attention, out: &mut [f32]) {
    let (width, dim) = (shape.heads * shape.head_dim, shape.head_dim);
    let group = shape.heads / shape.kv_heads;
    let (mut offsets, mut shifted, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    for sequence in &batch.sequences {
        let table = &batch.tables[sequence.table.clone()];
        for i in 0..sequence.rows {
            let position = sequence.position + i;
            let start = shape.window.map_or(0, |w| (position + 1).saturating_sub(w));
            offsets.clear();
            offsets.extend((start..=position).map(|p| cache.offset(table, p)));
            scores.resize(offsets.len(), 0.0);
            let row = (sequence.row + i) * width;
            for kv in 0..shape.kv_heads {
                shifted.clear();
                shifted.extend(offsets.iter().map(|at| at + kv * dim));
                for h in kv * group..(kv + 1) * group {
                    let at = row + h * dim;
                    let out = &mut out[at..at + dim];
                    head::<FUSED>(&q[at..at + dim], &cache.keys, &cache.values, &shifted, &mut scores, out);
                }
            }
        }
    }
}

#[inline(always)]
fn segments_loop<const FUSED: bool>(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    segments: &[usize],
    heads: usize,
    out: &mut [f32],
) {
    let rows: usize = segments.iter().sum();
    let width = q.len() / rows.max(1);
    let dim = width / heads;
    let (mut offsets, mut scores) = (Vec::new(), Vec::new());
    let mut first = 0;
    for &n in segments {
        scores.resize(n, 0.0);
        for h in 0..heads {
            offsets.clear();
            offsets.extend((first..first + n).map(|row| row * width + h * dim));
            for i in 0..n {
                let at = offsets[i];
                head::<FUSED>(&q[at..at + dim], k, v, &offsets, &mut scores, &mut out[at..at + dim]);
            }
        }
        first += n;
    }
}

dispatch!(/// Causal attention of each row over its sequence in `cache`, which holds the rows' own keys already.
    pub fn cached = cached_loop(q: &[f32], cache: &Cache, batch: &AttentionBatch, shape: Attention, out: &mut [f32]));
dispatch!(/// Attention in both directions within consecutive segments of rows.
    pub fn segments = segments_loop(q: &[f32], k: &[f32], v: &[f32], segments: &[usize], heads: usize, out: &mut [f32]));

/// Rotates each head of each row by its position (rotate-half form).
pub fn rotary(x: &mut [f32], positions: &[u32], head_dim: usize, theta: f32) {
    let half = head_dim / 2;
    let width = x.len() / positions.len().max(1);
    // As the reference: inverse frequencies and angles in single precision.
    let frequencies: Vec<f32> = (0..half).map(|i| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32)).collect();
    let mut turns = vec![(0.0f32, 0.0f32); half];
    let mut turned_for = None;
    for (row, &position) in x.chunks_exact_mut(width.max(1)).zip(positions) {
        if turned_for != Some(position) {
            for (turn, f) in turns.iter_mut().zip(&frequencies) {
                *turn = (position as f32 * f).sin_cos();
            }
            turned_for = Some(position);
        }
        for head in row.chunks_exact_mut(head_dim) {
            let (low, high) = head.split_at_mut(half);
            for ((a, b), &(sin, cos)) in low.iter_mut().zip(high).zip(&turns) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}
