//! Attention of several queries over the same keys and values.
//!
//! Keys lie transposed in chunks of sixteen positions: one pass multiplies a query with sixteen keys, without a sum across lanes. Each
//! score is summed over the head's numbers and each result over its positions, both in ascending order. So a row's result depends on its
//! own sequence alone, not on the block size, the batch or the prefill chunks.

use std::ops::Range;

use crate::cpu::kv_cache::{KvNumber, LANES};
use crate::cpu::math::{exp, sum_by};
use crate::cpu::output_ptr::OutputPtr;
use crate::cpu::pool::Pool;
use crate::cpu::simd::multiply_add;
use crate::cpu::work_split::{LEAST_PART, PARTS_PER_THREAD};

/// Queries that share one load of a value.
const QUERY_TILE: usize = 4;
/// Numbers of a value that are summed in registers.
const WIDTH: usize = 32;
/// Queries that share a pass over keys and values: few enough that their scores stay in the nearest caches.
pub(super) const QUERY_BLOCK: usize = 16;

/// One query and its range of visible positions: `from .. to` of those in [`VisibleKeys`].
#[derive(Clone, Copy)]
pub(super) struct Query {
    /// Offset of its numbers, and of its result.
    pub(super) at: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Transposed keys of sixteen positions.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Offset of the first key's first number.
    pub(super) at: usize,
    /// Index of lane `lane` among the listed positions.
    pub(super) first: usize,
    pub(super) lane: usize,
    /// Number of listed lanes, from `lane` on.
    pub(super) count: usize,
}

/// Positions visible to some queries, in ascending order.
#[derive(Default)]
pub(super) struct VisibleKeys {
    pub(super) chunks: Vec<Chunk>,
    /// Offset of each position's value.
    pub(super) values: Vec<usize>,
}

/// Working memory of attention, kept between calls.
#[derive(Default)]
pub(in crate::cpu) struct Scratch {
    pub(super) scores: Vec<f32>,
    pub(super) totals: Vec<f32>,
    pub(super) visible: VisibleKeys,
    pub(super) queries: Vec<Query>,
    /// Transposed keys of a segment.
    pub(super) keys: Vec<f32>,
}

/// Splits `items` into ranges and calls `compute` with each on the pool, each with its own scratch.
pub(super) fn split(
    pool: Option<&Pool>,
    items: usize,
    multiplies: usize,
    scratch: &mut Vec<Scratch>,
    compute: impl Fn(Range<usize>, &mut Scratch) + Sync,
) {
    let threads = pool.map_or(1, Pool::threads);
    let most = if threads > 1 { (multiplies / LEAST_PART).clamp(1, threads * PARTS_PER_THREAD) } else { 1 };
    let each = items.div_ceil(most).max(1);
    let parts = items.div_ceil(each);
    if scratch.len() < parts {
        scratch.resize_with(parts, Scratch::default);
    }
    let compute = |part: usize, scratch: &mut Scratch| compute(part * each..items.min((part + 1) * each), scratch);
    match (pool, &mut scratch[..parts]) {
        (Some(pool), scratch) if parts > 1 => pool.for_each(scratch, compute),
        (_, scratch) => scratch.iter_mut().enumerate().for_each(|(part, scratch)| compute(part, scratch)),
    }
}

/// Computes attention of several queries that share a head of keys and values. `keys` and `values` begin with that head.
///
/// # Safety
/// `out` is writable for as many numbers as `q` has. No other thread reads or writes the queries' results meanwhile.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn attend<const FUSED: bool, N: KvNumber>(
    q: &[f32],
    dim: usize,
    queries: &[Query],
    keys: &[N],
    values: &[N],
    visible: &VisibleKeys,
    (scores, totals): (&mut Vec<f32>, &mut Vec<f32>),
    out: OutputPtr,
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
                4.. => qk_scores::<FUSED, 4, N>(q, dim, &queries[from..], keys, chunk, (scale, n), scores),
                _ => qk_scores::<FUSED, 1, N>(q, dim, &queries[from..], keys, chunk, (scale, n), scores),
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
                weighted_sum::<FUSED, N>(tile, n, scores, values, &visible.values, &mut sums);
            } else {
                let width = dim - column;
                for ((query, scores), sums) in tile.iter().zip(scores.chunks(n)).zip(&mut sums) {
                    for p in query.from..query.to {
                        let value = &values[visible.values[p]..][..width];
                        for (sum, &v) in sums.iter_mut().zip(value) {
                            *sum = multiply_add::<FUSED>(scores[p], v.widen(), *sum);
                        }
                    }
                }
            }
            for ((query, sums), total) in tile.iter().zip(&sums).zip(&totals[t * QUERY_TILE..]) {
                let width = WIDTH.min(dim - column);
                assert!(query.at + dim <= q.len(), "a query is out of bounds");
                // SAFETY: `out` is as long as `q`; these numbers belong to one of the queries, and no other thread touches their results.
                let out = unsafe { std::slice::from_raw_parts_mut(out.0.add(query.at + column), width) };
                for (o, sum) in out.iter_mut().zip(sums) {
                    *o = sum / total;
                }
            }
        }
    }
}

