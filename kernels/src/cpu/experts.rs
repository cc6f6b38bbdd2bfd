//! Mixture of experts: each row goes through the experts that its router chose.

use super::arena::Buffer;
use super::gemm::{Packed, Rows};
use super::{Cpu, math};
use crate::ops::Router;

/// What a mixture works with, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    logits: Vec<f32>,
    /// Experts of a row, the likeliest first.
    order: Vec<usize>,
    /// Rows of each expert, with their weights.
    chosen: Vec<Vec<(usize, f32)>>,
    gathered: Vec<f32>,
    wide: Vec<f32>,
    narrow: Vec<f32>,
    result: Vec<f32>,
}

/// `x` is `[rows, hidden]`, `router` gives one logit an expert; the result is `[rows, down.columns]`.
///
/// Rows are gathered by expert, so that an expert's weights are read once however many rows chose it; each row adds its experts' results
/// in the order of the experts' numbers, so the rows beside it do not matter.
pub(super) fn mixture(
    cpu: &Cpu,
    x: &[f32],
    router: &Packed,
    gate_up: &[Packed],
    down: &[Packed],
    spec: Router,
) -> Buffer {
    let level = cpu.level;
    let hidden = router.k;
    let count = x.len() / hidden;
    let experts = gate_up.len();
    let mut scratch = cpu.scratch.take();
    let Scratch { logits, order, chosen, gathered, wide, narrow, result } = &mut scratch.experts;
    logits.resize(count * experts, 0.0);
    cpu.multiply(Rows::dense(x, hidden), router, None, logits);

    chosen.resize_with(experts, Vec::new);
    for rows in &mut *chosen {
        rows.clear();
        rows.reserve(count);
    }
    for (row, probabilities) in logits.chunks_exact_mut(experts).enumerate() {
        math::softmax(level, probabilities);
        order.clear();
        order.extend(0..experts);
        // Of equal ones the lower number first.
        order.sort_unstable_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b)));
        order.truncate(spec.top_k);
        let total: f32 = if spec.normalise { order.iter().map(|&e| probabilities[e]).sum() } else { 1.0 };
        for &expert in &*order {
            chosen[expert].push((row, probabilities[expert] / total));
        }
    }

    let columns = down.first().map_or(0, |d| d.columns);
    let mut out = cpu.arena.zeros(count * columns);
    let widest = gate_up.first().map_or(0, |g| g.columns).max(columns).max(hidden);
    for buffer in [&mut *gathered, wide, narrow, result] {
        // Every row may choose the same expert: then a later step needs no more.
        buffer.clear();
        buffer.reserve(count * widest);
    }
    for (expert, rows) in chosen.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        gathered.clear();
        for &(row, _) in rows {
            gathered.extend_from_slice(&x[row * hidden..(row + 1) * hidden]);
        }
        let (gate_up, down) = (&gate_up[expert], &down[expert]);
        wide.resize(rows.len() * gate_up.columns, 0.0);
        cpu.multiply(Rows::dense(gathered, hidden), gate_up, None, wide);
        narrow.resize(rows.len() * down.k, 0.0);
        math::silu_mul(level, wide, narrow, down.k);
        result.resize(rows.len() * columns, 0.0);
        cpu.multiply(Rows::dense(narrow, down.k), down, None, result);
        for (&(row, weight), result) in rows.iter().zip(result.chunks_exact(columns)) {
            for (o, v) in out[row * columns..(row + 1) * columns].iter_mut().zip(result) {
                *o += v * weight;
            }
        }
    }
    out
}
