//! Operations within segments of rows: a centred convolution, and the snake between two filters.

use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, CpuIndex, Weight};
use repartee_kernels::shapes::snake_vectors;
use repartee_kernels::{DType, FILTER_TAPS, Ops, RawTensor, SegmentShape, SpecLayout, WeightFormat, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

use crate::{check, numbers};
use proptest::prelude::*;

fn weight(ops: &Cpu, layout: WeightLayout, values: &[f32], shape: &[usize]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    ops.stored_weight(layout, &[RawTensor { name: "weight", bytes: &bytes, dtype: DType::F32, shape }]).unwrap()
}

/// Segments of the given lengths, with `padding` rows after them.
pub fn segments(ops: &Cpu, lengths: &[usize], padding: usize) -> CpuIndex {
    let mut layout = SpecLayout::default();
    let at = layout.segments(lengths.iter().sum::<usize>() + padding, lengths.len());
    let mut spec = layout.spec();
    spec.set_segments(at, lengths);
    ops.index(&ops.upload(&spec), at.words())
}

/// Checks that `run` gives the same over several segments as over each alone; returns the result.
pub fn each_alone(
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
    let sizes = (1usize..5, 1usize..10, 1usize..20);
    let strategy = (prop::collection::vec(1usize..40, 1..4), 0usize..4, 0usize..4, 1usize..6, sizes);
    check(64, &strategy, |(lengths, padding, beside, dilation, (groups, channels, out))| {
        let (input, out) = (groups * channels, groups * out);
        let (taps, rows) = (2 * beside + 1, lengths.iter().sum::<usize>());
        let x = numbers(rows * input, 1.0, 1);
        let (w, b) = (numbers(out * channels * taps, 1.0, 2), numbers(out, 1.0, 3));
        let layout = if groups > 1 {
            WeightLayout::GroupedConv1d { dilation, groups }
        } else {
            WeightLayout::Conv1d { dilation }
        };
        let (weight, bias) =
            (weight(&ops, layout, &w, &[out, channels, taps]), weight(&ops, WeightLayout::Vector, &b, &[out]));
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
                let first = o / (out / groups) * channels;
                for (tap, channel) in (0..taps).flat_map(|tap| (0..channels).map(move |channel| (tap, channel))) {
                    let value = (row + tap * dilation).checked_sub(beside * dilation).filter(|row| row < length);
                    let value = value.map_or(0.0, |row| mine[row * input + first + channel]);
                    sum += f64::from(value) * f64::from(w[(o * channels + channel) * taps + tap]);
                }
                prop_assert!((f64::from(found) - sum).abs() < 2e-5, "{} instead of {}", found, sum);
            }
        }
        Ok(())
    });
}

/// A convolution in ranges of rows has the bits of the whole, with weights of both kinds.
pub fn conv1d_in_ranges_equals_the_whole(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (1usize..60, 0usize..4, 1usize..6, (1usize..80, 1usize..20), 1usize..30, any::<bool>());
    check(48, &strategy, |(length, beside, dilation, (channels, out), most, integer)| {
        let taps = 2 * beside + 1;
        let w = numbers(out * channels * taps, 1.0, 2);
        let bytes: Vec<u8> = w.iter().flat_map(|number| number.to_le_bytes()).collect();
        let tensor = RawTensor { name: "weight", bytes: &bytes, dtype: DType::F32, shape: &[out, channels, taps] };
        let format = if integer { WeightFormat::Int8 } else { WeightFormat::Float };
        let weight = ops.weight_in_format(WeightLayout::Conv1d { dilation }, format, &[tensor]).unwrap();
        let bias = self::weight(&ops, WeightLayout::Vector, &numbers(out, 1.0, 3), &[out]);
        let x = ops.tensor(numbers(length * channels, 1.0, 1), channels);
        let whole = ops.read(&ops.segment_conv1d_at(&x, &weight, &bias, &segments(&ops, &[length], 0)));
        let ranges = (0..length).step_by(most).map(|from| from..length.min(from + most));
        let parts = ranges.rev().fold(None, |all, rows| Some(ops.segment_conv1d_rows(all, &x, &weight, &bias, rows)));
        prop_assert!(parts.map(|all| ops.read(&all)) == Some(whole), "the bits differ");
        Ok(())
    });
}

