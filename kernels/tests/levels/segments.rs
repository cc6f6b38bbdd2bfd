//! Operations within segments of rows: a centred convolution, and the snake between two filters.

use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, CpuIndex, Weight};
use repartee_kernels::{DType, FILTER_TAPS, Ops, RawTensor, SpecLayout, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

use crate::{check, numbers};
use proptest::prelude::*;

fn weight(ops: &Cpu, layout: WeightLayout, values: &[f32], shape: &[usize]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    ops.stored_weight(layout, &[RawTensor { name: "weight", bytes: &bytes, dtype: DType::F32, shape }]).unwrap()
}

/// Segments of the given lengths, with `padding` rows after them.
fn segments(ops: &Cpu, lengths: &[usize], padding: usize) -> CpuIndex {
    let mut layout = SpecLayout::default();
    let at = layout.segments(lengths.iter().sum::<usize>() + padding, lengths.len());
    let mut spec = layout.spec();
    spec.set_segments(at, lengths);
    ops.index(&ops.upload(&spec), at.words())
}

/// Checks that `run` gives the same over several segments as over each alone; returns the result.
fn each_alone(
    lengths: &[usize],
    (x, width): (&[f32], usize),
    padding: usize,
    run: impl Fn(Vec<f32>, &[usize], usize) -> Vec<f32>,
) -> Vec<Vec<f32>> {
    let mut padded = x.to_vec();
    padded.resize(x.len() + padding * width, 0.0);
    let together = run(padded, lengths, padding);
    let (mut first, mut alone) = (0, Vec::new());
    for &length in lengths {
        let mine = run(x[first * width..(first + length) * width].to_vec(), &[length], 0);
        let out = mine.len() / length;
        assert!(together[first * out..(first + length) * out] == mine, "a neighbour changed a result");
        first += length;
        alone.push(mine);
    }
    alone
}

pub fn conv1d_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (prop::collection::vec(1usize..40, 1..4), 0usize..4, 0usize..4, 1usize..6, 1usize..20, 1usize..40);
    check(64, &strategy, |(lengths, padding, beside, dilation, input, out)| {
        let (taps, rows) = (2 * beside + 1, lengths.iter().sum::<usize>());
        let x = numbers(rows * input, 1.0, 1);
        let (w, b) = (numbers(out * input * taps, 1.0, 2), numbers(out, 1.0, 3));
        let layout = WeightLayout::Conv1d { dilation };
        let (weight, bias) =
            (weight(&ops, layout, &w, &[out, input, taps]), weight(&ops, WeightLayout::Vector, &b, &[out]));
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let at = segments(&ops, lengths, padding);
            ops.read(&ops.segment_conv1d_at(&ops.tensor(x, input), &weight, &bias, &at))
        };
        let mut from = &x[..];
        for (length, found) in lengths.iter().zip(each_alone(&lengths, (&x, input), padding, run)) {
            let (mine, rest) = from.split_at(length * input);
            from = rest;
            for (at, &found) in found.iter().enumerate() {
                let (row, o) = (at / out, at % out);
                let mut sum = f64::from(b[o]);
                for (tap, channel) in (0..taps).flat_map(|tap| (0..input).map(move |channel| (tap, channel))) {
                    let value = (row + tap * dilation).checked_sub(beside * dilation).filter(|row| row < length);
                    let value = value.map_or(0.0, |row| mine[row * input + channel]);
                    sum += f64::from(value) * f64::from(w[(o * input + channel) * taps + tap]);
                }
                prop_assert!((f64::from(found) - sum).abs() < 2e-5, "{} instead of {}", found, sum);
            }
        }
        Ok(())
    });
}

/// Computes the snake as a resampler is defined: with zeros between the numbers, and the nearest ones beyond the ends.
pub fn snake_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (prop::collection::vec(1usize..40, 1..4), 0usize..4, 1usize..40);
    check(64, &strategy, |(lengths, padding, channels)| {
        let x = numbers(lengths.iter().sum::<usize>() * channels, 2.0, 1);
        let (alpha, beta) = (numbers(channels, 1.0, 2), numbers(channels, 1.0, 3));
        let filter = numbers(FILTER_TAPS, 0.5, 4);
        let vector = |values: &[f32]| weight(&ops, WeightLayout::Vector, values, &[values.len()]);
        let (a, b, f) = (vector(&alpha), vector(&beta), vector(&filter));
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let at = segments(&ops, lengths, padding);
            ops.read(&ops.segment_snake_at(&ops.tensor(x, channels), &a, &b, &f, &at))
        };
        let mut from = &x[..];
        for (&length, found) in lengths.iter().zip(each_alone(&lengths, (&x, channels), padding, run)) {
            let (mine, rest) = from.split_at(length * channels);
            from = rest;
            for channel in 0..channels {
                let nearest = |values: &[f64], at: isize| values[at.clamp(0, values.len() as isize - 1) as usize];
                let rows: Vec<f64> = (0..length).map(|row| f64::from(mine[row * channels + channel])).collect();
                // A transposed convolution of five more rows at either end, with fifteen results cut off at both.
                let mut raised = vec![0.0; 2 * (length + 10) + FILTER_TAPS - 2];
                for row in 0..length + 10 {
                    for (tap, by) in filter.iter().enumerate() {
                        raised[2 * row + tap] += 2.0 * f64::from(*by) * nearest(&rows, row as isize - 5);
                    }
                }
                let (frequency, magnitude) = (f64::from(alpha[channel]).exp(), 1.0 / f64::from(beta[channel]).exp());
                let snake = |x: &f64| x + magnitude * (x * frequency).sin().powi(2);
                let snaked: Vec<f64> = raised[15..raised.len() - 15].iter().map(snake).collect();
                prop_assert_eq!(snaked.len(), 2 * length);
                for row in 0..length {
                    let taps = filter.iter().enumerate();
                    let value = |(tap, by): (usize, &f32)| {
                        f64::from(*by) * nearest(&snaked, 2 * row as isize + tap as isize - 5)
                    };
                    let (found, truth) = (found[row * channels + channel], taps.map(value).sum::<f64>());
                    prop_assert!((f64::from(found) - truth).abs() < 5e-5, "{} instead of {}", found, truth);
                }
            }
        }
        Ok(())
    });
}
