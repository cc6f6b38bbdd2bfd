//! Norm of each column over the rows of a segment, with a scale and a shift for each segment.
//!
//! Mean and squares are summed over blocks of rows, and the blocks' sums are joined in order in double precision. So threads share a
//! segment, and its length alone decides the rounding.

use super::device::{Cpu, LEAST_NORM};
use super::simd::{dispatch, multiply_add};
use super::tensor::Tensor;

/// Rows of a block.
const BLOCK: usize = 256;

pub(super) fn rows(cpu: &Cpu, x: &Tensor, style: &Tensor, eps: f32, segments: &[u32]) -> Tensor {
    let columns = x.columns;
    assert_eq!(style.columns, 2 * columns, "a style of another width");
    let mut out = cpu.arena.zeros(x.data.len());
    let mut first = 0;
    for (&rows, style) in segments.iter().zip(style.data.chunks_exact(2 * columns)) {
        let rows = rows as usize;
        if rows == 0 {
            continue;
        }
        let range = first * columns..(first + rows) * columns;
        let x = &x.data[range.clone()];
        let mut moments = cpu.arena.uninitialised(rows.div_ceil(BLOCK) * 2 * columns);
        cpu.split(&mut moments, 2 * columns, 2 * columns, |block, part| {
            let all = x[block * BLOCK * columns..].chunks(BLOCK * columns);
            for (x, moments) in all.zip(part.chunks_exact_mut(2 * columns)) {
                sums(cpu.level, x, moments);
            }
        });
        // Factor and mean of each column, then its shift.
        let mut affine = cpu.arena.uninitialised(3 * columns);
        for column in 0..columns {
            let (mean, variance) = joined(&moments, columns, column, rows);
            let by = 1.0 / (variance + eps).sqrt();
            let numbers = [by * (1.0 + style[column]), mean, style[columns + column]];
            numbers.into_iter().enumerate().for_each(|(at, number)| affine[at * columns + column] = number);
        }
        cpu.split(&mut out[range], columns, LEAST_NORM, |row, part| {
            apply(cpu.level, &x[row * columns..][..part.len()], &affine, part);
        });
        first += rows;
    }
    Tensor { data: out, ..*x }
}

/// Joins the moments of all blocks of a column; returns mean and variance.
fn joined(moments: &[f32], columns: usize, column: usize, rows: usize) -> (f32, f32) {
    let (mut count, mut mean, mut square) = (0.0f64, 0.0f64, 0.0f64);
    for (block, moments) in moments.chunks_exact(2 * columns).enumerate() {
        let own = BLOCK.min(rows - block * BLOCK) as f64;
        let (own_mean, own_square) = (f64::from(moments[column]), f64::from(moments[columns + column]));
        let (total, off) = (count + own, own_mean - mean);
        square += own_square + off * off * count * own / total;
        mean += off * own / total;
        count = total;
    }
    (mean as f32, (square / count) as f32)
}

#[inline(always)]
fn sums_loop<const FUSED: bool>(x: &[f32], moments: &mut [f32]) {
    let columns = moments.len() / 2;
    let (mean, square) = moments.split_at_mut(columns);
    mean.fill(0.0);
    square.fill(0.0);
    for row in x.chunks_exact(columns) {
        for (sum, x) in mean.iter_mut().zip(row) {
            *sum += x;
        }
    }
    let by = columns as f32 / x.len() as f32;
    mean.iter_mut().for_each(|sum| *sum *= by);
    for row in x.chunks_exact(columns) {
        for ((sum, x), mean) in square.iter_mut().zip(row).zip(&*mean) {
            *sum = multiply_add::<FUSED>(x - mean, x - mean, *sum);
        }
    }
}

#[inline(always)]
fn apply_loop<const FUSED: bool>(x: &[f32], affine: &[f32], out: &mut [f32]) {
    let columns = affine.len() / 3;
    let (scale, rest) = affine.split_at(columns);
    let (mean, shift) = rest.split_at(columns);
    for (row, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
        for ((((out, x), scale), mean), shift) in out.iter_mut().zip(row).zip(scale).zip(mean).zip(shift) {
            *out = multiply_add::<FUSED>(x - mean, *scale, *shift);
        }
    }
}

dispatch!(/// Computes mean and squared distance from it of each column of a block.
    fn sums = sums_loop(x: &[f32], moments: &mut [f32]));
dispatch!(/// Computes `(x - mean) scale + shift` by column.
    fn apply = apply_loop(x: &[f32], affine: &[f32], out: &mut [f32]));