/// Each number of a row is off by at most half its group's scale, and so is each weight.
pub fn integer_conv1d_is_near_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let sizes = (1usize..80, 1usize..40);
    let strategy = (prop::collection::vec(1usize..40, 1..4), 0usize..4, 0usize..4, 1usize..6, sizes);
    check(48, &strategy, |(lengths, padding, beside, dilation, (channels, out))| {
        let (taps, rows) = (2 * beside + 1, lengths.iter().sum::<usize>());
        let x = numbers(rows * channels, 1.0, 1);
        let (w, b) = (numbers(out * channels * taps, 1.0, 2), numbers(out, 1.0, 3));
        let bytes: Vec<u8> = w.iter().flat_map(|number| number.to_le_bytes()).collect();
        let tensor = RawTensor { name: "weight", bytes: &bytes, dtype: DType::F32, shape: &[out, channels, taps] };
        let layout = WeightLayout::Conv1d { dilation };
        let weight = ops.weight_in_format(layout, WeightFormat::Int8, &[tensor]).unwrap();
        let bias = self::weight(&ops, WeightLayout::Vector, &b, &[out]);
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let at = segments(&ops, lengths, padding);
            ops.read(&ops.segment_conv1d_at(&ops.tensor(x, channels), &weight, &bias, &at))
        };
        let mut from = &x[..];
        for (length, found) in lengths.iter().zip(each_alone(&lengths, (&x, channels), padding, run)) {
            let (mine, rest) = from.split_at(length * channels);
            from = rest;
            for (at, &found) in found.iter().enumerate() {
                let (row, o) = (at / out, at % out);
                let mut sum = f64::from(b[o]);
                for (tap, channel) in (0..taps).flat_map(|tap| (0..channels).map(move |channel| (tap, channel))) {
                    let value = (row + tap * dilation).checked_sub(beside * dilation).filter(|row| row < length);
                    let value = value.map_or(0.0, |row| mine[row * channels + channel]);
                    sum += f64::from(value) * f64::from(w[(o * channels + channel) * taps + tap]);
                }
                // Errors of single terms have both signs; each is at most a hundredth.
                let within = 0.01 + 0.02 * ((taps * channels) as f64).sqrt();
                prop_assert!((f64::from(found) - sum).abs() < within, "{} instead of {}", found, sum);
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
        let alpha = numbers(channels, 1.0, 2);
        // Far enough from zero that magnitudes stay small.
        let beta: Vec<f32> = numbers(channels, 0.5, 3).iter().map(|beta| beta + 1.0f32.copysign(*beta)).collect();
        let filter = numbers(FILTER_TAPS, 0.5, 4);
        let vector = |values: &[f32]| weight(&ops, WeightLayout::Vector, values, &[values.len()]);
        // Of logarithms, or of numbers that may be negative.
        let logarithmic = channels % 2 == 0;
        let (frequencies, magnitudes) = snake_vectors(&alpha, &beta, logarithmic);
        let (a, b, f) = (vector(&frequencies), vector(&magnitudes), vector(&filter));
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
                let plain = |number: f32| if logarithmic { f64::from(number).exp() } else { f64::from(number) };
                let (frequency, magnitude) = (plain(alpha[channel]), 1.0 / plain(beta[channel]));
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

/// Norms segments; equals the formula in double precision, and each segment alone.
pub fn norm_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (prop::collection::vec(1usize..40, 1..4), 0usize..4, 1usize..40);
    check(64, &strategy, |(lengths, padding, channels)| {
        let x = numbers(lengths.iter().sum::<usize>() * channels, 2.0, 1);
        let (w, b) = (numbers(channels, 1.0, 2), numbers(channels, 1.0, 3));
        let vector = |values: &[f32]| weight(&ops, WeightLayout::Vector, values, &[channels]);
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let at = segments(&ops, lengths, padding);
            ops.read(&ops.segment_norm_at(&ops.tensor(x, channels), &vector(&w), &vector(&b), 1e-5, &at))
        };
        let mut from = &x[..];
        for (&length, found) in lengths.iter().zip(each_alone(&lengths, (&x, channels), padding, run)) {
            let (mine, rest) = from.split_at(length * channels);
            from = rest;
            let count = mine.len() as f64;
            let mean = mine.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
            let variance = mine.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
            for (at, (&found, &x)) in found.iter().zip(mine).enumerate() {
                let (w, b) = (f64::from(w[at % channels]), f64::from(b[at % channels]));
                let truth = (f64::from(x) - mean) / (variance + 1e-5).sqrt() * w + b;
                prop_assert!((f64::from(found) - truth).abs() < 2e-5, "{} instead of {}", found, truth);
            }
        }
        Ok(())
    });
}

/// Attends within segments with any reach; equals the formula in double precision, and each segment alone.
pub fn attention_with_a_reach_equals_the_formula(level: SimdLevel) {
    const HEADS: usize = 2;
    let ops = Cpu::with_level(level);
    let reach = || prop::option::of(0usize..30);
    let dim = prop::sample::select(vec![4usize, 24, 33]);
    let strategy = (prop::collection::vec(1usize..50, 1..4), 0usize..4, dim, reach(), reach());
    check(64, &strategy, |(lengths, padding, dim, left, right)| {
        let width = HEADS * dim;
        let x = numbers(lengths.iter().sum::<usize>() * 3 * width, 2.0, 1);
        let shape = SegmentShape { heads: HEADS, left, right };
        let run = |x: Vec<f32>, lengths: &[usize], padding| {
            let (at, x) = (segments(&ops, lengths, padding), ops.tensor(x, 3 * width));
            let [q, k, v] = [0, 1, 2].map(|part| ops.narrow(&x, part * width, width));
            ops.read(&ops.segment_attention_at(&q, &k, &v, &at, shape))
        };
        let mut from = &x[..];
        for (&length, found) in lengths.iter().zip(each_alone(&lengths, (&x, 3 * width), padding, run)) {
            let (mine, rest) = from.split_at(length * 3 * width);
            from = rest;
            let number = |part: usize, row: usize, at: usize| f64::from(mine[(row * 3 + part) * width + at]);
            for (at, &found) in found.iter().enumerate() {
                let (row, head, d) = (at / width, at % width / dim * dim, at % width);
                let seen = left.map_or(0, |left| row.saturating_sub(left))
                    ..right.map_or(length, |right| length.min(row + right + 1));
                let score = |other: usize| {
                    let dot: f64 = (head..head + dim).map(|i| number(0, row, i) * number(1, other, i)).sum();
                    (dot / (dim as f64).sqrt()).exp()
                };
                let total: f64 = seen.clone().map(score).sum();
                let truth = seen.map(|other| score(other) / total * number(2, other, d)).sum::<f64>();
                prop_assert!((f64::from(found) - truth).abs() < 2e-5, "{} instead of {}", found, truth);
            }
        }
        Ok(())
    });
}