/// Computes the scores of the first `Q` queries with sixteen keys, one row of `n` for each. Returns `Q`.
#[inline(always)]
fn qk_scores<const FUSED: bool, const Q: usize, N: KvNumber>(
    q: &[f32],
    dim: usize,
    queries: &[Query],
    keys: &[N],
    chunk: &Chunk,
    (scale, n): (f32, usize),
    scores: &mut [f32],
) -> usize {
    let q: [&[f32]; Q] = std::array::from_fn(|i| &q[queries[i].at..queries[i].at + dim]);
    let mut sums = [[0.0f32; LANES]; Q];
    qk_dot::<FUSED, Q, N>(q, keys, &mut sums);
    for (i, sums) in sums.iter().enumerate() {
        let to = &mut scores[i * n + chunk.first..][..chunk.count];
        for (score, sum) in to.iter_mut().zip(&sums[chunk.lane..]) {
            *score = scale * sum;
        }
    }
    Q
}

/// Products of some queries with sixteen keys. The sums are copied out at the end; otherwise the compiler keeps them in memory.
#[inline(always)]
fn qk_dot<const FUSED: bool, const Q: usize, N: KvNumber>(q: [&[f32]; Q], keys: &[N], sums: &mut [[f32; LANES]; Q]) {
    let mut in_registers = [[0.0f32; LANES]; Q];
    for (d, keys) in keys.as_chunks::<LANES>().0.iter().enumerate() {
        let keys = keys.map(N::widen);
        for (q, sums) in q.iter().zip(&mut in_registers) {
            let q = q[d];
            for (sum, key) in sums.iter_mut().zip(&keys) {
                *sum = multiply_add::<FUSED>(q, *key, *sum);
            }
        }
    }
    *sums = in_registers;
}

/// Sums the first [`WIDTH`] numbers of the values, weighted by each query's scores.
#[inline(always)]
fn weighted_sum<const FUSED: bool, N: KvNumber>(
    tile: &[Query],
    n: usize,
    scores: &[f32],
    values: &[N],
    offsets: &[usize],
    sums: &mut [[f32; WIDTH]; QUERY_TILE],
) {
    // A full tile loads once the values that all its queries see; the others come before and after.
    let lowest = tile.iter().map(|query| query.from).max().unwrap_or(0);
    let highest = tile.iter().map(|query| query.to).min().unwrap_or(0);
    let common = if tile.len() == QUERY_TILE && lowest < highest { lowest..highest } else { 0..0 };
    for ((query, scores), sums) in tile.iter().zip(scores.chunks(n)).zip(&mut *sums) {
        let end = if common.is_empty() { query.to } else { common.start };
        weighted_sum_one::<FUSED, N>(scores, query.from..end, values, offsets, sums);
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
        weighted_sum_one::<FUSED, N>(scores, common.end..query.to, values, offsets, sums);
    }
}

/// Returns the first [`WIDTH`] numbers of the value at `at`; the constant length puts them into registers.
#[inline(always)]
fn first_numbers<N: KvNumber>(values: &[N], at: usize) -> [f32; WIDTH] {
    let first = values[at..].first_chunk().expect("a value has at least as many numbers: the caller checked the width");
    first.map(N::widen)
}

/// Does the same for one query and some of its positions.
#[inline(always)]
fn weighted_sum_one<const FUSED: bool, N: KvNumber>(
    scores: &[f32],
    range: Range<usize>,
    values: &[N],
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
