//! Operations that models need and that no kernel has: each is made of those of the trait, and equals its formula.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::f64::consts::TAU;

use repartee_kernels::cpu::{Cpu, CpuIndex, Tensor, Weight};
use repartee_kernels::random::uniform;
use repartee_kernels::{
    DType, NO_ROW, Ops, RawTensor, SegmentShape, SequenceRows, SpecLayout, StateSpec, StreamLevel, StreamRows,
    WeightLayout,
};
use repartee_kernels_testkit::host::HostOps;

fn numbers(count: usize, seed: u64) -> Vec<f64> {
    (0..count).map(|i| f64::from(uniform(seed, i as u64, 0, 0)) * 2.0 - 1.0).collect()
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn tensor(ops: &Cpu, values: &[f64], columns: usize) -> Tensor {
    ops.tensor(single(values), columns)
}

fn weight(ops: &Cpu, layout: WeightLayout, values: &[f64], shape: &[usize]) -> Weight {
    let bytes: Vec<u8> = single(values).iter().flat_map(|value| value.to_le_bytes()).collect();
    ops.stored_weight(layout, &[RawTensor { name: "w", bytes: &bytes, dtype: DType::F32, shape }]).unwrap()
}

fn vector(ops: &Cpu, values: &[f64]) -> Weight {
    weight(ops, WeightLayout::Vector, values, &[values.len()])
}

/// One segment of all rows.
fn whole(ops: &Cpu, rows: usize) -> CpuIndex {
    ops.list(&[rows as u32])
}

/// Row numbers for a gather; those outside of `rows` are none.
fn rows_or_none(numbers: impl Iterator<Item = i64>, rows: usize) -> Vec<u32> {
    numbers.map(|row| u32::try_from(row).ok().filter(|&row| (row as usize) < rows).unwrap_or(NO_ROW)).collect()
}

#[track_caller]
fn assert_close(found: &[f32], truth: &[f64]) {
    assert_eq!(found.len(), truth.len());
    for (at, (&found, &truth)) in found.iter().zip(truth).enumerate() {
        assert!((f64::from(found) - truth).abs() < 2e-5, "{found} instead of {truth} at {at}");
    }
}

/// Rotates the halves of a head by a position, in double precision; base 10000.
fn rotated(head: &[f64], position: usize) -> Vec<f64> {
    let half = head.len() / 2;
    let angle = |i: usize| position as f64 * 10_000f64.powf(-2.0 * i as f64 / head.len() as f64);
    let low = (0..half).map(|i| head[i] * angle(i).cos() - head[half + i] * angle(i).sin());
    let high = (0..half).map(|i| head[half + i] * angle(i).cos() + head[i] * angle(i).sin());
    low.chain(high).collect()
}

/// The query's further numbers of Transformer-XL's attention: `u` is what multiplies the embedding of a distance, sines at even columns.
fn further_query(u: &[f64]) -> Vec<f64> {
    let cosines = u.iter().skip(1).step_by(2).copied();
    cosines.chain(u.iter().step_by(2).map(|sine| -sine)).collect()
}

/// Embedding of the distance between two rows, sines at even columns.
fn distance_embedding(distance: i64, width: usize) -> Vec<f64> {
    let angle = |i: usize| distance as f64 * 10_000f64.powf(-2.0 * (i / 2) as f64 / width as f64);
    (0..width).map(|i| if i % 2 == 0 { angle(i).sin() } else { angle(i).cos() }).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn relative_positions_split_into_rotary_terms() {
    const WIDTH: usize = 512;
    let key = [vec![1.0; WIDTH / 2], vec![0.0; WIDTH / 2]].concat();
    for (i, j) in [(0, 0), (3, 0), (0, 3), (374, 1), (17, 370)] {
        let u = numbers(WIDTH, i as u64);
        let truth = dot(&u, &distance_embedding(i as i64 - j as i64, WIDTH));
        let found = dot(&rotated(&further_query(&u), i), &rotated(&key, j));
        assert!((found - truth).abs() < 1e-11, "{found} instead of {truth} for rows {i} and {j}");
    }
}

/// Attention with positions relative to the row: content with a bias of its own, `(q + a) k`, plus `(q + b) W e(i - j)`.
#[test]
fn relative_attention_equals_wider_rotary_attention() {
    const ROWS: usize = 21;
    const HEADS: usize = 2;
    const DIM: usize = 8;
    const FURTHER: usize = 16;
    const ALL: usize = DIM + FURTHER;
    let ops = Cpu::default();
    let width = HEADS * DIM;
    let [q, k, v] = [1, 2, 3].map(|seed| numbers(ROWS * width, seed));
    let (content, place) = (numbers(width, 4), numbers(width, 5));
    // A head's matrix `[dim][further]`.
    let matrix = numbers(HEADS * DIM * FURTHER, 6);

    let mut truth = Vec::new();
    for i in 0..ROWS {
        for head in 0..HEADS {
            let part = |of: &[f64], row: usize| of[row * width + head * DIM..][..DIM].to_vec();
            let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f64>>();
            let score = |j: usize| {
                let e = distance_embedding(i as i64 - j as i64, FURTHER);
                let moved: Vec<f64> =
                    (0..DIM).map(|d| dot(&matrix[(head * DIM + d) * FURTHER..][..FURTHER], &e)).collect();
                let by_content = dot(&sum(&part(&q, i), &part(&content, 0)), &part(&k, j));
                (by_content + dot(&sum(&part(&q, i), &part(&place, 0)), &moved)) / (DIM as f64).sqrt()
            };
            let weights: Vec<f64> = (0..ROWS).map(|j| score(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            truth.extend((0..DIM).map(|d| (0..ROWS).map(|j| weights[j] / total * part(&v, j)[d]).sum::<f64>()));
        }
    }

    // Matrices that place a head's numbers in its wider head; the kernel divides by the root of that width.
    let scale = (ALL as f64 / DIM as f64).sqrt();
    let placed = |columns: usize, offset: usize, by: f64| {
        let number = |i: usize| {
            let (to, from) = (i / (HEADS * columns), i % (HEADS * columns));
            if to == from / columns * ALL + offset + from % columns { by } else { 0.0 }
        };
        let values: Vec<f64> = (0..HEADS * ALL * HEADS * columns).map(number).collect();
        weight(&ops, WeightLayout::Linear, &values, &[HEADS * ALL, HEADS * columns])
    };
    // Folded at load: query to its further numbers, and its bias.
    let folded = |of: &[f64]| -> Vec<f64> {
        let further = |head: usize| {
            let u = |f: usize| (0..DIM).map(|d| of[head * DIM + d] * matrix[(head * DIM + d) * FURTHER + f]).sum();
            further_query(&(0..FURTHER).map(u).collect::<Vec<f64>>())
        };
        (0..HEADS).flat_map(further).collect()
    };
    let unit = |at: usize| (0..width).map(|i| f64::from(u8::from(i == at))).collect::<Vec<f64>>();
    let by_input: Vec<Vec<f64>> = (0..width).map(|at| folded(&unit(at))).collect();
    let transposed: Vec<f64> =
        (0..HEADS * FURTHER).flat_map(|o| by_input.iter().map(move |outputs| outputs[o])).collect();
    let to_further = weight(&ops, WeightLayout::Linear, &transposed, &[HEADS * FURTHER, width]);

    let batch = ops.batch(&[SequenceRows { table: &[0], position: 0, rows: ROWS }]);
    let (q, k, v) = (tensor(&ops, &q, width), tensor(&ops, &k, width), tensor(&ops, &v, width));
    let with_content = ops.linear(
        &q,
        &placed(DIM, 0, scale),
        Some(&vector(&ops, &{
            let spread = |i: usize| if i % ALL < DIM { scale * content[i / ALL * DIM + i % ALL] } else { 0.0 };
            (0..HEADS * ALL).map(spread).collect::<Vec<f64>>()
        })),
    );
    let further = ops.linear(&q, &to_further, Some(&vector(&ops, &folded(&place))));
    let frequencies = ops.rotary_weight(FURTHER, 1e4).unwrap();
    let further = ops.rotary(further, &batch, &frequencies);
    let wide_q = ops.add(with_content, &ops.linear(&further, &placed(FURTHER, DIM, scale), None));
    let constant: Vec<f64> =
        (0..ROWS * HEADS * FURTHER).map(|i| f64::from(u8::from(i % FURTHER < FURTHER / 2))).collect();
    let constant = ops.rotary(tensor(&ops, &constant, HEADS * FURTHER), &batch, &frequencies);
    let wide_k = ops.linear(&k, &placed(DIM, 0, 1.0), None);
    let wide_k = ops.add(wide_k, &ops.linear(&constant, &placed(FURTHER, DIM, 1.0), None));
    let wide_v = ops.linear(&v, &placed(DIM, 0, 1.0), None);
    let shape = SegmentShape::whole(HEADS);
    let found = ops.segment_attention_at(&wide_q, &wide_k, &wide_v, &whole(&ops, ROWS), shape);
    let found: Vec<f32> = ops.read(&found).chunks(ALL).flat_map(|head| head[..DIM].to_vec()).collect();
    assert_close(&found, &truth);
}

/// Rotary embedding of neighbouring numbers is that of halves after a reordering, which queries and keys share.
#[test]
fn neighbours_rotate_as_reordered_halves() {
    const ROWS: usize = 9;
    const DIM: usize = 12;
    let ops = Cpu::default();
    let (x, w) = (numbers(ROWS * 5, 1), numbers(DIM * 5, 2));
    // Rows of the matrix, reordered at load: even numbers first.
    let order: Vec<usize> = (0..DIM).step_by(2).chain((1..DIM).step_by(2)).collect();
    let reordered: Vec<f64> = order.iter().flat_map(|&o| w[o * 5..][..5].to_vec()).collect();
    let batch = ops.batch(&[SequenceRows { table: &[0], position: 3, rows: ROWS }]);
    let h = ops.linear(&tensor(&ops, &x, 5), &weight(&ops, WeightLayout::Linear, &reordered, &[DIM, 5]), None);
    let found = ops.read(&ops.rotary(h, &batch, &ops.rotary_weight(DIM, 1e4).unwrap()));
    let mut truth = Vec::new();
    for row in 0..ROWS {
        let h: Vec<f64> = (0..DIM).map(|o| dot(&w[o * 5..][..5], &x[row * 5..][..5])).collect();
        let mut turned = [0.0; DIM];
        for i in 0..DIM / 2 {
            let (sine, cosine) = ((row + 3) as f64 * 10_000f64.powf(-2.0 * i as f64 / DIM as f64)).sin_cos();
            turned[2 * i] = h[2 * i] * cosine - h[2 * i + 1] * sine;
            turned[2 * i + 1] = h[2 * i + 1] * cosine + h[2 * i] * sine;
        }
        truth.extend(order.iter().map(|&o| turned[o]));
    }
    assert_close(&found, &truth);
}

/// A transposed convolution with any kernel and stride is a product over neighbouring rows, for all phases at once.
#[test]
fn transposed_convolution_is_gathered_products() {
    const CHANNELS: usize = 3;
    const OUT: usize = 2;
    let ops = Cpu::default();
    for (rows, kernel, stride, padding) in [(9usize, 3usize, 2usize, 0usize), (7, 8, 4, 2), (5, 2, 3, 0), (1, 5, 2, 1)]
    {
        let (x, w) = (numbers(rows * CHANNELS, 1), numbers(CHANNELS * OUT * kernel, 2));
        let all = (rows - 1) * stride + kernel;
        let mut truth = vec![0.0; all * OUT];
        for (t, tap) in (0..rows).flat_map(|t| (0..kernel).map(move |tap| (t, tap))) {
            for (c, o) in (0..CHANNELS).flat_map(|c| (0..OUT).map(move |o| (c, o))) {
                truth[(t * stride + tap) * OUT + o] += x[t * CHANNELS + c] * w[(c * OUT + o) * kernel + tap];
            }
        }
        let truth = &truth[padding * OUT..(all - padding) * OUT];

        let (taps, blocks) = (kernel.div_ceil(stride), all.div_ceil(stride));
        let number = |i: usize| {
            let (phase, o, q, c) =
                (i / (OUT * taps * CHANNELS), i / (taps * CHANNELS) % OUT, i / CHANNELS % taps, i % CHANNELS);
            let tap = phase + q * stride;
            if tap < kernel { w[(c * OUT + o) * kernel + tap] } else { 0.0 }
        };
        let by_phase: Vec<f64> = (0..stride * OUT * taps * CHANNELS).map(number).collect();
        let by_phase = weight(&ops, WeightLayout::Linear, &by_phase, &[stride * OUT, taps * CHANNELS]);
        let past = (0..blocks).flat_map(|block| (0..taps).map(move |q| block as i64 - q as i64));
        let gathered = ops.gather_at(&tensor(&ops, &x, CHANNELS), &ops.list(&rows_or_none(past, rows)));
        let out = ops.linear(&ops.reshape(gathered, taps * CHANNELS), &by_phase, None);
        let out = ops.read(&ops.reshape(out, OUT));
        assert_close(&out[padding * OUT..][..truth.len()], truth);
    }
}

/// A convolution with a stride, padded by zeros, is a product over gathered rows.
#[test]
fn strided_convolution_is_a_gathered_product() {
    const CHANNELS: usize = 3;
    const OUT: usize = 4;
    let ops = Cpu::default();
    for (rows, kernel, stride, before) in [(11usize, 3usize, 2usize, 1usize), (8, 5, 3, 4), (4, 4, 1, 0)] {
        let (x, w) = (numbers(rows * CHANNELS, 1), numbers(OUT * CHANNELS * kernel, 2));
        let results = (rows + before).saturating_sub(kernel) / stride + 1;
        let at = |result: usize, tap: usize| (result * stride + tap) as i64 - before as i64;
        let truth: Vec<f64> = (0..results * OUT)
            .map(|i| {
                let (result, o) = (i / OUT, i % OUT);
                let taps = (0..kernel).filter_map(|tap| Some((tap, usize::try_from(at(result, tap)).ok()?)));
                let term = |(tap, row): (usize, usize)| {
                    (0..CHANNELS).map(|c| x[row * CHANNELS + c] * w[(o * CHANNELS + c) * kernel + tap]).sum::<f64>()
                };
                taps.filter(|&(_, row)| row < rows).map(term).sum()
            })
            .collect();
        let number = |i: usize| w[(i / (kernel * CHANNELS) * CHANNELS + i % CHANNELS) * kernel + i / CHANNELS % kernel];
        let taps: Vec<f64> = (0..OUT * kernel * CHANNELS).map(number).collect();
        let taps = weight(&ops, WeightLayout::Linear, &taps, &[OUT, kernel * CHANNELS]);
        let rows_of = (0..results).flat_map(|result| (0..kernel).map(move |tap| at(result, tap)));
        let gathered = ops.gather_at(&tensor(&ops, &x, CHANNELS), &ops.list(&rows_or_none(rows_of, rows)));
        assert_close(&ops.read(&ops.linear(&ops.reshape(gathered, kernel * CHANNELS), &taps, None)), &truth);
    }
}

/// A convolution that looks rows ahead is a causal one whose results are taken later, with zeros fed at the end of the stream.
#[test]
fn look_ahead_is_a_causal_convolution_taken_later() {
    const CHANNELS: usize = 2;
    const KERNEL: usize = 4;
    const AHEAD: usize = 3;
    const ROWS: usize = 10;
    let ops = Cpu::default();
    let (x, w) = (numbers(ROWS * CHANNELS, 1), numbers(CHANNELS * CHANNELS * KERNEL, 2));
    let truth: Vec<f64> = (0..ROWS * CHANNELS)
        .map(|i| {
            let (row, o) = (i / CHANNELS, i % CHANNELS);
            let taps = (0..KERNEL).filter_map(|tap| Some((tap, (row + tap + AHEAD).checked_sub(KERNEL - 1)?)));
            let term = |(tap, row): (usize, usize)| {
                (0..CHANNELS).map(|c| x[row * CHANNELS + c] * w[(o * CHANNELS + c) * KERNEL + tap]).sum::<f64>()
            };
            taps.filter(|&(_, row)| row < ROWS).map(term).sum()
        })
        .collect();
    let weight = weight(&ops, WeightLayout::Conv1d { dilation: 1 }, &w, &[CHANNELS, CHANNELS, KERNEL]);
    let bias = vector(&ops, &[0.0; CHANNELS]);
    let mut tail = ops.state(StateSpec::Tail { slots: 1, rows: KERNEL - 1, columns: CHANNELS });
    let fed = [x, vec![0.0; AHEAD * CHANNELS]].concat();
    let (mut position, mut found) = (0, Vec::new());
    for rows in [1, 4, 2, 6] {
        let mut layout = SpecLayout::default();
        let at = layout.streams(rows, 1);
        let mut spec = layout.spec();
        spec.set_streams(at, &[StreamRows { slot: 0, position, rows }]);
        let streams = StreamLevel::new(ops.index(&ops.upload(&spec), at.words()));
        let x = tensor(&ops, &fed[position * CHANNELS..(position + rows) * CHANNELS], CHANNELS);
        found.extend(ops.read(&ops.conv1d_at(&x, &weight, &bias, &mut tail, &streams)));
        position += rows;
    }
    assert_close(&found[AHEAD * CHANNELS..], &truth);
}

/// Nearest and linear upsampling are gathers, with constant factors by phase.
#[test]
fn upsampling_is_gathers_and_factors() {
    const COLUMNS: usize = 3;
    const ROWS: usize = 6;
    let ops = Cpu::default();
    let x = numbers(ROWS * COLUMNS, 1);
    let on_device = tensor(&ops, &x, COLUMNS);
    let nearest: Vec<u32> = (0..5 * ROWS as u32).map(|row| row / 5).collect();
    let truth: Vec<f64> = nearest.iter().flat_map(|&row| x[row as usize * COLUMNS..][..COLUMNS].to_vec()).collect();
    assert_close(&ops.read(&ops.gather_at(&on_device, &ops.list(&nearest))), &truth);

    // Four times the rate; the edges are held.
    let place = |row: usize| (row as f64 + 0.5) / 4.0 - 0.5;
    let held = |row: f64| row.clamp(0.0, (ROWS - 1) as f64) as usize;
    let truth: Vec<f64> = (0..4 * ROWS * COLUMNS)
        .map(|i| {
            let (place, column) = (place(i / COLUMNS), i % COLUMNS);
            let (low, by) = (place.floor(), place - place.floor());
            x[held(low) * COLUMNS + column] * (1.0 - by) + x[held(low + 1.0) * COLUMNS + column] * by
        })
        .collect();
    let sides = [0.0, 1.0].map(|side| {
        let rows: Vec<u32> = (0..4 * ROWS).map(|row| held(place(row).floor() + side) as u32).collect();
        let factor = |phase: usize| {
            let by = place(phase) - place(phase).floor();
            if side == 0.0 { 1.0 - by } else { by }
        };
        let factors: Vec<f64> = (0..4 * COLUMNS).map(|i| factor(i / COLUMNS)).collect();
        let gathered = ops.reshape(ops.gather_at(&on_device, &ops.list(&rows)), 4 * COLUMNS);
        ops.scale(gathered, &vector(&ops, &factors))
    });
    let [low, high] = sides;
    assert_close(&ops.read(&ops.reshape(ops.add(low, &high), COLUMNS)), &truth);
}

/// A batch norm after a convolution is part of the convolution's numbers.
#[test]
fn batch_norm_folds_into_its_convolution() {
    const CHANNELS: usize = 3;
    const OUT: usize = 4;
    const TAPS: usize = 5;
    const ROWS: usize = 12;
    let ops = Cpu::default();
    let (x, w) = (numbers(ROWS * CHANNELS, 1), numbers(OUT * CHANNELS * TAPS, 2));
    let [bias, gain, shift, mean] = [3, 4, 5, 6].map(|seed| numbers(OUT, seed));
    let variance: Vec<f64> = numbers(OUT, 7).iter().map(|v| (v + 2.0) / TAU).collect();
    let by = |o: usize| gain[o] / (variance[o] + 1e-5).sqrt();
    let truth: Vec<f64> = (0..ROWS * OUT)
        .map(|i| {
            let (row, o) = (i / OUT, i % OUT);
            let taps = (0..TAPS).filter_map(|tap| Some((tap, (row + tap).checked_sub(TAPS / 2)?)));
            let term = |(tap, row): (usize, usize)| {
                (0..CHANNELS).map(|c| x[row * CHANNELS + c] * w[(o * CHANNELS + c) * TAPS + tap]).sum::<f64>()
            };
            let y = bias[o] + taps.filter(|&(_, row)| row < ROWS).map(term).sum::<f64>();
            (y - mean[o]) * by(o) + shift[o]
        })
        .collect();
    let folded: Vec<f64> = w.iter().enumerate().map(|(i, w)| w * by(i / (CHANNELS * TAPS))).collect();
    let folded = weight(&ops, WeightLayout::Conv1d { dilation: 1 }, &folded, &[OUT, CHANNELS, TAPS]);
    let shift: Vec<f64> = (0..OUT).map(|o| (bias[o] - mean[o]) * by(o) + shift[o]).collect();
    let x = tensor(&ops, &x, CHANNELS);
    assert_close(&ops.read(&ops.segment_conv1d_at(&x, &folded, &vector(&ops, &shift), &whole(&ops, ROWS))), &truth);
}
