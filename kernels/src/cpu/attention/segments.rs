//! Attention within segments of rows; each head's keys are transposed as [`attend`] reads them.

use std::ops::Range;

use super::attend::{Chunk, QUERY_BLOCK, Query, Scratch, attend, split};
use crate::cpu::kv_cache::LANES;
use crate::cpu::output_ptr::OutputPtr;
use crate::cpu::pool::Pool;
use crate::cpu::simd::{SimdLevel, dispatch};
use crate::shapes::SegmentShape;

/// Attention within consecutive segments of rows, split over the pool if that pays.
#[allow(clippy::too_many_arguments)]
pub(in crate::cpu) fn segments(
    pool: Option<&Pool>,
    level: SimdLevel,
    (q, k, v): (&[f32], &[f32], &[f32]),
    segments: &[u32],
    shape: SegmentShape,
    scratch: &mut Vec<Scratch>,
    out: &mut [f32],
) {
    // The kernels write through a raw pointer and rely on this bound.
    assert_eq!(q.len(), out.len(), "output has the wrong size");
    let rows: usize = segments.iter().map(|&n| n as usize).sum();
    let pairs: usize = segments.iter().map(|&n| n as usize * n as usize).sum();
    let multiplies = 2 * pairs * (q.len() / rows.max(1));
    let out = OutputPtr(out.as_mut_ptr());
    // SAFETY: the bound holds, and items have no result in common.
    let compute =
        |items, scratch: &mut _| unsafe { segments_items(level, q, k, v, segments, shape, items, scratch, out) };
    split(pool, segments.len() * shape.heads, multiplies, scratch, compute);
}

/// Processes items: the heads of each segment.
///
/// # Safety
/// `out` is writable for as many numbers as `q` has. No other thread reads or writes the items' results meanwhile.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn segments_loop<const FUSED: bool>(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    segments: &[u32],
    shape: SegmentShape,
    items: Range<usize>,
    scratch: &mut Scratch,
    out: OutputPtr,
) {
    let rows: usize = segments.iter().map(|&n| n as usize).sum();
    let width = q.len() / rows.max(1);
    let heads = shape.heads;
    let dim = width / heads;
    let Scratch { scores, totals, visible, queries, keys } = scratch;
    let (mut segment, mut first) = (0, 0);
    for item in items {
        while segment < item / heads {
            first += segments[segment] as usize;
            segment += 1;
        }
        let (n, h) = (segments[segment] as usize, item % heads);
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
            let reach = |row: usize| Query {
                at: at(row),
                from: shape.left.map_or(0, |left| row.saturating_sub(left)),
                to: shape.right.map_or(n, |right| n.min(row.saturating_add(right).saturating_add(1))),
            };
            queries.extend((from..n.min(from + QUERY_BLOCK)).map(reach));
            // SAFETY: the caller's guarantees; the queries' results are this item's.
            unsafe { attend::<FUSED, f32>(q, dim, queries, keys, v, visible, (scores, totals), out) };
        }
    }
}

dispatch!(/// # Safety
/// As [`segments_loop`].
unsafe fn segments_items = segments_loop(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    segments: &[u32],
    shape: SegmentShape,
    items: Range<usize>,
    scratch: &mut Scratch,
    out: OutputPtr,
));
