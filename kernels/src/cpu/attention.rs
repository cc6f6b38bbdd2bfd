//! Attention over blocks of cached keys and values, and attention within segments.
//!
//! Keys lie transposed in chunks of sixteen positions: a query is multiplied with sixteen keys at once, without a sum across lanes.
//! Each score is summed over the head's numbers, and each result over its own positions, in ascending order: a row's
//! result depends on its own sequence alone, not on the block size, the batch or how the sequence was cut into chunks.

use super::math::{exp, sum_by};
use super::simd::{dispatch, multiply_add};
use crate::ops::{Attention, AttentionBatch};

/// Positions whose keys lie side by side.
const LANES: usize = 16;
/// Queries that share one load of a value.
const QUERY_TILE: usize = 4;
/// Numbers of a value that are summed up in registers.
const WIDTH: usize = 32;
/// Queries that go over keys and values together: few enough that their scores stay in the nearest caches.
const QUERY_BLOCK: usize = 16;

/// Keys and values of one layer.
#[derive(Debug)]
pub struct Cache {
    /// Positions in a block.
    block_len: usize,
    /// Numbers in one position's keys.
    width: usize,
    /// `[block][chunk of sixteen positions][width][position]`
    keys: Vec<f32>,
    /// `[block][position][width]`
    values: Vec<f32>,
}

impl Cache {
    /// Zeroed memory for so many blocks; the system gives it as it is used.
    pub fn new(blocks: usize, block_len: usize, width: usize) -> Self {
        let padded = block_len.next_multiple_of(LANES);
        Self {
            block_len,
            width,
            keys: vec![0.0; blocks * padded * width],
            values: vec![0.0; blocks * block_len * width],
        }
    }

    /// The block that holds `position` of the sequence with `table`; a short table is a ring.
    #[inline(always)]
    fn block(&self, table: &[u32], position: usize) -> usize {
        table[position / self.block_len % table.len()] as usize
    }

    /// Where the keys of a chunk begin.
    #[inline(always)]
    fn chunk(&self, block: usize, chunk: usize) -> usize {
        (block * self.block_len.div_ceil(LANES) + chunk) * self.width * LANES
    }

    /// Copies a block onto another.
    pub fn copy_block(&mut self, from: usize, to: usize) {
        let keys = self.block_len.next_multiple_of(LANES) * self.width;
        self.keys.copy_within(from * keys..(from + 1) * keys, to * keys);
        let values = self.block_len * self.width;
        self.values.copy_within(from * values..(from + 1) * values, to * values);
    }

    /// Stores the rows' keys and values at their positions.
    pub fn store(&mut self, k: &[f32], v: &[f32], batch: &AttentionBatch) {
        for sequence in &batch.sequences {
            let table = &batch.tables[sequence.table.clone()];
            for i in 0..sequence.rows {
                let position = sequence.position + i;
                let (block, within) = (self.block(table, position), position % self.block_len);
                let from = (sequence.row + i) * self.width;
                let at = self.chunk(block, within / LANES) + within % LANES;
                let lanes = self.keys[at..].iter_mut().step_by(LANES);
                for (to, &key) in lanes.zip(&k[from..from + self.width]) {
                    *to = key;
                }
                let at = (block * self.block_len + within) * self.width;
                self.values[at..at + self.width].copy_from_slice(&v[from..from + self.width]);
            }
        }
    }
}

/// One query and the positions that it sees: `from .. to` of those listed in [`VisibleKeys`].
#[derive(Clone, Copy)]
struct Query {
    /// Where its numbers and its result lie.
    at: usize,
    from: usize,
    to: usize,
}

/// Sixteen keys side by side.
#[derive(Clone, Copy)]
struct Chunk {
    /// Where the first number of the first key lies.
    at: usize,
    /// Which of the listed positions the lane `lane` is.
    first: usize,
    lane: usize,
    /// How many lanes are listed, from that one on.
    count: usize,
}

