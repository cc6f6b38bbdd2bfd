//! Norms of columns over segments, and the recurrence of LSTM layers.

use std::sync::Arc;

use proptest::prelude::*;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::{DType, Ops, RawTensor, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

use crate::segments::{each_alone, segments};
use crate::{check, numbers};

const EPSILON: f32 = 1e-5;

/// Norms columns of segments longer and shorter than a block of rows; equals the formula in double precision, and each segment alone.
pub fn instance_norm_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (prop::collection::vec(1usize..600, 1..4), 0usize..4, 1usize..40);
    check(24, &strategy, |(lengths, padding, columns)| {
        // An offset that sums of squares without their mean would not survive.
        let x: Vec<f32> = numbers(lengths.iter().sum::<usize>() * columns, 2.0, 1).iter().map(|x| x + 30.0).collect();
        let style = numbers(2 * columns, 1.0, 2);
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let at = segments(&ops, lengths, padding);
            let style = ops.tensor(style.repeat(lengths.len()), 2 * columns);
            ops.read(&ops.segment_instance_norm_at(&ops.tensor(x, columns), &style, EPSILON, &at))
        };
        let mut from = &x[..];
        for (&length, found) in lengths.iter().zip(each_alone(&lengths, (&x, columns), padding, run)) {
            let (mine, rest) = from.split_at(length * columns);
            from = rest;
            for column in 0..columns {
                let values: Vec<f64> = (0..length).map(|row| f64::from(mine[row * columns + column])).collect();
                let mean = values.iter().sum::<f64>() / length as f64;
                let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / length as f64;
                let by = (1.0 + f64::from(style[column])) / (variance + f64::from(EPSILON)).sqrt();
                for (row, value) in values.iter().enumerate() {
                    let truth = (value - mean) * by + f64::from(style[columns + column]);
                    let (found, within) = (f64::from(found[row * columns + column]), 4e-6 * (1.0 + 30.0 * by.abs()));
                    prop_assert!((found - truth).abs() < within, "{} instead of {}", found, truth);
                }
            }
        }
        Ok(())
    });
}

/// Norms a long segment on one thread and on several: equal bits. A segment without a style gives zeros.
pub fn instance_norm_is_independent_of_threads(level: SimdLevel) {
    const COLUMNS: usize = 48;
    let (x, style) = (numbers(5000 * COLUMNS, 2.0, 1), numbers(2 * COLUMNS, 1.0, 2));
    let run = |ops: &Cpu| {
        let (x, at) = (ops.tensor(x.clone(), COLUMNS), segments(ops, &[4900, 100], 0));
        ops.read(&ops.segment_instance_norm_at(&x, &ops.tensor(style.clone(), 2 * COLUMNS), EPSILON, &at))
    };
    let alone = run(&Cpu::with_level(level));
    assert!(alone == run(&Cpu::with_level(level).on(Some(Arc::new(Pool::new(3).unwrap())))));
    assert!(alone[4900 * COLUMNS..].iter().all(|x| *x == 0.0) && alone[..COLUMNS].iter().any(|x| *x != 0.0));
}

/// Runs the recurrence in both directions; equals the formula in double precision, and each segment alone.
pub fn lstm_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (prop::collection::vec(1usize..30, 1..4), 0usize..4, 1usize..40, any::<bool>());
    check(48, &strategy, |(lengths, padding, width, reverse)| {
        let x = numbers(lengths.iter().sum::<usize>() * 4 * width, 3.0, 1);
        let hidden = numbers(4 * width * width, 0.5, 2);
        let bytes: Vec<u8> = hidden.iter().flat_map(|number| number.to_le_bytes()).collect();
        let tensor = RawTensor { name: "hidden", bytes: &bytes, dtype: DType::F32, shape: &[4 * width, width] };
        let weight = ops.stored_weight(WeightLayout::Linear, &[tensor]).unwrap();
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let at = segments(&ops, lengths, padding);
            ops.read(&ops.segment_lstm_at(&ops.tensor(x, 4 * width), &weight, &at, reverse))
        };
        let mut from = &x[..];
        for (&length, found) in lengths.iter().zip(each_alone(&lengths, (&x, 4 * width), padding, run)) {
            let (mine, rest) = from.split_at(length * 4 * width);
            from = rest;
            let (mut state, mut cells) = (vec![0.0f64; width], vec![0.0f64; width]);
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            for step in 0..length {
                let row = if reverse { length - 1 - step } else { step };
                let gates: Vec<f64> = (0..4 * width)
                    .map(|gate| {
                        let by = hidden[gate * width..][..width].iter().zip(&state);
                        f64::from(mine[row * 4 * width + gate]) + by.map(|(w, h)| f64::from(*w) * h).sum::<f64>()
                    })
                    .collect();
                for i in 0..width {
                    let candidate = sigmoid(gates[i]) * gates[2 * width + i].tanh();
                    cells[i] = sigmoid(gates[width + i]) * cells[i] + candidate;
                    state[i] = sigmoid(gates[3 * width + i]) * cells[i].tanh();
                    let found = f64::from(found[row * width + i]);
                    prop_assert!((found - state[i]).abs() < 2e-5, "{} instead of {}", found, state[i]);
                }
            }
        }
        Ok(())
    });
}
