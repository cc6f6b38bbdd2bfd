//! Norms of columns over segments, and the recurrence of LSTM layers.

use super::elementwise::wide;
use super::support::Device;
use super::{Kernel, SEGMENT_ROWS, SEGMENTS, TwinResult, compare, numbers, segment_of};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "segment_instance_norm_f32",
        file: "norm.cu",
        check: instance_norm,
        planted: &[
            ("by * (1.0f + own[0])", "by * own[0]"),
            ("shift = own[columns]", "shift = own[0]"),
            ("style + (size_t)blockIdx.x * 2 * columns + column", "style + column"),
            ("column_sum(sum, scratch) / length", "column_sum(sum, scratch) / rows"),
            ("column_sum(square, scratch) / length + epsilon", "column_sum(square, scratch) / length"),
            ("if (blockIdx.x >= styled) {", "if (blockIdx.x >= count) {"),
            ("scratch[warp * 32 + lane]", "scratch[warp * 32]"),
            ("blockIdx.y * 32 + threadIdx.x % 32, warp", "threadIdx.x % 32, warp"),
        ],
    },
    Kernel {
        name: "segment_lstm_f32",
        file: "lstm.cu",
        check: lstm,
        planted: &[
            ("reverse != 0 ? length - 1 - step : step", "step"),
            ("hidden + (size_t)gate * pitch", "hidden + (size_t)gate * width"),
            ("k < 2 * width; k += blockDim.x) state[k]", "k < width; k += blockDim.x) state[k]"),
            (
                "sigmoid(gates[k]) * hyperbolic_tangent(gates[2 * width + k])",
                "sigmoid(gates[k]) * gates[2 * width + k]",
            ),
            ("sigmoid(gates[width + k])", "sigmoid(gates[k])"),
            ("hyperbolic_tangent(cells[k])", "cells[k]"),
            ("+ gate] + sum", "+ gate]"),
            ("if (blockIdx.x == count) {", "if (blockIdx.x > count) {"),
        ],
    },
];

const HALF_UNIT: f64 = 1.0 / (1 << 24) as f64;
/// Number of segments with a style.
const STYLED: usize = 3;

/// The segment of 40 rows is the last with a style; the empty one after it has none.
fn instance_norm(ptx: &str) -> TwinResult {
    let epsilon = 0.01f32;
    for (columns, styled) in [(3, STYLED), (70, STYLED), (33, 2)] {
        let mut device = Device::load(ptx);
        let count = SEGMENT_ROWS * columns;
        let (x, style) = (numbers(1, count), numbers(2, styled * 2 * columns));
        let mut params = vec![device.f32s(&x), device.f32s(&style), device.fresh(count), device.u32s(&SEGMENTS)];
        params.extend([SEGMENTS.len(), styled, SEGMENT_ROWS, columns].map(|size| size as u64));
        params.push(u64::from(epsilon.to_bits()));
        let grid = [SEGMENTS.len() as u32 + 1, columns.div_ceil(32) as u32, 1];
        device.launch("segment_instance_norm_f32", grid, [64, 1, 1], 64 * 4, &params)?;
        let wanted = (0..count).map(|i| {
            let (row, column) = (i / columns, i % columns);
            let Some(segment) = segment_of(row) else { return (0.0, 0.0) };
            let number = [0, 5, 6].iter().position(|first| *first == segment.start).unwrap_or(STYLED);
            if number >= styled {
                return (0.0, 0.0);
            }
            let mine: Vec<f64> = segment.map(|row| wide(x[row * columns + column])).collect();
            let mean = mine.iter().sum::<f64>() / mine.len() as f64;
            let variance = mine.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / mine.len() as f64;
            let own = &style[number * 2 * columns..];
            let by = (1.0 + wide(own[column])) / (variance + wide(epsilon)).sqrt();
            let wanted = (wide(x[i]) - mean) * by + wide(own[columns + column]);
            (wanted, (mine.len() as f64 + 16.0) * (by.abs() + 1.0) * HALF_UNIT)
        });
        if let Some(wrong) = compare(&device.read_f32s(params[2], count)?, wanted) {
            return Ok(Some(format!("{columns} columns: {wrong}")));
        }
    }
    Ok(None)
}

/// Widths that fill no warp, and more than the block has threads; rows of the matrix are padded.
fn lstm(ptx: &str) -> TwinResult {
    for (width, reverse) in [(3, 0u64), (3, 1), (70, 0), (70, 1)] {
        let (mut device, pitch) = (Device::load(ptx), width + 5);
        let (x, hidden) = (numbers(1, SEGMENT_ROWS * 4 * width), numbers(2, 4 * width * pitch));
        let hidden: Vec<f32> = hidden.iter().map(|factor| factor / (width as f32).sqrt()).collect();
        let count = SEGMENT_ROWS * width;
        let mut params = vec![device.f32s(&x), device.f32s(&hidden), device.fresh(count), device.u32s(&SEGMENTS)];
        params.extend([SEGMENTS.len(), SEGMENT_ROWS, width, pitch].map(|size| size as u64));
        params.push(reverse);
        let grid = [SEGMENTS.len() as u32 + 1, 1, 1];
        device.launch("segment_lstm_f32", grid, [64, 1, 1], 6 * width * 4, &params)?;
        let mut wanted = vec![(0.0, 0.0); count];
        let mut first = 0;
        for length in SEGMENTS.map(|length| length as usize) {
            let (mut state, mut cells) = (vec![0.0f64; width], vec![0.0f64; width]);
            for step in 0..length {
                let row = first + if reverse == 1 { length - 1 - step } else { step };
                let gates: Vec<f64> = (0..4 * width)
                    .map(|gate| {
                        let terms = hidden[gate * pitch..][..width].iter().zip(&state);
                        wide(x[row * 4 * width + gate]) + terms.map(|(w, h)| wide(*w) * h).sum::<f64>()
                    })
                    .collect();
                let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                for k in 0..width {
                    cells[k] = sigmoid(gates[width + k]) * cells[k] + sigmoid(gates[k]) * gates[2 * width + k].tanh();
                    state[k] = sigmoid(gates[3 * width + k]) * cells[k].tanh();
                    // An error of a step passes on with a factor below 1: a few steps' worth of units.
                    wanted[row * width + k] = (state[k], (64.0 + 4.0 * width as f64) * 4.0 * HALF_UNIT);
                }
            }
            first += length;
        }
        if let Some(wrong) = compare(&device.read_f32s(params[2], count)?, wanted.into_iter()) {
            return Ok(Some(format!("width {width}, reverse {reverse}: {wrong}")));
        }
    }
    Ok(None)
}