/// The positions that some queries see, in ascending order.
#[derive(Default)]
struct VisibleKeys {
    chunks: Vec<Chunk>,
    /// Where the value of each lies.
    values: Vec<usize>,
}

/// What attention works with, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    scores: Vec<f32>,
    totals: Vec<f32>,
    visible: VisibleKeys,
    queries: Vec<Query>,
    /// Keys of a segment, transposed.
    keys: Vec<f32>,
}

/// Attention of several queries that share a head of keys and values. `keys` and `values` begin with that head.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn attend<const FUSED: bool>(
    q: &[f32],
    dim: usize,
    queries: &[Query],
    keys: &[f32],
    values: &[f32],
    visible: &VisibleKeys,
    (scores, totals): (&mut Vec<f32>, &mut Vec<f32>),
    out: &mut [f32],
) {
    let scale = 1.0 / (dim as f32).sqrt();
    let n = visible.values.len();
    scores.clear();
    scores.resize(queries.len() * n, 0.0);
    for chunk in &visible.chunks {
        let keys = &keys[chunk.at..chunk.at + dim * LANES];
        let mut from = 0;
        while from < queries.len() {
            let scores = &mut scores[from * n..];
            from += match queries.len() - from {
                4.. => qk_scores::<FUSED, 4>(q, dim, &queries[from..], keys, chunk, (scale, n), scores),
                _ => qk_scores::<FUSED, 1>(q, dim, &queries[from..], keys, chunk, (scale, n), scores),
            };
        }
    }
    totals.clear();
    for (query, scores) in queries.iter().zip(scores.chunks_exact_mut(n)) {
        let scores = &mut scores[query.from..query.to];
        let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for score in scores.iter_mut() {
            *score = exp::<FUSED>(*score - top);
        }
        let scores = &*scores;
        totals.push(sum_by::<FUSED>(scores.len(), |i, s| s + scores[i]));
    }
    for (t, tile) in queries.chunks(QUERY_TILE).enumerate() {
        for column in (0..dim).step_by(WIDTH) {
            let scores = &scores[t * QUERY_TILE * n..];
            let values = &values[column..];
            let mut sums = [[0.0f32; WIDTH]; QUERY_TILE];
            if column + WIDTH <= dim {
                weighted_sum::<FUSED>(tile, n, scores, values, &visible.values, &mut sums);
            } else {
                let width = dim - column;
                for ((query, scores), sums) in tile.iter().zip(scores.chunks(n)).zip(&mut sums) {
                    for p in query.from..query.to {
                        let value = &values[visible.values[p]..][..width];
                        for (sum, &v) in sums.iter_mut().zip(value) {
                            *sum = multiply_add::<FUSED>(scores[p], v, *sum);
                        }
                    }
                }
            }
            for ((query, sums), total) in tile.iter().zip(&sums).zip(&totals[t * QUERY_TILE..]) {
                let end = dim.min(column + WIDTH);
                for (o, sum) in out[query.at + column..query.at + end].iter_mut().zip(sums) {
                    *o = sum / total;
                }
            }
        }
    }
}

/// The scores of the first `N` queries with sixteen keys, one row of `n` for each. Returns `N`.
#[inline(always)]
fn qk_scores<const FUSED: bool, const N: usize>(
    q: &[f32],
    dim: usize,
    queries: &[Query],
    keys: &[f32],
    chunk: &Chunk,
    (scale, n): (f32, usize),
    scores: &mut [f32],
) -> usize {
    let q: [&[f32]; N] = std::array::from_fn(|i| &q[queries[i].at..queries[i].at + dim]);
    let mut sums = [[0.0f32; LANES]; N];
    qk_dot::<FUSED, N>(q, keys, &mut sums);
    for (i, sums) in sums.iter().enumerate() {
        let to = &mut scores[i * n + chunk.first..][..chunk.count];
        for (score, sum) in to.iter_mut().zip(&sums[chunk.lane..]) {
            *score = scale * sum;
        }
    }
    N
}

