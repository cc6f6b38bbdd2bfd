//! Attention over the paged KV cache, causal or up to the end of a chunk.

use std::ops::Range;

use super::attend::{Chunk, QUERY_BLOCK, Query, Scratch, VisibleKeys, attend, split};
use crate::batch::AttentionBatch;
use crate::cpu::kv_cache::{Both, KvCache, KvNumber, LANES, Numbers};
use crate::cpu::output_ptr::OutputPtr;
use crate::cpu::pool::Pool;
use crate::cpu::simd::{SimdLevel, dispatch};
use crate::shapes::AttentionShape;

/// Rows that share a pass over keys and values, for this number of query heads to a key head.
fn rows_together(shape: AttentionShape) -> usize {
    (QUERY_BLOCK / (shape.heads / shape.kv_heads)).max(1)
}

/// Attention of each row over its sequence in `cache`, split over the pool if that pays. The rows' own keys are stored already.
#[allow(clippy::too_many_arguments)]
pub(in crate::cpu) fn cached(
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
                let end = shape.chunk.map_or(position + 1, |chunk| (position / chunk + 1) * chunk);
                let start = shape.window.map_or(0, |w| (position + 1).saturating_sub(w));
                (start, end.min(sequence.position + sequence.rows))
            };
            let (start, end) = (sees(rows.start).0, sees(rows.end - 1).1);
            if listed != Some(first) {
                listed = Some(first);
                visible.list(cache, table, start..end);
            }
            let (keys, values) = (&both.keys()[kv * dim * LANES..], &both.values()[kv * dim..]);
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
