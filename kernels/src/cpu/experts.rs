//! Mixture of experts: each row passes through the experts that its router chose.

use std::array;

use super::arena::Buffer;
use super::device::Cpu;
use super::gemm::{PackedWeight, StridedRows};
use super::groups::{self, GROUP};
use super::math;
use super::product::{self, Product};
use super::scratch::{ExpertInputs, ExpertScratch};
use crate::shapes::RouterShape;

/// Largest number of experts that are computed together: a single row's, in most models.
const WAVE: usize = 16;
/// Largest number of rows in a wave of several experts; a larger product gets a region of its own.
const WAVE_ROWS: usize = 16;

/// Computes the mixture. `x` is `[rows, hidden]`, `router` gives one logit for each expert, the result is `[rows, down.columns]`.
///
/// Rows are gathered by expert, so that an expert's weights are read once for all of its rows. Each row adds its experts' results in the
/// order of the experts' numbers, so the neighbouring rows do not matter. Experts with few rows are computed in waves: all first products
/// are one region of the pool, all second products another.
pub(super) fn mixture(
    cpu: &Cpu,
    x: &[f32],
    router: &PackedWeight,
    gate_up: &[PackedWeight],
    down: &[PackedWeight],
    spec: RouterShape,
) -> Buffer {
    let (level, hidden) = (cpu.level, router.k);
    let count = x.len() / hidden;
    let mut scratch = cpu.scratch.take();
    let ExpertScratch { logits, order, chosen, wave, quantised, gathered, wide, narrow, result } = &mut scratch.experts;
    logits.resize(count * gate_up.len(), 0.0);
    cpu.multiply(StridedRows::dense(x, hidden), router, None, logits);
    route(cpu, logits, gate_up.len(), spec, order, chosen);

    let (inner, columns) = down.first().map_or((0, 0), |down| (down.k, down.columns));
    let mut out = cpu.arena.zeros(count * columns);
    // All rows may choose one expert: reserve for that, so that later steps allocate nothing.
    let most = count.max(WAVE_ROWS.min(count * spec.top_k));
    wave.reserve(WAVE);
    gathered.reserve(most, hidden);
    narrow.reserve(most, inner);
    for (buffer, width) in [(&mut *wide, 2 * inner), (&mut *result, columns)] {
        buffer.clear();
        buffer.reserve(most * width);
    }
    quantised.clear();
    if chosen.iter().zip(gate_up).any(|(rows, weight)| !rows.is_empty() && weight.is_integer()) {
        groups::quantise(level, StridedRows::dense(x, hidden), quantised);
    }
    let mut experts = chosen.iter().enumerate().filter(|(_, rows)| !rows.is_empty()).peekable();
    while experts.peek().is_some() {
        wave.clear();
        let mut rows = 0;
        while let Some((expert, its)) =
            experts.next_if(|(_, its)| wave.is_empty() || wave.len() < WAVE && rows + its.len() <= WAVE_ROWS)
        {
            wave.push(expert);
            rows += its.len();
        }
        gathered.clear();
        let integers = wave.iter().any(|&expert| gate_up[expert].is_integer());
        let floats = wave.iter().any(|&expert| !gate_up[expert].is_integer());
        for &(row, _) in wave.iter().flat_map(|&expert| &chosen[expert]) {
            if floats {
                gathered.numbers.extend_from_slice(&x[row * hidden..(row + 1) * hidden]);
            }
            if integers {
                let a_row = hidden.div_ceil(GROUP);
                gathered.groups.extend_from_slice(&quantised[row * a_row..(row + 1) * a_row]);
            }
        }
        let its_rows = |&expert: &usize| (expert, chosen[expert].len());
        wide.resize(rows * 2 * inner, 0.0);
        multiply(cpu, gathered, gate_up, wave.iter().map(its_rows), wide);
        narrow.numbers.resize(rows * inner, 0.0);
        math::silu_mul(level, wide, &mut narrow.numbers, inner);
        if wave.iter().any(|&expert| down[expert].is_integer()) {
            groups::quantise(level, StridedRows::dense(&narrow.numbers, inner), &mut narrow.groups);
        }
        result.resize(rows * columns, 0.0);
        multiply(cpu, narrow, down, wave.iter().map(its_rows), result);
        let all = wave.iter().flat_map(|&expert| &chosen[expert]);
        for (&(row, weight), result) in all.zip(result.chunks_exact(columns)) {
            for (o, v) in out[row * columns..(row + 1) * columns].iter_mut().zip(result) {
                *o += v * weight;
            }
        }
    }
    out
}

/// Routes each row and collects the rows of each expert, with their weights, in `chosen`. `logits` is `[rows, experts]`.
fn route(
    cpu: &Cpu,
    logits: &mut [f32],
    experts: usize,
    spec: RouterShape,
    order: &mut Vec<usize>,
    chosen: &mut Vec<Vec<(usize, f32)>>,
) {
    let count = logits.len() / experts;
    chosen.resize_with(experts, Vec::new);
    for rows in &mut *chosen {
        rows.clear();
        rows.reserve(count);
    }
    for (row, probabilities) in logits.chunks_exact_mut(experts).enumerate() {
        math::softmax(cpu.level, probabilities);
        order.clear();
        order.extend(0..experts);
        // On a tie the lower number comes first.
        let likelier = |&a: &usize, &b: &usize| probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b));
        if 0 < spec.top_k && spec.top_k < experts {
            order.select_nth_unstable_by(spec.top_k, likelier);
        }
        order.truncate(spec.top_k);
        order.sort_unstable_by(likelier);
        let total: f32 = if spec.normalise { order.iter().map(|&e| probabilities[e]).sum() } else { 1.0 };
        for &expert in &*order {
            chosen[expert].push((row, probabilities[expert] / total));
        }
    }
}

/// Multiplies the experts' rows in one region. `out` has the results in the order of the rows.
fn multiply(
    cpu: &Cpu,
    x: &ExpertInputs,
    weights: &[PackedWeight],
    mut experts: impl Iterator<Item = (usize, usize)>,
    mut out: &mut [f32],
) {
    let (pool, level) = (cpu.pool.as_deref(), cpu.level);
    let mut first = 0;
    let products: [_; WAVE] = array::from_fn(|_| {
        let (expert, rows) = experts.next()?;
        let weight = &weights[expert];
        cpu.count(rows, weight);
        let (to, after) = std::mem::take(&mut out).split_at_mut(rows * weight.columns);
        out = after;
        let from = first;
        first += rows;
        Some(if let Some(integers) = weight.integers() {
            let a_row = weight.k.div_ceil(GROUP);
            let groups = &x.groups[from * a_row..first * a_row];
            Product::of_integers(pool, level, (groups, rows), integers, None, to)
        } else {
            let numbers = &x.numbers[from * weight.k..first * weight.k];
            Product::of_floats(pool, level, StridedRows::dense(numbers, weight.k), weight, None, to)
        })
    });
    product::run(pool, products.iter().flatten());
}