/// The products of some queries with sixteen keys. Its sums are copied out at the end: without that they stay in memory.
#[inline(always)]
fn qk_dot<const FUSED: bool, const N: usize>(q: [&[f32]; N], keys: &[f32], sums: &mut [[f32; LANES]; N]) {
    let mut in_registers = [[0.0f32; LANES]; N];
    for (d, keys) in keys.as_chunks::<LANES>().0.iter().enumerate() {
        for (q, sums) in q.iter().zip(&mut in_registers) {
            let q = q[d];
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum = multiply_add::<FUSED>(q, *key, *sum);
            }
        }
    }
    *sums = in_registers;
}

/// The first [`WIDTH`] numbers of the values, weighted by each query's scores.
#[inline(always)]
fn weighted_sum<const FUSED: bool>(
    tile: &[Query],
    n: usize,
    scores: &[f32],
    values: &[f32],
    offsets: &[usize],
    sums: &mut [[f32; WIDTH]; QUERY_TILE],
) {
    // What all of a full tile see is fetched once; the rest of each before it and after it.
    let lowest = tile.iter().map(|query| query.from).max().unwrap_or(0);
    let highest = tile.iter().map(|query| query.to).min().unwrap_or(0);
    let common = if tile.len() == QUERY_TILE && lowest < highest { lowest..highest } else { 0..0 };
    for ((query, scores), sums) in tile.iter().zip(scores.chunks(n)).zip(&mut *sums) {
        let end = if common.is_empty() { query.to } else { common.start };
        weighted_sum_one::<FUSED>(scores, query.from..end, values, offsets, sums);
    }
    if common.is_empty() {
        return;
    }
    let mut in_registers = *sums;
    let (s0, rest) = scores.split_at(n);
    let (s1, rest) = rest.split_at(n);
    let (s2, s3) = rest.split_at(n);
    let common_scores =
        s0[common.clone()].iter().zip(&s1[common.clone()]).zip(&s2[common.clone()]).zip(&s3[common.clone()]);
    for (&at, (((a, b), c), d)) in offsets[common.clone()].iter().zip(common_scores) {
        let (value, scores) = (first_numbers(values, at), [*a, *b, *c, *d]);
        for t in 0..QUERY_TILE {
            for i in 0..WIDTH {
                in_registers[t][i] = multiply_add::<FUSED>(scores[t], value[i], in_registers[t][i]);
            }
        }
    }
    *sums = in_registers;
    for ((query, scores), sums) in tile.iter().zip(scores.chunks(n)).zip(sums) {
        weighted_sum_one::<FUSED>(scores, common.end..query.to, values, offsets, sums);
    }
}

/// The first [`WIDTH`] numbers of the value at `at`, of known length so that they go into registers.
#[inline(always)]
fn first_numbers(values: &[f32], at: usize) -> &[f32; WIDTH] {
    values[at..].first_chunk().expect("a value has at least as many numbers: the caller checked the width")
}

/// The same of one query and some of its positions.
#[inline(always)]
fn weighted_sum_one<const FUSED: bool>(
    scores: &[f32],
    range: std::ops::Range<usize>,
    values: &[f32],
    offsets: &[usize],
    sums: &mut [f32; WIDTH],
) {
    let mut in_registers = *sums;
    for (&at, &score) in offsets[range.clone()].iter().zip(&scores[range]) {
        let value = first_numbers(values, at);
        for i in 0..WIDTH {
            in_registers[i] = multiply_add::<FUSED>(score, value[i], in_registers[i]);
        }
    }
    *sums = in_registers;
}

