//! Attention over the paged KV cache, and attention within segments.
//!
//! Keys lie transposed in chunks of sixteen positions: one pass multiplies a query with sixteen keys, without a sum across lanes. Each
//! score is summed over the head's numbers and each result over its positions, both in ascending order. So a row's result depends on its
//! own sequence alone, not on the block size, the batch or the prefill chunks.

mod segments;

use std::ops::Range;

use super::gemm::OutputPtr;
use super::kv_cache::{Both, KvCache, KvNumber, LANES, Numbers};
use super::math::{exp, sum_by};
use super::pool::Pool;
use super::simd::{SimdLevel, dispatch, multiply_add};
use super::work_split::{LEAST_PART, PARTS_PER_THREAD};
use crate::ops::{AttentionBatch, AttentionShape};
pub(super) use segments::segments;

/// Queries that share one load of a value.
const QUERY_TILE: usize = 4;
/// Numbers of a value that are summed in registers.
const WIDTH: usize = 32;
/// Queries that share a pass over keys and values: few enough that their scores stay in the nearest caches.
const QUERY_BLOCK: usize = 16;

/// One query and its range of visible positions: `from .. to` of those in [`VisibleKeys`].
#[derive(Clone, Copy)]
struct Query {
    /// Offset of its numbers, and of its result.
    at: usize,
    from: usize,
    to: usize,
}

/// Transposed keys of sixteen positions.
#[derive(Clone, Copy)]
struct Chunk {
    /// Offset of the first key's first number.
    at: usize,
    /// Index of lane `lane` among the listed positions.
    first: usize,
    lane: usize,
    /// Number of listed lanes, from `lane` on.
    count: usize,
}

/// Positions visible to some queries, in ascending order.
#[derive(Default)]
struct VisibleKeys {
    chunks: Vec<Chunk>,
    /// Offset of each position's value.
    values: Vec<usize>,
}

/// Working memory of attention, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    scores: Vec<f32>,
    totals: Vec<f32>,
    visible: VisibleKeys,
    queries: Vec<Query>,
    /// Transposed keys of a segment.
    keys: Vec<f32>,
}

/// Splits `items` into ranges and calls `compute` with each on the pool, each with its own scratch.
fn split(
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
unsafe fn attend<const FUSED: bool, N: KvNumber>(
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

/// Rows that share a pass over keys and values, for this number of query heads to a key head.
fn rows_together(shape: AttentionShape) -> usize {
    (QUERY_BLOCK / (shape.heads / shape.kv_heads)).max(1)
}

/// Causal attention of each row over its sequence in `cache`, split over the pool if that pays. The rows' own keys are stored already.
#[allow(clippy::too_many_arguments)]
pub(super) fn cached(
    pool: Option<&Pool>,
    level: SimdLevel,
    q: &[f32],
    cache: &KvCache,
    batch: &AttentionBatch,
    shape: AttentionShape,
    scratch: &mut Vec<Scratch>,
    out: &mut [f32],
) {
    // The kernels write through a raw pointer and rely on this bound.
    assert_eq!(q.len(), out.len(), "output has the wrong size");
    let (mut items, mut multiplies) = (0, 0);
    for sequence in &batch.sequences {
        let most = shape.window.unwrap_or(usize::MAX).min(sequence.position + sequence.rows);
        items += sequence.rows.div_ceil(rows_together(shape)) * shape.kv_heads;
        multiplies += 2 * sequence.rows * most * shape.heads * shape.head_dim;
    }
    let out = OutputPtr(out.as_mut_ptr());
    // SAFETY: the bound holds, and items have no result in common.
    let compute = |items, scratch: &mut _| unsafe { cached_items(level, q, cache, batch, shape, items, scratch, out) };
    split(pool, items, multiplies, scratch, compute);
}

/// Processes items: each head of keys, for each block of a sequence's rows, for each sequence.
///
/// # Safety
/// `out` is writable for as many numbers as `q` has. No other thread reads or writes the items' results meanwhile.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn cached_loop<const FUSED: bool>(
    q: &[f32],
    cache: &KvCache,
    batch: &AttentionBatch,
    shape: AttentionShape,
    items: Range<usize>,
    scratch: &mut Scratch,
    out: OutputPtr,
) {
    // SAFETY: the caller's guarantees.
    unsafe {
        match &cache.numbers {
            Numbers::F32(both) => cached_with::<FUSED, f32>(q, cache, both, batch, shape, items, scratch, out),
            Numbers::Bf16(both) => cached_with::<FUSED, u16>(q, cache, both, batch, shape, items, scratch, out),
        }
    }
}

/// # Safety
/// As [`cached_loop`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn cached_with<const FUSED: bool, N: KvNumber>(
    q: &[f32],
    cache: &KvCache,
    both: &Both<N>,
    batch: &AttentionBatch,
    shape: AttentionShape,
    items: Range<usize>,
    scratch: &mut Scratch,
    out: OutputPtr,
) {
    let (width, dim) = (shape.heads * shape.head_dim, shape.head_dim);
    let group = shape.heads / shape.kv_heads;
    let rows_together = rows_together(shape);
    let Scratch { scores, totals, visible, queries, .. } = scratch;
    let mut before = 0;
    for sequence in &batch.sequences {
        let table = &batch.tables[sequence.table.clone()];
        let count = sequence.rows.div_ceil(rows_together) * shape.kv_heads;
        let mine = items.start.clamp(before, before + count) - before..items.end.clamp(before, before + count) - before;
        before += count;
        let mut listed = None;
        for item in mine {
            let (first, kv) = (item / shape.kv_heads * rows_together, item % shape.kv_heads);
            let rows = first..sequence.rows.min(first + rows_together);
            let sees = |i: usize| {
                let position = sequence.position + i;
                (shape.window.map_or(0, |w| (position + 1).saturating_sub(w)), position + 1)
            };
            let (start, end) = (sees(rows.start).0, sees(rows.end - 1).1);
            if listed != Some(first) {
                listed = Some(first);
                visible.list(cache, table, start..end);
            }
            let (keys, values) = (&both.keys[kv * dim * LANES..], &both.values[kv * dim..]);
            // A group wider than the limit is split.
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
                // SAFETY: the caller's guarantees; the queries' results are this item's.
                unsafe { attend::<FUSED, N>(q, dim, queries, keys, values, visible, (scores, totals), out) };
            }
        }
    }
}

impl VisibleKeys {
    /// Lists the positions of a sequence.
    #[inline(always)]
    fn list(&mut self, cache: &KvCache, table: &[u32], positions: Range<usize>) {
        self.chunks.clear();
        self.values.clear();
        let mut position = positions.start;
        while position < positions.end {
            let (block, within) = (cache.block(table, position), position % cache.block_len);
            let lane = within % LANES;
            let count = (LANES - lane).min(cache.block_len - within).min(positions.end - position);
            let at = cache.chunk(block, within / LANES);
            self.chunks.push(Chunk { at, first: position - positions.start, lane, count });
            let value = (block * cache.block_len + within) * cache.width;
            self.values.extend((0..count).map(|i| value + i * cache.width));
            position += count;
        }
    }
}

dispatch!(/// # Safety
/// As [`cached_loop`].
unsafe fn cached_items = cached_loop(
    q: &[f32],
    cache: &KvCache,
    batch: &AttentionBatch,
    shape: AttentionShape,
    items: Range<usize>,
    scratch: &mut Scratch,
    out: OutputPtr,
));
