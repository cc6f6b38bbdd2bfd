//! Attention over blocks of cached keys and values, and attention within segments.
//!
//! Each row's sums run over its own positions in ascending order, so that its result depends on its own sequence
//! alone: not on the block size, the batch or how the sequence was cut into chunks.

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

/// Queries that go over keys and values together: few enough that their scores and sums stay in the nearest caches.
const TOGETHER: usize = 16;

/// One query and the positions that it sees: `from .. to` of the list of offsets.
#[derive(Clone, Copy)]
struct Query {
    /// Where its numbers and its result lie.
    at: usize,
    from: usize,
    to: usize,
}

/// Attention of several queries that share a head of keys and values, whose positions begin at `offsets`. Each key and
/// value is fetched once for all queries; each query's sums run over its positions in ascending order, whichever queries are beside it.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn attend<const FUSED: bool>(
    q: &[f32],
    dim: usize,
    queries: &[Query],
    keys: &[f32],
    values: &[f32],
    offsets: &[usize],
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let scale = 1.0 / (dim as f32).sqrt();
    let n = offsets.len();
    scores.clear();
    scores.resize(queries.len() * n, 0.0);
    for (p, &at) in offsets.iter().enumerate() {
        let key = &keys[at..at + dim];
        for (i, query) in queries.iter().enumerate() {
            if (query.from..query.to).contains(&p) {
                let q = &q[query.at..query.at + dim];
                scores[i * n + p] = scale * sum_by::<FUSED>(dim, |i, s| multiply_add::<FUSED>(q[i], key[i], s));
            }
        }
    }
    let mut totals = [0.0f32; TOGETHER];
    for ((query, scores), total) in queries.iter().zip(scores.chunks_exact_mut(n)).zip(&mut totals) {
        let scores = &mut scores[query.from..query.to];
        let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for score in scores.iter_mut() {
            *score = exp::<FUSED>(*score - top);
        }
        let scores = &*scores;
        *total = sum_by::<FUSED>(scores.len(), |i, s| s + scores[i]);
        out[query.at..query.at + dim].fill(0.0);
    }
    for (p, &at) in offsets.iter().enumerate() {
        let value = &values[at..at + dim];
        for (i, query) in queries.iter().enumerate() {
            if (query.from..query.to).contains(&p) {
                let score = scores[i * n + p];
                for (o, &v) in out[query.at..query.at + dim].iter_mut().zip(value) {
                    *o = multiply_add::<FUSED>(score, v, *o);
                }
            }
        }
    }
    for (query, total) in queries.iter().zip(totals) {
        for o in &mut out[query.at..query.at + dim] {
            *o /= total;
        }
    }
}

#[inline(always)]
fn cached_loop<const FUSED: bool>(q: &[f32], cache: &Cache, batch: &AttentionBatch, shape: Attention, out: &mut [f32]) {
    let (width, dim) = (shape.heads * shape.head_dim, shape.head_dim);
    let group = shape.heads / shape.kv_heads;
    let rows_together = (TOGETHER / group).max(1);
    let (mut offsets, mut shifted, mut queries, mut scores) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for sequence in &batch.sequences {
        let table = &batch.tables[sequence.table.clone()];
        for first in (0..sequence.rows).step_by(rows_together) {
            let rows = first..sequence.rows.min(first + rows_together);
            let sees = |i: usize| {
                let position = sequence.position + i;
                (shape.window.map_or(0, |w| (position + 1).saturating_sub(w)), position + 1)
            };
            let (start, end) = (sees(rows.start).0, sees(rows.end - 1).1);
            offsets.clear();
            offsets.extend((start..end).map(|p| cache.offset(table, p)));
            for kv in 0..shape.kv_heads {
                shifted.clear();
                shifted.extend(offsets.iter().map(|at| at + kv * dim));
                // A group wider than the limit goes in parts.
                for heads in (kv * group..(kv + 1) * group).collect::<Vec<_>>().chunks(TOGETHER) {
                    queries.clear();
                    for i in rows.clone() {
                        let (from, to) = sees(i);
                        queries.extend(heads.iter().map(|h| Query {
                            at: (sequence.row + i) * width + h * dim,
                            from: from - start,
                            to: to - start,
                        }));
                    }
                    attend::<FUSED>(q, dim, &queries, &cache.keys, &cache.values, &shifted, &mut scores, out);
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
    let (mut offsets, mut queries, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = 0;
    for &n in segments {
        for h in 0..heads {
            offsets.clear();
            offsets.extend((first..first + n).map(|row| row * width + h * dim));
            for together in offsets.chunks(TOGETHER) {
                queries.clear();
                queries.extend(together.iter().map(|&at| Query { at, from: 0, to: n }));
                attend::<FUSED>(q, dim, &queries, k, v, &offsets, &mut scores, out);
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
