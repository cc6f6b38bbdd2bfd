//! Mixture of experts: each row goes through the experts that its router chose.

use super::gemm::{self, Packed, Rows};
use super::math;
use super::simd::Level;
use crate::ops::Router;

/// `x` is `[rows, hidden]`, `router` gives one logit an expert; the result is `[rows, down.columns]`.
///
/// Rows are gathered by expert, so that an expert's weights are read once however many rows chose it; each row adds its experts' results
/// in the order of the experts' numbers, so the rows beside it do not matter.
pub fn mixture(
    level: Level,
    x: &[f32],
    router: &Packed,
    gate_up: &[Packed],
    down: &[Packed],
    spec: Router,
) -> Vec<f32> {
    let hidden = router.k;
    let count = x.len() / hidden;
    let experts = gate_up.len();
    let mut logits = vec![0.0; count * experts];
    gemm::multiply(level, Rows::dense(x, hidden), router, None, &mut logits);

    let mut chosen: Vec<Vec<(usize, f32)>> = vec![Vec::new(); experts];
    let mut order: Vec<usize> = Vec::with_capacity(experts);
    for (row, probabilities) in logits.chunks_exact_mut(experts).enumerate() {
        math::softmax(level, probabilities);
        order.clear();
        order.extend(0..experts);
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        order.truncate(spec.top_k);
        let total: f32 = if spec.normalise { order.iter().map(|&e| probabilities[e]).sum() } else { 1.0 };
        for &expert in &order {
            chosen[expert].push((row, probabilities[expert] / total));
        }
    }

    let columns = down.first().map_or(0, |d| d.columns);
    let mut out = vec![0.0; count * columns];
    let (mut gathered, mut wide, mut narrow, mut result) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (expert, rows) in chosen.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        gathered.clear();
        for &(row, _) in rows {
            gathered.extend_from_slice(&x[row * hidden..(row + 1) * hidden]);
        }
        let (gate_up, down) = (&gate_up[expert], &down[expert]);
        wide.resize(rows.len() * gate_up.columns, 0.0);
        gemm::multiply(level, Rows::dense(&gathered, hidden), gate_up, None, &mut wide);
        narrow.resize(rows.len() * down.k, 0.0);
        math::silu_mul(level, &wide, &mut narrow, down.k);
        result.resize(rows.len() * columns, 0.0);
        gemm::multiply(level, Rows::dense(&narrow, down.k), down, None, &mut result);
        for (&(row, weight), result) in rows.iter().zip(result.chunks_exact(columns)) {
            for (o, v) in out[row * columns..(row + 1) * columns].iter_mut().zip(result) {
                *o += v * weight;
            }
        }
    }
    out
}
