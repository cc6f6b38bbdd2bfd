//! Recurrence of LSTM layers within consecutive segments of rows, one row after the other.

use super::device::Cpu;
use super::gemm::{PackedWeight, StridedRows};
use super::math::{sigmoid, tanh};
use super::simd::{dispatch, multiply_add};
use super::tensor::Tensor;

pub(super) fn rows(cpu: &Cpu, x: &Tensor, hidden: &PackedWeight, segments: &[u32], reverse: bool) -> Tensor {
    let (width, gates) = (hidden.k, hidden.columns);
    assert_eq!((gates, x.columns), (4 * width, gates), "gates of another width");
    let mut out = cpu.arena.zeros(x.rows * width);
    let mut cells = cpu.arena.zeros(width);
    let mut recurrent = cpu.arena.zeros(gates);
    let mut first = 0;
    for &rows in segments {
        let rows = rows as usize;
        cells.fill(0.0);
        let mut before: Option<usize> = None;
        for step in 0..rows {
            let row = first + if reverse { rows - 1 - step } else { step };
            match before {
                Some(before) => {
                    let state = StridedRows::dense(&out[before * width..][..width], width);
                    cpu.multiply(state, hidden, None, &mut recurrent);
                }
                None => recurrent.fill(0.0),
            }
            let x = &x.data[row * gates..][..gates];
            unit(cpu.level, x, &recurrent, &mut cells, &mut out[row * width..][..width]);
            before = Some(row);
        }
        first += rows;
    }
    Tensor { rows: x.rows, columns: width, data: out }
}

#[inline(always)]
fn unit_loop<const FUSED: bool>(x: &[f32], recurrent: &[f32], cells: &mut [f32], state: &mut [f32]) {
    let width = cells.len();
    let gate = |number: usize, i: usize| x[number * width + i] + recurrent[number * width + i];
    for (i, (cell, state)) in cells.iter_mut().zip(state).enumerate() {
        let candidate = sigmoid::<FUSED>(gate(0, i)) * tanh::<FUSED>(gate(2, i));
        *cell = multiply_add::<FUSED>(sigmoid::<FUSED>(gate(1, i)), *cell, candidate);
        *state = sigmoid::<FUSED>(gate(3, i)) * tanh::<FUSED>(*cell);
    }
}

dispatch!(/// Computes cells and state after a row; `x` and `recurrent` are the two terms of its gates.
    fn unit = unit_loop(x: &[f32], recurrent: &[f32], cells: &mut [f32], state: &mut [f32]));