#[inline(always)]
fn cached_loop<const FUSED: bool>(
    q: &[f32],
    cache: &Cache,
    batch: &AttentionBatch,
    shape: Attention,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let (width, dim) = (shape.heads * shape.head_dim, shape.head_dim);
    let group = shape.heads / shape.kv_heads;
    let rows_together = (QUERY_BLOCK / group).max(1);
    let Scratch { scores, totals, visible, queries, .. } = scratch;
    for sequence in &batch.sequences {
        let table = &batch.tables[sequence.table.clone()];
        for first in (0..sequence.rows).step_by(rows_together) {
            let rows = first..sequence.rows.min(first + rows_together);
            let sees = |i: usize| {
                let position = sequence.position + i;
                (shape.window.map_or(0, |w| (position + 1).saturating_sub(w)), position + 1)
            };
            let (start, end) = (sees(rows.start).0, sees(rows.end - 1).1);
            visible.chunks.clear();
            visible.values.clear();
            let mut position = start;
            while position < end {
                let (block, within) = (cache.block(table, position), position % cache.block_len);
                let lane = within % LANES;
                let count = (LANES - lane).min(cache.block_len - within).min(end - position);
                let at = cache.chunk(block, within / LANES);
                visible.chunks.push(Chunk { at, first: position - start, lane, count });
                let value = (block * cache.block_len + within) * cache.width;
                visible.values.extend((0..count).map(|i| value + i * cache.width));
                position += count;
            }
            for kv in 0..shape.kv_heads {
                let (keys, values) = (&cache.keys[kv * dim * LANES..], &cache.values[kv * dim..]);
                // A group wider than the limit goes in parts.
                for from in (kv * group..(kv + 1) * group).step_by(QUERY_BLOCK) {
                    let heads = from..((kv + 1) * group).min(from + QUERY_BLOCK);
                    queries.clear();
                    for i in rows.clone() {
                        let (from, to) = sees(i);
                        queries.extend(heads.clone().map(|h| Query {
                            at: (sequence.row + i) * width + h * dim,
                            from: from - start,
                            to: to - start,
                        }));
                    }
                    attend::<FUSED>(q, dim, queries, keys, values, visible, (scores, totals), out);
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
    segments: &[u32],
    heads: usize,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let rows: usize = segments.iter().map(|&n| n as usize).sum();
    let width = q.len() / rows.max(1);
    let dim = width / heads;
    let Scratch { scores, totals, visible, queries, keys } = scratch;
    let mut first = 0;
    for &n in segments {
        let n = n as usize;
        for h in 0..heads {
            let at = |row: usize| (first + row) * width + h * dim;
            keys.clear();
            keys.resize(n.next_multiple_of(LANES) * dim, 0.0f32);
            for row in 0..n {
                let to = keys[row / LANES * dim * LANES + row % LANES..].iter_mut().step_by(LANES);
                for (to, &key) in to.zip(&k[at(row)..at(row) + dim]) {
                    *to = key;
                }
            }
            visible.chunks.clear();
            visible.chunks.extend((0..n).step_by(LANES).map(|first| Chunk {
                at: first * dim,
                first,
                lane: 0,
                count: LANES.min(n - first),
            }));
            visible.values.clear();
            visible.values.extend((0..n).map(at));
            for from in (0..n).step_by(QUERY_BLOCK) {
                queries.clear();
                queries.extend((from..n.min(from + QUERY_BLOCK)).map(|row| Query { at: at(row), from: 0, to: n }));
                attend::<FUSED>(q, dim, queries, keys, v, visible, (scores, totals), out);
            }
        }
        first += n;
    }
}

dispatch!(/// Causal attention of each row over its sequence in `cache`, which holds the rows' own keys already.
pub(super) fn cached = cached_loop(
    q: &[f32],
    cache: &Cache,
    batch: &AttentionBatch,
    shape: Attention,
    scratch: &mut Scratch,
    out: &mut [f32],
));
dispatch!(/// Attention in both directions within consecutive segments of rows.
pub(super) fn segments = segments_loop(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    segments: &[u32],
    heads: usize,
    scratch: &mut Scratch,
    out: &mut [f32],
));
